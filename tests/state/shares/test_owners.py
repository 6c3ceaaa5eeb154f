"""handle_or_proxy by a keyspace, on clusters in one process and virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import Request
from ringpop_py.base.errors import NoOwner, Refused
from ringpop_py.base.values.declared import replace
from ringpop_py.route.proxy.request import Reply
from ringpop_py.state.shares.owners import KeyspaceOwners
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.head import Head
    from ringpop_py.route.proxy.request import AppCall
    from ringpop_py.state.placement.table import PartitionOwners


pytestmark = pytest.mark.virtual_time


def serve_name(node: Ringpop) -> None:
    @node.handler("/who")
    def who(_call: AppCall) -> bytes:
        return node.name.encode()


async def test_a_request_goes_to_where_the_state_of_its_key_is() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        serve_name(b)
        keyspace = await a.open_keyspace("carts", partitions=16)
        await all_online(keyspace, "a", "b")

        here = await keyspace.handle_or_proxy(key_at(keyspace, "a"), Request("/who"))
        there = await keyspace.handle_or_proxy(key_at(keyspace, "b"), Request("/who"))

        assert here is None
        assert there == Reply(b"b", "b")


async def test_proxy_calls_the_own_handler_too() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        serve_name(a)
        keyspace = await a.open_keyspace("carts", partitions=4)

        assert await keyspace.proxy("k", Request("/who")) == Reply(b"a", "a")


async def test_a_request_for_a_partition_that_is_on_its_way_waits_for_it() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("carts", partitions=4)
        owner_before = keyspace.table[keyspace.partition_of("k")].owner

        reply = await keyspace.handle_or_proxy("k", Request("/who"))

        assert owner_before == ""
        assert reply is None
        assert keyspace.table[keyspace.partition_of("k")].owner == "a"


async def test_without_anybody_to_serve_it_there_is_no_owner() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("carts", partitions=4, min_cluster_size=2)

        with pytest.raises(NoOwner, match="1 of the 2 members"):
            await keyspace.handle_or_proxy("k", Request("/who"))


class _Mistaken(KeyspaceOwners):
    """Takes b for the owner of everything."""

    def destination(self, _key: str) -> str:
        return "b"


async def test_a_receiver_refuses_a_partition_that_it_does_not_serve() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        serve_name(b)
        keyspace = await a.open_keyspace("carts", partitions=16)
        await all_online(keyspace, "a", "b")
        host = a.keyspaces.here("carts").host

        with pytest.raises(Refused, match="b does not serve partition"):
            await a.proxying.handle_or_proxy(
                key_at(keyspace, "a"), Request("/who"), owners=_Mistaken(a, host), max_retries=0
            )
        assert b.proxying.counts.refused_keys == 1


class _Ahead(KeyspaceOwners):
    """Has heard of epochs that nobody else has."""

    def head(self, keys: tuple[str, ...]) -> Head:
        head = super().head(keys)
        assert head.keyspace is not None
        return replace(head, keyspace=replace(head.keyspace, epochs=(1_000,)))


async def test_a_receiver_that_was_superseded_without_knowing_it_refuses() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        serve_name(b)
        keyspace = await a.open_keyspace("carts", partitions=16)
        await all_online(keyspace, "a", "b")
        ahead = _Ahead(a, a.keyspaces.here("carts").host)

        with pytest.raises(Refused, match="b does not serve partition"):
            await a.proxying.handle_or_proxy(
                key_at(keyspace, "b"), Request("/who"), owners=ahead, max_retries=0
            )


async def test_a_receiver_without_the_keyspace_refuses() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("carts", partitions=16)
        await all_online(keyspace, "a", "b")
        serve_name(b)
        b.proxying.owners_of_keyspace = lambda _name: None

        with pytest.raises(Refused, match="no part in keyspace 'carts'"):
            await keyspace.proxy(key_at(keyspace, "b"), Request("/who"), max_retries=0)


async def test_who_waits_for_other_owners_hears_of_a_move_and_of_the_end_of_the_node() -> None:
    async with trio.open_nursery() as nursery, a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a")
        alone = await keyspace.partition_owners()
        found: list[PartitionOwners] = []

        async def wait(after: int) -> None:
            found.append(await keyspace.partition_owners(after=after, timeout_s=50))

        nursery.start_soon(wait, alone.epoch)
        await cluster.start("b")
        await all_online(keyspace, "a", "b")
        await cluster.stop("b")
        await all_online(keyspace, "a")
        last = await keyspace.partition_owners()
        nursery.start_soon(wait, last.epoch)
        await trio.sleep(1)
        began_at = trio.current_time()
        await cluster.stop("a")

        assert trio.current_time() - began_at < 10
        assert alone.of("a") == [0, 1, 2, 3]
        assert [alone.epoch < found[0].epoch < last.epoch, found[1].epoch] == [True, last.epoch]
