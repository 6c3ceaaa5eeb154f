"""What `bench state` counts, and that its parts are there."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tests.bench.keyspaces.members import compared
from tests.bench.keyspaces.placement import placement
from tests.bench.state import PARTS

if TYPE_CHECKING:
    from pathlib import Path


def test_each_part_has_its_function() -> None:
    for path in PARTS.values():
        module, _, function = path.partition(".")

        assert callable(getattr(import_module(f"tests.bench.keyspaces.{module}"), function))


def test_of_four_members_range_moves_twice_as_much_as_balanced(tmp_path: Path) -> None:
    moved = {row.name: row.value for row in placement(tmp_path)}

    assert moved["state.placement.range.3.moved"] > 0.5
    assert moved["state.placement.balanced.3.moved"] < 0.3


async def test_reads_at_many_members_are_compared_with_reads_at_few() -> None:
    row = await compared(3, 10, gets_count=5)

    assert (row.name, row.peer) == ("state.members.memory.get.10", "at 3 members")
    assert row.ratio is not None
