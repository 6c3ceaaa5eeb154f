"""Each figure of docs/figures.md names the commit that was measured."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.bench.__main__ import BENCHMARKS
from tests.bench.figures import (
    FIGURES,
    MEASURES,
    ROOT,
    UNKNOWN,
    changes_since,
    commit_of,
    git,
    rows_of,
)
from tests.test_layers import BARE_NODE, modules_loaded_by

if TYPE_CHECKING:
    from pathlib import Path

TEXT = FIGURES.read_text(encoding="utf-8")
ROWS = list(rows_of(TEXT))
COMMIT = r"`[0-9a-f]{7}`"
FIGURE_IN_PROSE = r"\d (?:ns|us|ms|s|MB)\b|\bratio\b.*\d|\d %"


class Repository:
    """A repository of git with one file, `ringpop_py/member/ring/hashring.py`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "ringpop_py" / "member" / "ring" / "hashring.py"
        self.file.parent.mkdir(parents=True)
        self.git("init", "--quiet")
        self.commit("one")

    def git(self, *arguments: str) -> str:
        settings = ("-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "core.hooksPath=")
        command = ("git", *settings, *arguments)
        return subprocess.run(
            command, cwd=self.root, capture_output=True, text=True, check=True
        ).stdout.strip()

    def commit(self, text: str) -> str:
        self.file.write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", f"ring: {text}")
        return self.git("rev-parse", "--short=7", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    return Repository(tmp_path)


def test_each_row_of_figures_names_a_commit_and_a_benchmark_that_there_is() -> None:
    wrong = [row for row in ROWS if not row.commit or row.benchmark not in MEASURES]

    assert len(ROWS) > 50
    assert wrong == []


def test_the_commits_of_figures_are_in_the_history() -> None:
    named = {row.commit for row in ROWS}
    if commit_of() == UNKNOWN or git(ROOT, "rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("the history of this checkout is not there")
    strangers = {commit for commit in named if changes_since(commit, ()) is None}
    if strangers == named:
        pytest.skip("this copy has a history of its own")

    assert strangers == set()


def test_figures_in_running_text_name_their_commit() -> None:
    paragraphs = [text for text in TEXT.split("\n\n") if not text.startswith(("|", "#"))]
    figures = [text for text in paragraphs[1:] if re.search(FIGURE_IN_PROSE, text)]

    assert [text for text in figures if not re.search(COMMIT, text)] == []


def test_what_each_benchmark_measures_is_there() -> None:
    paths = {path for measured in MEASURES.values() for path in measured}

    assert BENCHMARKS.keys() <= MEASURES.keys()
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_all_that_a_node_loads_is_measured_by_its_start() -> None:
    loaded = [f"{name.replace('.', '/')}" for name in modules_loaded_by(BARE_NODE)]
    files = [name for name in loaded if (ROOT / f"{name}.py").exists()]

    assert len(files) > 50
    assert [name for name in files if not f"{name}.py".startswith(MEASURES["start"])] == []


def test_a_tree_with_uncommitted_changes_of_the_product_is_dirty(repository: Repository) -> None:
    commit = repository.commit("two")
    clean = commit_of(repository.root)
    (repository.root / "README.md").write_text("no product code")
    still_clean = commit_of(repository.root)
    repository.file.write_text("three")

    assert (clean, still_clean, commit_of(repository.root)) == (commit, commit, f"{commit}-dirty")


def test_a_row_is_stale_when_what_it_measures_has_changed_since(repository: Repository) -> None:
    measured = repository.commit("two")
    changed = repository.commit("three")

    def since(commit: str, path: str) -> list[str] | None:
        return changes_since(commit, (path,), repository.root)

    assert since(measured, "ringpop_py/member/ring/hashring.py") == [f"{changed} ring: three"]
    assert since(changed, "ringpop_py/member/ring/hashring.py") == []
    assert since(measured, "ringpop_py/net/wire") == []
    assert since("0123456", "ringpop_py/member/ring/hashring.py") is None
