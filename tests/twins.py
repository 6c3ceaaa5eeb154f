"""``python -m tests.twins``: writes the synchronous clients, from the asynchronous ones.

What stands above a connection is written once, in ``client/aio``. Its twin in ``client/sync`` is
the same without ``async`` and ``await``, and with other names; a test compares the two.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "ringpop_py" / "client" / "aio"
SOURCES: Final = (*SOURCE.glob("*.py"), ROOT / "ringpop_py" / "state" / "watch" / "watch.py")
TARGET: Final = ROOT / "ringpop_py" / "client" / "sync"
HEAD: Final = "# Made from {name} by `python -m tests.twins`: change that one.\n"
WORDS: Final = {
    r"\basync (def|with|for)\b": r"\1",
    r"\(await ([\w.]+\([^()]*\))\)\.": r"\1.",
    r"\bawait ": "",
    r"\bAwaitable\[(\w+|Mapping\[int, object\])\]": r"\1",
    r"\b__(a)(enter|exit|iter|next)__\b": r"__\2__",
    r"\bStopAsyncIteration\b": "StopIteration",
    r"\bstate\.watch\.watch\b": "client.sync.watch",
    r"\baclose\b": "close",
    r"\bAsync(?=(Lines|Changes|Client|Closing|Iterator|ActorsClient|KeyspaceClient|Pending))": "",
    r"\bAbstractAsync(?=ContextManager)": "Abstract",
    r"\basync_(leading|locking)\b": r"\1",
    r"\bclient\.aio\b": "client.sync",
    r"\blines\.concurrent\b": "lines.blocking",
    r"\bThe asynchronous client: for programs under asyncio or trio\.": (
        "The synchronous client: for scripts, WSGI applications and Spark's workers. No trio."
    ),
    r"\bEach event loop has one connection to the daemon, which its calls share\.": (
        "Each thread has one connection to the daemon."
    ),
    r"\ban (Client|ClientDispatcher|KeyspaceClient|ActorsClient)\b": r"a \1",
}
"""What is replaced by what, in this order."""


def twin_of(source: str, name: str) -> str:
    """Return the synchronous twin of a module, as ruff formats it."""
    for pattern, replacement in WORDS.items():
        source = re.sub(pattern, replacement, source)
    text = HEAD.format(name=name) + source
    for words in (("check", "--fix-only", "--select", "I,F401,TC"), ("format",)):
        text = subprocess.run(
            [
                sys.executable,
                "-m",
                "ruff",
                *words,
                "--quiet",
                "--stdin-filename",
                str(TARGET / name),
                "-",
            ],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
    return text


def twins() -> dict[Path, str]:
    """Return what has to be in each file."""
    return {
        TARGET / path.name: twin_of(
            path.read_text("utf-8"), path.relative_to(ROOT / "ringpop_py").as_posix()
        )
        for path in sorted(SOURCES)
        if path.name != "__init__.py"
    }


def main() -> int:
    """Write the files."""
    for path, text in twins().items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
