"""A pipeline's keyspace, at real nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_demo.cluster import Cluster, free_addresses
from ringpop_py import Config, open_ringpop
from ringpop_py.base.errors import ConnectFailed, KeyspaceConflict, KeyspaceError, KeyspaceUnknown
from ringpop_py.spark.options import Target
from ringpop_py.spark.pipeline import target as targets
from ringpop_py.spark.pipeline.settings import KeyspaceSettings
from ringpop_py.spark.pipeline.target import PipelineTarget
from ringpop_py.state.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes with a store."""
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, 2, store=folder / "store") as started:
        yield started


def a_target(
    cluster: Cluster, name: str, *, create: bool = True, **settings: object
) -> PipelineTarget:
    """The keyspace *name* as a pipeline's file describes it."""
    keyspace = KeyspaceSettings(name, create=create, settings=settings)
    return PipelineTarget(Target(name, tuple(cluster.addresses)), keyspace)


def test_a_keyspace_is_made_once_and_then_found(cluster: Cluster) -> None:
    target = a_target(cluster, "made", partitions=8)

    assert target.prepare()
    assert not target.prepare()
    assert not a_target(cluster, "made", create=False).prepare()
    assert len(target.ownership().owners) == 8


def test_a_keyspace_that_is_not_to_be_made_is_missed(cluster: Cluster) -> None:
    target = a_target(cluster, "missing", create=False)

    with pytest.raises(KeyspaceUnknown, match="there is no keyspace 'missing': create it"):
        target.prepare()


def test_other_settings_than_those_it_was_made_with_are_a_conflict(cluster: Cluster) -> None:
    a_target(cluster, "eight", partitions=8).prepare()
    target = a_target(cluster, "eight", partitions=9)

    with pytest.raises(KeyspaceConflict, match="'eight' is there and has partitions 8, not 9"):
        target.prepare()


def test_a_file_that_says_what_held_before_an_admin_changed_it_is_no_conflict(
    cluster: Cluster,
) -> None:
    target = a_target(cluster, "three", partitions=8, min_cluster_size=1)
    target.prepare()
    body = {"name": "three", "min_cluster_size": 2}
    target._ask("/admin/keyspaces/set", body)

    assert not target.prepare()
    with pytest.raises(KeyspaceConflict, match="has partitions 8, not 9"):
        a_target(cluster, "three", partitions=9, min_cluster_size=1).prepare()


def test_a_refusal_of_the_daemons_is_reported_in_their_words(cluster: Cluster) -> None:
    target = a_target(cluster, "odd", strategy="nonsense")

    with pytest.raises(KeyspaceError, match="no strategy is called 'nonsense'"):
        target.prepare()


def test_owners_of_a_keyspace_that_is_not_there_yet_are_those_that_it_will_have(
    cluster: Cluster,
) -> None:
    target = a_target(cluster, "later", partitions=8)

    planned = target.ownership()
    target.prepare()

    assert planned.planned
    assert planned.partitions == {"node-1": 4, "node-2": 4}
    cluster.wait_all(lambda _: target.ownership().owners == planned.owners, 10, what="serve it")
    assert target.ownership(with_keys=True).keys == {"node-1": 0, "node-2": 0}


def test_where_no_daemon_answers_each_is_named(cluster: Cluster) -> None:
    silent = free_addresses(2)
    keyspace = KeyspaceSettings("made", create=True, settings={})

    with pytest.raises(ConnectFailed, match=f"(?s)no daemon answers: .*{silent[0]}.*{silent[1]}"):
        PipelineTarget(Target("made", tuple(silent)), keyspace).prepare()

    PipelineTarget(Target("made", (*silent, *cluster.addresses)), keyspace).ownership()


def test_where_only_the_daemon_can_be_reached_no_member_is_asked(cluster: Cluster) -> None:
    keyspace = KeyspaceSettings("through", create=True, settings={"partitions": 8})
    target = PipelineTarget(Target("through", (cluster.addresses[0],), direct=False), keyspace)
    target.prepare()

    ownership = target.ownership(with_keys=True)

    assert ownership.partitions == {"node-1": 4, "node-2": 4}
    assert ownership.keys == {"node-1": 0}


async def test_where_only_the_daemon_can_be_reached_members_do_not_stand_in_for_it() -> None:
    store = MemoryStore()
    keyspace = KeyspaceSettings("k", create=True, settings={"partitions": 4})
    async with open_ringpop(Config(name="a", store="memory:"), store=store) as first:
        second = Config(name="b", hosts=(first.address,), store="memory:")
        async with open_ringpop(second, store=store) as daemon:
            target = PipelineTarget(Target("k", (str(daemon.address),), direct=False), keyspace)
            with trio.fail_after(20):
                await trio.to_thread.run_sync(target.prepare)

        with pytest.raises(ConnectFailed) as caught:
            await trio.to_thread.run_sync(target.ownership)

    assert str(daemon.address) in str(caught.value)
    assert str(first.address) not in str(caught.value)


def test_to_ask_all_members_for_their_keys_takes_no_longer_than_it_may(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried = a_target(cluster, "hurried", partitions=8)
    hurried.prepare()
    monkeypatch.setattr(targets, "KEYS_S_MAX", 0.0)

    assert hurried.ownership(with_keys=True).keys == {}
