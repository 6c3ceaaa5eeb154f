"""``python -m tests.fast``: the tests for daily work, one path a line.

These are the tests of the packages that have changed since the last commit, and of the packages
that import them; without a change, those of the last commit. `bin/check --fast` runs them, without
what starts Spark, processes or many random plans.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grimp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grimp import ImportGraph

ROOT: Final = Path(__file__).parents[1]
PRODUCT: Final = "ringpop_py"
SIMULATOR: Final = "sim/ringpop_sim"
ALWAYS: Final = ("tests/test_layers.py", "tests/test_documents.py", "tests/test_public.py")


def changed_files() -> list[str]:
    """Return what differs from the last commit, or what it has changed if nothing does."""
    changed = _git("diff", "--name-only", "HEAD") + _git(
        "ls-files", "--others", "--exclude-standard"
    )
    return changed or _git("diff", "--name-only", "HEAD~1", "HEAD")


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.splitlines()


def packages_of(files: Iterable[str]) -> set[str]:
    """Return the packages and single modules of rooms among *files*, as ``room/package``."""
    parts = (Path(file).with_suffix("").parts for file in files if file.endswith(".py"))
    return {"/".join(part[1:3]) for part in parts if part[0] == PRODUCT and len(part) > 2}


def with_importers(packages: set[str], graph: ImportGraph) -> set[str]:
    """Return *packages*, and those that import them directly."""
    found = set(packages)
    for module in graph.modules:
        if _package_of(module) in packages:
            importers = graph.find_modules_that_directly_import(module)
            found |= {_package_of(importer) for importer in importers}
    return found


def _package_of(module: str) -> str:
    return "/".join(module.split(".")[1:3])


def _tests_of(package: str) -> str:
    """Return where the tests of *package* are: a folder, a file, or the folder of its room."""
    room, _, name = package.partition("/")
    paths = (f"tests/{package}", f"tests/{room}/test_{name}.py", f"tests/{room}")
    return next((path for path in paths if (ROOT / path).exists()), "")


def paths_for(files: Iterable[str], graph: ImportGraph) -> list[str]:
    """Return the tests to run after a change of *files*, as paths."""
    files = list(files)
    packages = packages_of(files)
    found = dict.fromkeys(ALWAYS)
    for name in sorted(with_importers(packages, graph)):
        path = _tests_of(name)
        if path and (name in packages or path.count("/") > 1):
            found[path] = None
    for file in files:
        is_test = file.startswith("tests/") and Path(file).name.startswith("test_")
        if is_test and (ROOT / file).exists():
            found[file] = None
        elif file.startswith(SIMULATOR):
            found |= dict.fromkeys(("tests/sim/checks", "tests/sim/test_world.py"))
    return list(found)


def main() -> int:
    """Print the paths."""
    print(*paths_for(changed_files(), grimp.build_graph(PRODUCT)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
