"""The public names: listed in one place, and enough for all guides and examples."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from ringpop_py import errors
from ringpop_py.errors import KeyspaceError, ShuffleError

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference.md"
LISTED = (
    *("ringpop_py", "ringpop_py.testing", "ringpop_py.spark", "ringpop_py.pipeline"),
    "ringpop_py.streams",
    "ringpop_py.dataflow",
)
PUBLIC = {*LISTED, "ringpop_py.errors", "ringpop_sim", "ringpop_sim.linear"}
SCRIPT = "ringpop_py.cli.pipeline"
"""Its file is what spark-submit is given; nothing of it is imported."""
GUIDES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("examples/**/*.py")),
]
IMPORTED = re.compile(r"\b(?:from|import) +(ringpop_\w+(?:\.\w+)*)")
NAMED = re.compile(r"`(ringpop_(?:py|sim)(?:\.[a-z]\w*)+)")


def rows_under(heading: str) -> list[list[str]]:
    _, _, rest = REFERENCE.read_text("utf-8").partition(f"\n## {heading}\n")
    section = rest.partition("\n## ")[0]
    return [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]


def not_public(text: str) -> set[str]:
    """Modules that *text* imports or names, and that may move with any version."""
    named = {
        name for name in NAMED.findall(text) if name.rpartition(".")[0] not in PUBLIC
    }  # `ringpop_py.spark.route` names a name
    return {*IMPORTED.findall(text), *named} - PUBLIC - {SCRIPT}


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_guides_and_examples_go_by_public_names_alone(path: Path) -> None:
    assert not_public(path.read_text("utf-8")) == set()


def test_each_way_to_import_a_module_is_seen() -> None:
    ways = "import ringpop_py.node.end as n\nfrom ringpop_py.net import wire\n`ringpop_py.base.x`"

    assert not_public(ways) == {"ringpop_py.node.end", "ringpop_py.net", "ringpop_py.base.x"}


@pytest.mark.parametrize("package", LISTED)
def test_the_reference_lists_the_names_of(package: str) -> None:
    pytest.importorskip("pyspark")
    module = import_module(package)
    there = set(module.__all__) - set(errors.__all__)

    listed = [row[0].strip("|` ") for row in rows_under(f"`{package}`")]

    assert sorted(listed) == sorted(there)
    assert all(getattr(module, name) is not None for name in there)


def test_the_reference_lists_all_errors_that_other_guides_have_not() -> None:
    there = [
        [
            f"| `{kind.__name__}`",
            f"`{kind.code}`",
            str(kind.http_status),
            kind.took_effect,
            "yes" if kind.passes else "no",
        ]
        for kind in (getattr(errors, name) for name in errors.__all__)
        if kind is KeyspaceError or not issubclass(kind, KeyspaceError | ShuffleError)
    ]

    assert sorted(row[:5] for row in rows_under("`ringpop_py.errors`")) == sorted(there)
