"""A store that the first version wrote is read, written, checkpointed and read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.errors import OperationIdReused, StateDamaged
from ringpop_py.journal.codec import decode_claim
from ringpop_py.slotlog.records import decode_record
from ringpop_py.stores.layout import slot_in
from ringpop_py.values.operations import Outcome, Write
from tests.jobs.jobs_staged import jobs_of
from tests.keyspaces.clusters import a_cluster, all_online
from tests.keyspaces.first_version import (
    APPLIED_JOB,
    CONTENTS,
    DECIDED_JOB,
    DECIDED_ROWS,
    NAME,
    RESTORED,
    RESTORED_NAME,
    WRITES,
    first_version_store,
)

if TYPE_CHECKING:
    from ringpop_py.keyspaces.keyspace import Keyspace
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.values.operations import Value

pytestmark = pytest.mark.virtual_time


async def opened(node: Ringpop, name: str = NAME) -> Keyspace:
    keyspace = await node.open_keyspace(name)
    await all_online(keyspace, node.name)
    return keyspace


async def contents(keyspace: Keyspace) -> dict[str, Value]:
    return {key: value async for key, value in keyspace.scan()}


async def checkpoint(node: Ringpop) -> None:
    host = node.keyspaces.durable_host(NAME)
    for partition in host.driver.online():
        if partition.behind:
            assert await host.checkpointer.write(partition) is not None
            while partition.checkpointing:
                await trio.sleep(0.01)


async def test_all_of_its_keys_are_read() -> None:
    async with a_cluster(first_version_store()) as cluster:
        node = await cluster.start("x")

        assert await contents(await opened(node)) == CONTENTS
        assert await contents(await opened(node, RESTORED_NAME)) == RESTORED


async def test_what_took_effect_in_it_does_not_do_so_again() -> None:
    async with a_cluster(first_version_store()) as cluster:
        keyspace = await opened(await cluster.start("x"))

        for written in WRITES:
            number = keyspace.partition_of(written.key)
            write = Write(*written.id, (written.change,))
            ((outcome,),) = (await keyspace.write({number: [write]})).values()
            assert isinstance(outcome, Outcome), outcome
            assert outcome.repeated, written

        assert await contents(keyspace) == CONTENTS


async def test_of_its_ids_it_is_not_known_what_they_stood_for() -> None:
    async with a_cluster(first_version_store()) as cluster:
        keyspace = await opened(await cluster.start("x"))
        written = WRITES[0]

        (known,) = await keyspace.update_many(
            [(written.key, "put", "something else")], operation_id=written.id
        )
        await keyspace.put(written.key, CONTENTS[written.key], operation_id="new")
        (new,) = await keyspace.update_many(
            [(written.key, "put", "something else")], operation_id="new"
        )

        assert isinstance(known, Outcome)
        assert known.repeated
        assert isinstance(new, OperationIdReused)
        assert await contents(keyspace) == CONTENTS


async def test_its_checkpoints_are_named_so_that_it_is_noticed_if_one_is_lost() -> None:
    """The first version knew no marks: without one, a lost checkpoint can look like no keys."""
    store = first_version_store()
    async with a_cluster(store) as cluster:
        node = await cluster.start("x")
        await opened(node)
        await opened(node, RESTORED_NAME)
    checkpoints = [key for key in store.list("") if "/p/" in key and "/ck/" in key]
    newest = {key.rsplit("/ck/")[0]: slot_in(key) for key in checkpoints}

    for partition, slot in newest.items():
        claims = [key for key in store.list(f"{partition}/s/") if key.endswith("/0000000000")]
        claim = decode_claim(store.get(claims[-1]) or b"", claims[-1])
        assert claim.base == slot
    assert len(newest) == 10


async def test_a_node_of_the_first_version_is_told_to_be_upgraded() -> None:
    """What it finds where it looks for the next claim, read as it reads it."""
    store = first_version_store()
    async with a_cluster(store) as cluster:
        node = await cluster.start("x")
        await opened(node)
        await opened(node, RESTORED_NAME)
    claims = [key for key in store.list("") if "/p/" in key and key.endswith("/0000000000")]
    # Nobody takes over a generation that was dropped.
    newest = {
        key.rsplit("/s/")[0]: key
        for key in claims
        if "/s/" in key and f"/{RESTORED_NAME}/000001/" not in key
    }

    for key in newest.values():
        with pytest.raises(StateDamaged, match=r"newer version; .*upgrade this node"):
            decode_record(store.get(key) or b"", key)
    assert len(newest) == 10


async def test_what_the_first_version_would_delete_is_deleted_and_its_seals_stay() -> None:
    store = first_version_store()
    async with a_cluster(store) as cluster:
        await opened(await cluster.start("x"))
    left = [key for key in store.list("") if f"/{NAME}/" in key and "/s/" in key]
    slots = [slot for slot in map(slot_in, left) if slot is not None and slot.sequence]
    kinds = {decode_record(store.get(key) or b"", key).__class__.__name__
             for key in left if (slot := slot_in(key)) is not None and slot.sequence}  # fmt: skip

    assert slots
    assert kinds == {"Seal"}


async def test_its_jobs_go_on_where_they_were() -> None:
    async with a_cluster(first_version_store()) as cluster:
        node = await cluster.start("x")
        keyspace = await opened(node)

        again = await jobs_of(node).settle(APPLIED_JOB)
        progress = await jobs_of(node).settle(DECIDED_JOB)

        assert again.applied
        assert progress.applied
        assert await contents(keyspace) == CONTENTS | DECIDED_ROWS


async def test_it_goes_on_with_new_writes_checkpoints_moves_and_restarts() -> None:
    store = first_version_store()
    new: dict[str, Value] = {f"new-{n}": n for n in range(40)}
    newer: dict[str, Value] = {f"new-{n}": -n for n in range(0, 40, 3)}
    async with a_cluster(store) as cluster:
        node = await cluster.start("x")
        keyspace = await opened(node)
        await keyspace.update_many([(key, "put", value) for key, value in new.items()])
        await checkpoint(node)
        await keyspace.update_many([(key, "put", value) for key, value in newer.items()])
        await checkpoint(node)
        await keyspace.update("counter", "add", 1)
        async with cluster.for_a_while("y"):
            await all_online(keyspace, "x", "y")
            await keyspace.update("counter", "add", 1)

    async with a_cluster(store) as cluster:
        found = await contents(await opened(await cluster.start("z")))

    assert found == CONTENTS | new | newer | {"counter": 52}
