"""Checkpoints of a keyspace as a whole: made from any node, and kept for a while.

The node that acts asks each partition's owner for a file, a few at a time, and puts the manifest
when all are there. So each partition is as it was at one moment after the checkpoint was begun,
with all that was acknowledged before; there is no one moment for all of them. Two who make
checkpoints at once make two. Who fails leaves files that do not count, and that are deleted later.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.catalog.catalog import Catalog
from ringpop_py.catalog.manifests import (
    ABANDONED,
    EpochFile,
    Manifest,
    all_keys,
    numbers_in,
    read_manifests,
)
from ringpop_py.errors import BodyError, ConfigError, KeyspaceConflict, KeyspaceError
from ringpop_py.logs import log
from ringpop_py.shares.snapshots import SnapshotAsking
from ringpop_py.steward.router import Router
from ringpop_py.stores.layout import KeyspaceKeys
from ringpop_py.values.packed import a_row, an_integer, decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.shares.durable_host import DurableHost
    from ringpop_py.stores.store import Store

    Progress = Callable[[int, int], None]

KEPT_COUNT: Final = 10
AT_ONCE: Final = 8
"""Partitions that are asked for at a time."""
PARTITION_S: Final = 120.0
"""For one partition's file, retries included."""
ABANDONED_AFTER_US: Final = 3_600_000_000
"""What was begun so long ago and is not complete will not be."""


async def checkpoint_now(
    host: DurableHost,
    *,
    keep: int = KEPT_COUNT,
    progress: Progress | None = None,
    timeout_s: float = PARTITION_S,
) -> Manifest:
    """Make a checkpoint of the keyspace as a whole.

    Args:
        keep: so many of the newest are kept, this one among them; older ones are deleted.
        progress: told how many partitions of how many are done.
        timeout_s: for each partition.

    Raises:
        ConfigError: *keep* is no number above 0.
        PartitionUnavailable: a partition has no owner, and had none for *timeout_s*.
        KeyspaceUnknown: the keyspace was dropped meanwhile.
        KeyspaceConflict: this took so long that others gave it up.
        StoreUnavailable: perhaps it was made.
    """
    if type(keep) is not int or keep < 1:
        message = f"keep is a whole number above 0, not {keep!r}"
        raise ConfigError(message)
    catalog = Catalog(host.store, host.keys.cluster)
    number: int = await host.worker.run(_begin, catalog, host.keys, host.node.name)
    try:
        files = await _ask_owners(host, number, progress, timeout_s)
    except BaseException:
        with trio.move_on_after(timeout_s, shield=True):
            await _abandon(host, number)
        raise
    manifest = Manifest(
        host.definition.name,
        host.generation,
        number,
        files,
        tuple(host.members()),
        host.node.name,
        _now_us(),
    )
    key = host.keys.manifest(number)
    if not await host.worker.run(host.store.put_if_absent, key, manifest.encode()):
        message = f"checkpoint {manifest.name} took so long that it was given up"
        raise KeyspaceConflict(message)
    log.info("checkpoint-of-the-whole", keyspace=manifest.keyspace, epoch=number)
    await _retire(host, catalog, keep)
    return manifest


async def list_checkpoints(host: DurableHost) -> list[Manifest]:
    """The complete checkpoints, of earlier generations, too; the oldest first.

    Raises:
        StateDamaged: one of them cannot be read.
        StoreUnavailable: the store did not answer.
    """
    catalog = Catalog(host.store, host.keys.cluster)
    return await host.worker.run(read_manifests, catalog, host.definition.name)


async def latest_checkpoint(host: DurableHost) -> Manifest | None:
    """The newest of `list_checkpoints`. There is no pointer to it that could be wrong."""
    found = await list_checkpoints(host)
    return found[-1] if found else None


def _begin(catalog: Catalog, keys: KeyspaceKeys, name: str) -> int:
    """The number of a new checkpoint, which nobody else has."""
    value = encode_value("msgpack", [_now_us(), name])
    known = [0]
    for each in all_keys(catalog, keys.name):
        known += numbers_in(catalog.store, each.begun)
        known += numbers_in(catalog.store, each.manifests)
    number = max(known) + 1
    while not catalog.store.put_if_absent(keys.begun_epoch(number), value):
        number += 1
    return number


async def _ask_owners(
    host: DurableHost, number: int, progress: Progress | None, timeout_s: float
) -> tuple[EpochFile, ...]:
    router = Router(host.node, host, random.Random(secrets.randbits(64)))
    asking = SnapshotAsking(host.snapshots, number)
    limiter = trio.CapacityLimiter(AT_ONCE)
    count = host.definition.partitions
    files: dict[int, EpochFile] = {}
    failed: list[KeyspaceError] = []

    async def one(partition: int) -> None:
        async with limiter:
            if failed:
                return
            deadline = trio.current_time() + timeout_s
            result = (await router.ask(asking, [partition], deadline))[partition]
        if isinstance(result, KeyspaceError):
            failed.append(result)
            return
        assert isinstance(result, EpochFile)
        files[partition] = result
        if progress is not None:
            progress(len(files), count)

    async with trio.open_nursery() as nursery:
        for partition in range(count):
            nursery.start_soon(one, partition)
    if failed:
        raise failed[0]
    return tuple(files[partition] for partition in range(count))


# What is not wanted any more.


async def _abandon(host: DurableHost, number: int) -> None:
    try:
        if await host.worker.run(_give_up, host.store, host.keys, number):
            await host.worker.run(_delete_files, host.store, host.keys, number)
    except KeyspaceError:
        pass  # somebody will, later
    log.warning("checkpoint-abandoned", keyspace=host.definition.name, epoch=number)


async def _retire(host: DurableHost, catalog: Catalog, keep: int) -> None:
    """Delete what is too old. That it fails is no harm to what was just made."""
    try:
        await host.worker.run(_delete_old, catalog, host.definition.name, keep)
    except KeyspaceError as error:
        log.warning("checkpoints-not-deleted", keyspace=host.definition.name, text=str(error))


def _delete_old(catalog: Catalog, name: str, keep: int) -> None:
    store, complete = catalog.store, read_manifests(catalog, name)
    for manifest in complete[:-keep]:
        keys = KeyspaceKeys(catalog.cluster, name, manifest.generation)
        # First what makes it count: who restores from it meanwhile misses a file, at worst, and
        # says so; and if we stop halfway nobody takes it for a whole one.
        store.delete([keys.manifest(manifest.number)])
        _delete_files(store, keys, manifest.number)
    counts = {(manifest.generation, manifest.number) for manifest in complete}
    for keys in all_keys(catalog, name):
        for number in numbers_in(store, keys.begun):
            if (keys.generation, number) not in counts and _is_old(store, keys, number):
                _give_up(store, keys, number)
                if store.get(keys.manifest(number)) == ABANDONED:
                    _delete_files(store, keys, number)


def _now_us() -> int:
    return time.time_ns() // 1_000


def _is_old(store: Store, keys: KeyspaceKeys, number: int) -> bool:
    value = store.get(keys.begun_epoch(number))
    try:
        begun_us = an_integer(a_row(decode_value("msgpack", value or b""), 2, "begun")[0], "time")
    except BodyError:
        return True
    return _now_us() - begun_us > ABANDONED_AFTER_US


def _give_up(store: Store, keys: KeyspaceKeys, number: int) -> bool:
    """Whether that checkpoint was not complete, and now never will be."""
    return store.put_if_absent(keys.manifest(number), ABANDONED)


def _delete_files(store: Store, keys: KeyspaceKeys, number: int) -> None:
    store.delete([*store.list(keys.epoch_files(number)), keys.begun_epoch(number)])
