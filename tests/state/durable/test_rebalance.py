"""`ringpop_py.state.durable.rebalance`: moves by hand, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import (
    ConfigError,
    KeyspaceUnknown,
    NotEnoughMembers,
    RebalanceUnderWay,
)
from ringpop_py.state.durable.rebalance import rebalance, restore_assignment
from tests.state.keyspaces.clusters import Cluster, a_cluster, all_online

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.durable.host import DurableHost
    from ringpop_py.state.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time

GREEK = ("athens", "byzantium", "cyrene")


def host_of(node: Ringpop) -> DurableHost:
    return node.keyspaces.durable_host("greek")


async def the_example(cluster: Cluster) -> tuple[list[Ringpop], Keyspace]:
    """Athens, Byzantium and Cyrene with nine partitions, as in Fixed Partitions."""
    nodes = [await cluster.start(name) for name in GREEK]
    keyspace = await nodes[0].open_keyspace(
        "greek", partitions=9, strategy="average", automatic=False, min_cluster_size=3
    )
    await all_online(keyspace, *GREEK)
    return nodes, keyspace


async def with_ephesus(cluster: Cluster) -> tuple[list[Ringpop], Keyspace]:
    nodes, keyspace = await the_example(cluster)
    nodes.append(await cluster.start("ephesus"))
    await trio.sleep(5)
    return nodes, keyspace


async def test_a_new_member_gets_nothing_until_somebody_asks_and_then_its_share() -> None:
    """F12, F17."""
    async with a_cluster() as cluster:
        nodes, keyspace = await with_ephesus(cluster)
        await keyspace.update_many([(f"k{n}", "put", n) for n in range(90)])
        assert keyspace.table.counts() == dict.fromkeys(GREEK, 3)

        plan = await rebalance(host_of(nodes[3]))
        await all_online(keyspace, *GREEK, "ephesus")

        assert [move.target for move in plan.moves] == ["ephesus", "ephesus"]
        assert sorted(keyspace.table.counts().values()) == [2, 2, 2, 3]
        assert len(await keyspace.get_many(f"k{n}" for n in range(90))) == 90


async def test_a_dry_run_says_the_same_and_changes_nothing() -> None:
    """F12."""
    async with a_cluster() as cluster:
        nodes, keyspace = await with_ephesus(cluster)

        planned = await rebalance(host_of(nodes[1]), dry_run=True)
        await trio.sleep(5)
        counts = dict(keyspace.table.counts())
        done = await rebalance(host_of(nodes[1]))

        assert counts == dict.fromkeys(GREEK, 3)
        assert planned.moves == done.moves
        assert "dry run" in planned.lines()[-1]


async def test_no_more_moves_are_made_than_were_allowed() -> None:
    """F12."""
    async with a_cluster() as cluster:
        nodes, keyspace = await with_ephesus(cluster)

        plan = await rebalance(host_of(nodes[0]), max_moves=1)
        await all_online(keyspace, *GREEK, "ephesus")

        assert (len(plan.moves), plan.left_count) == (1, 1)
        assert keyspace.table.counts()["ephesus"] == 1


async def test_moves_begin_everywhere_without_waiting_for_the_next_look_at_the_store() -> None:
    async with a_cluster() as cluster:
        nodes, keyspace = await with_ephesus(cluster)

        await rebalance(host_of(nodes[0]))
        with trio.fail_after(0.3):
            await all_online(keyspace, *GREEK, "ephesus")

        assert host_of(nodes[3]).assignment_version == 2


async def test_a_member_without_the_store_has_another_record_the_first_assignment() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        for name in "bc":
            await cluster.start(name, has_store=False)
        await trio.sleep(5)
        assert node.placement.holders.lookup("keyspace/greek") != "a"

        keyspace = await node.open_keyspace("greek", partitions=9, automatic=False)

        with trio.fail_after(60):
            await all_online(keyspace, "a")


async def test_a_second_rebalance_is_refused_while_partitions_move() -> None:
    """F13."""
    async with a_cluster() as cluster:
        nodes, keyspace = await with_ephesus(cluster)
        await rebalance(host_of(nodes[0]), max_moves=1)

        with pytest.raises(RebalanceUnderWay, match="partitions are still moving"):
            await rebalance(host_of(nodes[2]))

        await all_online(keyspace, *GREEK, "ephesus")
        assert (await rebalance(host_of(nodes[2]))).moves


async def test_of_two_at_once_one_is_refused() -> None:
    """F13."""
    async with a_cluster() as cluster:
        nodes, keyspace = await with_ephesus(cluster)
        outcomes: list[object] = []

        async def one(node: Ringpop) -> None:
            try:
                outcomes.append(len((await rebalance(host_of(node))).moves))
            except RebalanceUnderWay as error:
                outcomes.append(type(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, nodes[0])
            nursery.start_soon(one, nodes[3])
        await all_online(keyspace, *GREEK, "ephesus")

        assert set(outcomes) == {2, RebalanceUnderWay}


async def test_nothing_is_rebalanced_before_the_first_assignment() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("athens")
        await node.open_keyspace("greek", partitions=9, strategy="average", min_cluster_size=3)

        with pytest.raises(NotEnoughMembers, match="1 of the 3 members"):
            await rebalance(host_of(node))


async def test_recoveries_of_a_member_that_is_gone_keep_what_they_got_when_it_is_back() -> None:
    """F16."""
    async with a_cluster() as cluster:
        _, keyspace = await the_example(cluster)
        await cluster.stop("cyrene")
        await all_online(keyspace, "athens", "byzantium")
        await trio.sleep(5)
        before = keyspace.table.owners()

        back = await cluster.start("cyrene")
        await trio.sleep(10)

        assert keyspace.table.owners() == before
        assert len((await rebalance(host_of(back), dry_run=True)).moves) == 3


async def test_an_earlier_assignment_can_be_had_again() -> None:
    async with a_cluster() as cluster:
        nodes, keyspace = await with_ephesus(cluster)
        before = keyspace.table.owners()
        await rebalance(host_of(nodes[0]))
        await all_online(keyspace, *GREEK, "ephesus")

        plan = await restore_assignment(host_of(nodes[2]), 1)
        await all_online(keyspace, *GREEK)

        assert keyspace.table.owners() == before
        assert "version 3" in plan.note
        with pytest.raises(KeyspaceUnknown, match="the newest is 3"):
            await restore_assignment(host_of(nodes[2]), 7)


async def test_where_partitions_move_by_themselves_there_is_nothing_to_do() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("athens")
        keyspace = await node.open_keyspace("greek", partitions=8)
        await all_online(keyspace, "athens")

        plan = await rebalance(host_of(node))

        assert plan.moves == ()
        assert "move automatically" in plan.lines()[-1]
        with pytest.raises(ConfigError, match="move automatically"):
            await restore_assignment(host_of(node), 1)


@pytest.mark.parametrize("max_moves", [-1, 1.5, True])
async def test_a_number_of_moves_that_is_none_is_refused(max_moves: int) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("athens")
        await node.open_keyspace("greek", partitions=8)

        with pytest.raises(ConfigError, match="max_moves"):
            await rebalance(host_of(node), max_moves=max_moves)
