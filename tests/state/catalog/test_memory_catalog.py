"""`ringpop_py.state.catalog.catalog.created`: generations that nobody hands out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringpop_py.base.errors import KeyspaceConflict
from ringpop_py.state.catalog.catalog import CatalogEntry, created
from ringpop_py.state.placement.definition import Definition

STATE = Definition(name="state", mode="memory")


def test_the_same_definition_is_the_same_generation_wherever_it_is_created() -> None:
    written_otherwise = replace(STATE, checkpoint_interval_s=10)

    assert created(None, STATE).order == created(None, written_otherwise).order


def test_another_definition_is_another_generation() -> None:
    assert created(None, STATE).order != created(None, replace(STATE, partitions=8)).order


def test_a_keyspace_after_a_drop_is_later_than_the_drop_whatever_its_definition() -> None:
    for partitions in range(1, 50):
        definition = replace(STATE, partitions=partitions)
        dropped = created(None, STATE)._replace(dropped=True)

        assert created(dropped, definition).order > dropped.order


def test_an_existing_keyspace_is_found_by_its_own_definition_only() -> None:
    there = created(None, STATE)

    assert created(there, STATE) is there
    with pytest.raises(KeyspaceConflict, match="partitions 256 instead of 8"):
        created(there, replace(STATE, partitions=8))


@pytest.mark.parametrize("dropped", [False, True])
def test_a_durable_keyspace_keeps_its_name_and_is_the_truth(dropped: bool) -> None:  # noqa: FBT001
    durable = CatalogEntry(replace(STATE, mode="durable"), 1, dropped)

    with pytest.raises(KeyspaceConflict, match="durable: choose another name"):
        created(durable, STATE)
    assert durable.order > created(None, STATE).order
