"""Ids that callers choose, in every kind of keyspace: a repetition, or a second, other write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.errors import BadOperation, OperationIdReused
from ringpop_py.base.values.operation_ids import NO_DIGEST, named_write
from ringpop_py.base.values.operations import Change, Outcome
from tests.state.keyspaces.kinds import KINDS, a_keyspace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time


@pytest.fixture(params=KINDS)
async def keyspace(request: pytest.FixtureRequest) -> AsyncIterator[Keyspace]:
    async with a_keyspace(request.param, partitions=4) as found:
        yield found


def neighbours(keyspace: Keyspace) -> tuple[str, str, str]:
    """Two keys of one partition, and one of another."""
    keys = [f"k{n}" for n in range(100)]
    first, number = keys[0], keyspace.partition_of(keys[0])
    second = next(key for key in keys[1:] if keyspace.partition_of(key) == number)
    return first, second, next(key for key in keys if keyspace.partition_of(key) != number)


async def test_an_id_used_again_for_another_key_of_the_partition_is_an_error(
    keyspace: Keyspace,
) -> None:
    key, neighbour, _ = neighbours(keyspace)
    await keyspace.put(key, 1, operation_id="order 7")

    with pytest.raises(OperationIdReused, match="'order 7' was used before"):
        await keyspace.put(neighbour, 1, operation_id="order 7")

    assert await keyspace.get_many([key, neighbour]) == {key: 1}


async def test_an_id_is_one_of_its_partition_so_elsewhere_it_takes_effect_again(
    keyspace: Keyspace,
) -> None:
    key, _, elsewhere = neighbours(keyspace)

    await keyspace.put(key, 1, operation_id="order 7")
    await keyspace.put(elsewhere, 1, operation_id="order 7")

    assert await keyspace.get_many([key, elsewhere]) == {key: 1, elsewhere: 1}


@pytest.mark.parametrize(
    "second",
    [
        Change("k", "add", 2),
        Change("k", "count", 1),
        Change("k", "delete"),
        Change("k", "add", 1.0),
    ],
)
async def test_another_operation_or_argument_is_another_write(second: Change) -> None:
    async with a_keyspace("local", partitions=1) as keyspace:
        await keyspace.update("k", "add", 1, operation_id="order 7")

        with pytest.raises(OperationIdReused):
            await keyspace.update(*second, operation_id="order 7")

        assert await keyspace.get("k") == 1


async def test_a_repetition_need_not_know_the_offsets() -> None:
    async with a_keyspace("local", partitions=1) as keyspace:
        change = [("k", "add", 1)]
        await keyspace.update_many(change, operation_id="order 7", offsets={"topic": 1})

        outcomes = await keyspace.update_many(change, operation_id="order 7")

        assert outcomes == [Outcome((1,), repeated=True)]


async def test_a_repetition_may_say_the_fields_of_its_maps_in_another_order(
    keyspace: Keyspace,
) -> None:
    await keyspace.put("k", {"a": 1, "b": [{"c": 2, "d": 3}]}, operation_id="order 7")

    again: Value = {"b": [{"d": 3, "c": 2}], "a": 1}
    outcomes = await keyspace.update_many([("k", "put", again)], operation_id="order 7")

    assert [isinstance(outcome, Outcome) and outcome.repeated for outcome in outcomes] == [True]


async def test_of_many_changes_those_of_partitions_that_know_the_id_otherwise_are_refused(
    keyspace: Keyspace,
) -> None:
    key, neighbour, elsewhere = neighbours(keyspace)
    await keyspace.update_many([(key, "add", 1), (elsewhere, "add", 1)], operation_id="batch")

    outcomes = await keyspace.update_many(
        [(key, "add", 1), (neighbour, "add", 1), (elsewhere, "add", 1)], operation_id="batch"
    )

    assert [type(outcome) for outcome in outcomes] == [
        OperationIdReused,
        OperationIdReused,
        Outcome,
    ]
    assert await keyspace.get_many([key, neighbour, elsewhere]) == {key: 1, elsewhere: 1}


async def test_ids_that_the_keyspace_makes_up_cost_no_digest(keyspace: Keyspace) -> None:
    await keyspace.update("k", "add", 1)
    await keyspace.update_many([("k", "add", 1)])
    host: Any = keyspace._host

    states = (
        [partition.state for partition in host.driver.online()]
        if hasattr(host, "driver")
        else [part.state for part in host._parts]
    )

    sessions = [session for state in states for _, session in state.sessions]
    assert sessions
    assert {digests for _, _, digests in sessions} == {NO_DIGEST}


@pytest.mark.parametrize("wrong", [{1}, {"k": {1: 2}}, 1 << 70, "\ud800"])
async def test_a_value_that_cannot_be_stored_is_told_as_without_an_id(wrong: Any) -> None:  # noqa: ANN401
    async with a_keyspace("local", partitions=1) as keyspace:
        with pytest.raises(BadOperation, match=r"cannot be stored|are text"):
            await keyspace.put("k", wrong, operation_id="order 7")

        await keyspace.put("k", 1, operation_id="order 7")  # nothing took effect under it


@pytest.mark.parametrize("wrong", [7, b"order 7", ("order", 7)])
def test_a_malformed_id_is_refused(wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadOperation, match="operation_id is a text or an OperationId"):
        named_write(wrong, (Change("k", "count"),))
