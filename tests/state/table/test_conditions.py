"""Conditional writes: the condition is checked at the owner, once, in the order of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
import trio

from ringpop_py import BadOperation, ConditionFailed, tag_of
from ringpop_py.state.keyspaces.local import open_local_keyspaces
from ringpop_py.state.table.conditions import CONDITIONAL, conditional
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from tests.state.keyspaces.clusters import Cluster

pytestmark = pytest.mark.virtual_time

BOTH_MODES = pytest.mark.parametrize("mode", ["durable", "memory"])


async def two_members(
    cluster: Cluster, mode: Literal["durable", "memory"]
) -> tuple[Keyspace, Keyspace]:
    """The keyspace "k" as "a" has it, and as "b" has it; each serves a share."""
    a, b = await cluster.start("a"), await cluster.start("b")
    ours = await a.open_keyspace("k", partitions=8, mode=mode)
    await all_online(ours, "a", "b")
    theirs = await b.keyspaces.get("k")
    await all_online(theirs, "a", "b")
    return ours, theirs


def test_a_tag_is_the_same_in_every_version_and_process() -> None:
    assert tag_of(None) == "80702dc0c878209e05264b395baf644c"
    assert tag_of({"items": ["tea", 1, 1.5, b"x", True]}) == "8f33d3381f6316fc9180f103978b30ae"


@pytest.mark.parametrize("other", [1.0, True, "1", b"1", [1], None, {"a": 1}])
def test_values_of_other_types_have_other_tags(other: Value) -> None:
    assert tag_of(other) != tag_of(1)


async def test_a_write_goes_by_the_tag_of_what_is_there() -> None:
    async with open_local_keyspaces() as local:
        keyspace = await local.open_keyspace("k", partitions=2)
        await keyspace.put("cart", ["tea"], if_absent=True)

        with pytest.raises(ConditionFailed, match="if_match: the tag of the value is"):
            await keyspace.put("cart", [], if_tag=tag_of(["milk"]))
        with pytest.raises(ConditionFailed, match="if_match: there is no value"):
            await keyspace.put("other", [], if_tag=tag_of(None))
        with pytest.raises(ConditionFailed, match="if_none_match: there is a value"):
            await keyspace.update("cart", "append", "milk", if_absent=True)
        with pytest.raises(ConditionFailed):
            await keyspace.delete("cart", if_tag=tag_of([]))
        assert await keyspace.get_many(["cart", "other"]) == {"cart": ["tea"]}

        changed = await keyspace.update("cart", "append", "milk", if_tag=tag_of(["tea"]))
        assert changed == ["tea", "milk"]
        await keyspace.delete("cart", if_tag=tag_of(changed))
        assert await keyspace.get("cart", "gone") == "gone"


@BOTH_MODES
async def test_of_writes_with_one_tag_through_all_members_exactly_one_takes_effect(
    mode: Literal["durable", "memory"],
) -> None:
    won: list[int] = []
    async with a_cluster() as cluster:
        keyspaces = await two_members(cluster, mode)
        key = key_at(keyspaces[0], "b")
        await keyspaces[0].put(key, "before")

        async def change(number: int) -> None:
            keyspace = keyspaces[number % 2]
            try:
                await keyspace.put(key, number, if_tag=tag_of("before"))
            except ConditionFailed:
                return
            won.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(change, number)

        assert won == [await keyspaces[0].get(key)]


async def test_a_refused_write_stays_refused_under_the_id_that_its_caller_chose() -> None:
    async with open_local_keyspaces() as local:
        keyspace = await local.open_keyspace("k", partitions=2)
        with pytest.raises(ConditionFailed):
            await keyspace.put("x", 1, if_tag=tag_of(0), operation_id="order-17")
        await keyspace.put("x", 0)

        with pytest.raises(ConditionFailed, match="use a new id for a new write"):
            await keyspace.put("x", 1, if_tag=tag_of(0), operation_id="order-17")

        await keyspace.put("x", 1, if_tag=tag_of(0), operation_id="order-18")
        assert await keyspace.get("x") == 1


async def test_a_tag_is_of_the_value_however_it_was_packed() -> None:
    half = b"\xca\x3f\x00\x00\x00"  # 0.5 in 32 bits, as no packer of ours does
    async with open_local_keyspaces() as local:
        keyspace = await local.open_keyspace("k", partitions=1)
        keyspace._host._parts[0].state.apply([{"x": half}, [], {"job/x": [0]}, {}])  # type: ignore[attr-defined]

        await keyspace.put("x", "new", if_tag=tag_of(0.5))

        assert await keyspace.get("x") == "new"


async def test_several_tags_and_any_value_are_conditions_of_many_changes_as_well() -> None:
    async with open_local_keyspaces() as local:
        keyspace = await local.open_keyspace("k", partitions=2)
        await keyspace.put("x", 1)
        one, two = tag_of(1), tag_of(2)

        outcomes = await keyspace.update_many(
            [
                ("x", *conditional("add", 1, if_match=[two, one], if_none_match=[two])),
                ("x", *conditional("add", 1, if_none_match=[two])),
                ("x", *conditional("add", 1, if_match="*")),
                ("y", *conditional("add", 1, if_none_match=[two])),
                ("z", *conditional("add", 1, if_match="*")),
                ("x", *conditional("add", 1)),
            ]
        )

        failed = [isinstance(outcome, ConditionFailed) for outcome in outcomes]
        assert failed == [False, True, False, False, True, False]
        assert await keyspace.get_many(["x", "y", "z"]) == {"x": 4, "y": 1}


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        (None, "needs a map with the operation"),
        ({"if_match": "*"}, "needs a map with the operation"),
        ({"operation": "put", "if_mtch": []}, "no field 'if_mtch'"),
        ({"operation": "put", "if_match": "abc"}, "if_match of conditional is a list of tags"),
        ({"operation": "put", "if_none_match": [1]}, "if_none_match of conditional is a list"),
        ({"operation": "nonsense", "if_match": None}, "no aggregation 'nonsense'"),
    ],
)
async def test_a_condition_that_makes_no_sense_is_refused(argument: Value, says: str) -> None:
    async with open_local_keyspaces() as local:
        keyspace = await local.open_keyspace("k", partitions=2)

        with pytest.raises(BadOperation, match=says):
            await keyspace.update("x", CONDITIONAL, argument)


async def test_a_value_cannot_be_wanted_there_and_absent() -> None:
    async with open_local_keyspaces() as local:
        keyspace = await local.open_keyspace("k", partitions=2)

        with pytest.raises(BadOperation, match="give one of them"):
            await keyspace.put("x", 1, if_tag=tag_of(1), if_absent=True)
