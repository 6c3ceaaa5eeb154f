"""The Python blocks of docs/spark.md, by the heading that they stand under."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"
SECTION = re.compile(r"^## (?P<title>.*?)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(title: str) -> list[str]:
    """What stands under the heading *title*, which must be there."""
    sections = {match["title"]: match["text"] for match in SECTION.finditer(DOCUMENT.read_text())}
    return [match["code"] for match in BLOCK.finditer(sections[title])]
