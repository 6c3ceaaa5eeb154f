"""The commits at which the rows of docs/figures.md were measured, and what has changed since."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
FIGURES: Final = ROOT / "docs" / "figures.md"
UNKNOWN: Final = "unknown"

PRODUCT: Final = ("ringpop_py", "sim", "demo", "tests/bench", "pyproject.toml")
"""The paths whose uncommitted changes make a measured tree ``-dirty``."""

NODE: Final = (
    *(f"ringpop_py/{name}" for name in ("base", "member", "node", "route", "edge/admin")),
    *(
        f"ringpop_py/{name}"
        for name in ("edge/cli", "edge/daemon.py", "edge/instants.py", "net/security")
    ),
    *("ringpop_py/net/http", "ringpop_py/net/transport", "ringpop_py/net/wire"),
    "ringpop_py/state/keyspaces/on_demand.py",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "ringpop_py").glob("*.py")),
)
"""What a node without keyspaces loads."""

STATE: Final = tuple(
    f"ringpop_py/{name}" for name in ("base/values", "client", "net/transport", "net/wire", "state")
)
"""What keyspaces are made of."""

MEASURES: Final = {
    "lookup": ("ringpop_py/member/ring", "ringpop_py/base/dialect.py"),
    "checksum": ("ringpop_py/member/swim/checksum.py", "ringpop_py/base/dialect.py"),
    "rpc": tuple(
        f"ringpop_py/{name}" for name in ("base/values", "net/transport", "net/wire", "route/proxy")
    ),
    "start": NODE,
    "converge": NODE,
    "gossip": NODE,
    "protocol": ("ringpop_py/member/swim", "ringpop_py/net/wire/codec.py", "sim/ringpop_sim"),
    "simulator": (
        "ringpop_py/member/swim",
        "ringpop_py/member/ring/placement.py",
        "sim/ringpop_sim",
    ),
    "spark": ("ringpop_py/spark", *STATE),
    "state": STATE,
    "shuffle": (
        "ringpop_py/flow/shuffle/protocol",
        "ringpop_py/flow/shuffle/server",
        "ringpop_py/flow/shuffle/client",
        "ringpop_py/flow/shuffle/sorting",
        "ringpop_py/spark/shuffles.py",
    ),
    "security": ("ringpop_py/net/security", "ringpop_py/net/transport", "ringpop_py/net/wire"),
    "entry": (
        *(f"ringpop_py/{name}" for name in ("base/values", "client", "edge/entry", "member/ring")),
        *(
            f"ringpop_py/{name}"
            for name in ("net/http", "net/transport", "net/wire", "route/proxy")
        ),
    ),
    "streams": (
        "ringpop_py/flow/dataflow",
        "ringpop_py/flow/exchange",
        "ringpop_py/flow/streams",
        *STATE,
    ),
    "demo": ("ringpop_py", "demo"),
}
"""For each benchmark the sources that it measures: a change of them makes its rows stale."""


class FigureRow(NamedTuple):
    """One row of a table: its place, its benchmark by the heading above, what it is of, and when.

    *commit* is empty if the row names none.
    """

    line: int
    benchmark: str
    title: str
    commit: str


def commit_of(root: Path = ROOT) -> str:
    """Return the commit of the tree at *root*, seven digits of it.

    ``-dirty`` follows if the product or a benchmark has uncommitted changes. The answer is
    ``unknown`` where git is missing or *root* is not the top of a working tree.
    """
    head = git(root, "rev-parse", "--show-prefix", "--short=7", "HEAD")
    if head is None or not head.startswith("\n"):  # the prefix, which only the top has not
        return UNKNOWN
    changed = git(root, "status", "--porcelain", "--", *PRODUCT)
    return head.strip() + ("-dirty" if changed else "")


def rows_of(text: str) -> Iterator[FigureRow]:
    """Yield the rows of all tables of *text*, which is docs/figures.md or like it."""
    benchmark, header = "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"#+ .*`bin/(?:bench )?(\w+)", line):
            benchmark = heading[1]
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not header:
            header = cells
        elif not set(line) <= {"|", "-"}:
            named = re.fullmatch(r"`([0-9a-f]{7})`", cells[-1]) if header[-1] == "at" else None
            title = next((cell for cell in cells if cell), "")
            yield FigureRow(number, benchmark, title, named[1] if named else "")


@cache
def changes_since(commit: str, paths: tuple[str, ...], root: Path = ROOT) -> list[str] | None:
    """Return the commits after *commit* that changed *paths*, the newest first, a line each.

    The answer is None if *commit* is not in the history of HEAD, or no history is there.
    """
    if git(root, "merge-base", "--is-ancestor", commit, "HEAD") is None:
        return None
    log = git(root, "log", "--format=%h %s", f"{commit}..HEAD", "--", *paths)
    return None if log is None else log.splitlines()


def print_stale() -> int:
    """Print the rows whose benchmark measures what has changed since; return the exit code."""
    if commit_of() == UNKNOWN:
        print("this is no working tree of git: nothing tells what has changed", file=sys.stderr)
        return 1
    rows = list(rows_of(FIGURES.read_text(encoding="utf-8")))
    stale_count = 0
    for row in rows:
        changes = changes_since(row.commit, MEASURES[row.benchmark])
        if changes == []:
            continue
        stale_count += 1
        since = "which is not in the history"
        if changes:
            since = f"{len(changes)} changes since, the last is {changes[0]}"
        place = f"{FIGURES.relative_to(ROOT)}:{row.line}"
        print(f"{place}  {row.benchmark}: {row.title}, at {row.commit or 'no commit'}: {since}")
    print(f"{stale_count} of {len(rows)} rows are stale")
    return 0


def git(root: Path, *arguments: str) -> str | None:
    """Return what git prints in *root*, or None if it is missing or fails."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout
