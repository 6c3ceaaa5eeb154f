"""The synchronous clients are made from the asynchronous ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.twins import TARGET, twins

if TYPE_CHECKING:
    from pathlib import Path

TWINS = twins()


def test_nothing_else_stands_beside_the_twins() -> None:
    assert {*TARGET.glob("*.py")} == {*TWINS, TARGET / "__init__.py"}


@pytest.mark.parametrize("path", TWINS, ids=lambda path: str(path.name))
def test_a_synchronous_client_is_what_is_made_from_its_source(path: Path) -> None:
    assert path.read_text("utf-8") == TWINS[path]


@pytest.mark.parametrize("path", TWINS, ids=lambda path: str(path.name))
def test_nothing_asynchronous_is_left_in_it(path: Path) -> None:
    words = ("async", "await", "anyio", "Async", "aclose")

    assert [word for word in words if word in path.read_text("utf-8").partition("\n")[2]] == []
