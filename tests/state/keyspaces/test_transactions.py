"""Several keys of one partition that change together, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import ConditionFailed, ConfigError, tag_of
from ringpop_py.base.errors import BadOperation, BodyError, OperationIdReused
from ringpop_py.base.values.operations import Change, Write
from ringpop_py.base.values.requests import ApplyRequest
from ringpop_py.state.placement.keys import Placing
from ringpop_py.state.requests import expiring
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.state.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time

CART, ORDERS, OTHER = "{user:42}/cart", "{user:42}/orders", "{user:43}/cart"


@pytest.fixture
async def keyspace() -> AsyncIterator[Keyspace]:
    async with a_cluster() as cluster:
        a, _ = await cluster.start("a"), await cluster.start("b")
        found = await a.open_keyspace("k", partitions=8, hash_tags=True)
        await all_online(found, "a", "b")
        yield found


async def test_all_changes_take_effect_or_none(keyspace: Keyspace) -> None:
    await keyspace.put(CART, ["tea"])
    done = await keyspace.transaction(
        [(CART, "delete", None), (ORDERS, "append", "tea")], if_tags={CART: tag_of(["tea"])}
    )
    assert done == [None, ["tea"]]
    with pytest.raises(ConditionFailed):
        await keyspace.transaction(
            [(ORDERS, "append", "milk")], if_tags={CART: tag_of(["tea"]), ORDERS: tag_of(["tea"])}
        )
    with pytest.raises(BadOperation):
        await keyspace.transaction([(CART, "put", 1), (ORDERS, "add", 1)])
    assert await keyspace.get_many([CART, ORDERS]) == {ORDERS: ["tea"]}


async def test_conditions_are_of_the_state_before(keyspace: Keyspace) -> None:
    await keyspace.put(CART, 1)
    conditions: dict[str, str | None] = {CART: tag_of(1), ORDERS: None}
    changes = [Change(CART, "add", 1), Change(ORDERS, "put", "new"), Change(CART, "add", 1)]
    assert await keyspace.transaction(changes, if_tags=conditions) == [2, "new", 3]
    with pytest.raises(ConditionFailed):
        await keyspace.transaction(changes, if_tags=conditions)


async def test_a_key_that_is_only_checked_keeps_its_value_and_its_instant(
    keyspace: Keyspace,
) -> None:
    await keyspace.put(CART, 1, expires_in=600)
    await keyspace.transaction([(ORDERS, "put", 2)], if_tags={CART: tag_of(1)})
    assert await keyspace.get(CART) == 1
    assert await keyspace.ttl(CART) is not None
    await keyspace.transaction([(ORDERS, *expiring("put", 3, expires_in=60))])
    assert await keyspace.ttl(ORDERS) is not None


async def test_a_repetition_takes_effect_once(keyspace: Keyspace) -> None:
    changes = [(CART, "add", 1), (ORDERS, "add", 1)]
    for _ in range(3):
        assert await keyspace.transaction(changes, operation_id="pay-1") == [1, 1]
    with pytest.raises(OperationIdReused):
        await keyspace.transaction([(CART, "add", 2)], operation_id="pay-1")


async def test_of_those_who_saw_the_same_one_succeeds(keyspace: Keyspace) -> None:
    await keyspace.put(CART, 0)
    succeeded = []

    async def try_it(number: int) -> None:
        try:
            await keyspace.transaction(
                [(CART, "put", number), (ORDERS, "append", number)], if_tags={CART: tag_of(0)}
            )
        except ConditionFailed:
            return
        succeeded.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(1, 20):
            nursery.start_soon(try_it, number)
    assert await keyspace.get(ORDERS) == succeeded
    assert len(succeeded) == 1


async def test_keys_of_two_partitions_are_refused(keyspace: Keyspace) -> None:
    with pytest.raises(ConfigError, match=r"'{user:43}/cart' in \d; give them a common hash tag"):
        await keyspace.transaction([(CART, "put", 1), (OTHER, "put", 1)])
    with pytest.raises(ConfigError, match="one partition"):
        await keyspace.transaction([(CART, "put", 1)], if_tags={OTHER: None})
    with pytest.raises(ConfigError, match="one change or more"):
        await keyspace.transaction([])
    with pytest.raises(ConfigError, match="if_tags is a map"):
        await keyspace.transaction([(CART, "put", 1)], if_tags=["x"])  # type: ignore[arg-type]


async def test_without_hash_tags_the_error_says_what_is_missing() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("k", partitions=8)
        await all_online(keyspace, "a")
        with pytest.raises(ConfigError, match="only a keyspace with hash_tags=True"):
            await keyspace.transaction([(CART, "put", 1), (ORDERS, "put", 1)])
        assert await keyspace.transaction([(CART, "put", 1), (CART, "add", 1)]) == [1, 2]


def test_a_key_of_another_partition_is_refused_at_the_door() -> None:
    placing = Placing(8)
    number = placing.partition_of("x")
    write = Write("w", 0, (Change("x", "put", 1),))
    ApplyRequest("k", 1, ((number, (write,)),)).check(1, placing)
    with pytest.raises(BodyError, match=f"key 'x' is in partition {number}, not"):
        ApplyRequest("k", 1, (((number + 1) % 8, (write,)),)).check(1, placing)
