"""Leaders whose writes carry their terms, in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from ringpop_py.base.errors import BadOperation, ConfigError, StaleTerm
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time


class Term(NamedTuple):
    name: str
    term: int


@pytest.fixture
async def nodes() -> AsyncIterator[tuple[Ringpop, Ringpop]]:
    async with a_cluster() as cluster:
        yield await cluster.start("a"), await cluster.start("b")


@pytest.fixture
async def keyspace(nodes: tuple[Ringpop, Ringpop]) -> Keyspace:
    found = await nodes[0].open_keyspace("k", partitions=8, hash_tags=True)
    await all_online(found, "a", "b")
    return found


async def test_a_former_leader_is_refused_wherever_the_next_one_has_written(
    nodes: tuple[Ringpop, Ringpop], keyspace: Keyspace
) -> None:
    async with nodes[0].leader("m") as former:
        await keyspace.put("x", 1, fence=former)
    async with nodes[1].leader("m") as lead:
        assert lead.term == former.term + 1
        await keyspace.put("y", 1, fence=former)  # nobody has told that partition
        await keyspace.update("x", "add", 1, fence=lead)
        with pytest.raises(StaleTerm, match="term 1 of 'm' is over") as caught:
            await keyspace.put("x", 0, fence=former)
        assert caught.value.term == lead.term
        with pytest.raises(StaleTerm):
            await keyspace.transaction([("x", "delete", None)], fence=former)
        (outcome,) = await keyspace.update_many([("x", "delete", None)], fence=former)
        assert isinstance(outcome, StaleTerm)
    assert await keyspace.get("x") == 2


async def test_an_announced_term_ends_the_writes_of_earlier_ones(keyspace: Keyspace) -> None:
    await keyspace.announce(Term("m", 5), ["x"])
    with pytest.raises(StaleTerm):
        await keyspace.put("x", 1, fence=Term("m", 4))
    other = next(
        key for key in "abcdefgh" if keyspace.partition_of(key) != keyspace.partition_of("x")
    )
    await keyspace.put(other, 1, fence=Term("m", 4))
    await keyspace.announce(Term("m", 5))
    with pytest.raises(StaleTerm):
        await keyspace.put(other, 2, fence=Term("m", 4))
    with pytest.raises(StaleTerm):
        await keyspace.announce(Term("m", 4))


async def test_what_is_no_fence_is_refused(
    nodes: tuple[Ringpop, Ringpop], keyspace: Keyspace
) -> None:
    with pytest.raises(BadOperation, match="a term is a whole number from 1"):
        await keyspace.put("x", 1, fence=Term("m", 0))
    with pytest.raises(ConfigError, match="the name of a fence"):
        await keyspace.put("x", 1, fence=Term(1, 1))  # type: ignore[arg-type]
    with pytest.raises(BadOperation, match="kept for fences"):
        await keyspace.update_many([("x", "put", 1)], offsets={"fence:m": 1})
    in_memory = await nodes[0].open_keyspace("m", partitions=2, mode="memory")
    await all_online(in_memory, "a", "b")
    with pytest.raises(BadOperation, match="in memory mode"):
        await in_memory.put("x", 1, fence=Term("m", 1))
