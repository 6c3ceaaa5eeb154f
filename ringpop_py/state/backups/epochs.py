"""Checkpoints of a whole keyspace: made from any node, and kept for a while.

The acting node asks each partition's owner for a file, a few at a time, and puts the manifest when
all files are there. So each partition is as it was at one moment after the checkpoint was begun,
with everything acknowledged before; that moment differs from partition to partition. Two nodes that
make checkpoints at the same time make two. A node that fails leaves files that do not count, and
that are deleted later.
"""

from __future__ import annotations

import random
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import ConfigError, KeyspaceConflict, KeyspaceError, StateDamaged
from ringpop_py.base.logs import log
from ringpop_py.base.values.checksum import unwrap_message, wrap_message
from ringpop_py.base.values.declared import Natural, Text
from ringpop_py.state.catalog.catalog import Catalog
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.catalog.manifests import (
    EpochFile,
    Manifest,
    abandoned,
    all_keys,
    numbers_in,
    read_manifests,
)
from ringpop_py.state.durable.snapshots import SnapshotAsking
from ringpop_py.state.jobs.store import now_us
from ringpop_py.state.shares.dispatcher import Dispatcher
from ringpop_py.state.tasks import in_parallel

if TYPE_CHECKING:
    from ringpop_py.state.durable.host import DurableHost
    from ringpop_py.state.stores.store import Store

KEPT_COUNT: Final = 10
AT_ONCE: Final = 8
"""The most partitions that are asked at a time; the others wait."""
PARTITION_S: Final = 120.0
"""The time limit for one partition's file, in seconds, retries included."""
ABANDONED_AFTER_US: Final = 3_600_000_000
"""A checkpoint that is not complete this many microseconds after its beginning is abandoned."""


async def checkpoint_now(
    host: DurableHost, *, keep: int = KEPT_COUNT, timeout_s: float = PARTITION_S
) -> Manifest:
    """Make a checkpoint of the keyspace as a whole.

    Args:
        keep: how many of the newest are kept, including this one; older ones are deleted.
        timeout_s: the limit for each partition.

    Raises:
        ConfigError: if *keep* is not a whole number above 0.
        PartitionUnavailable: if a partition had no owner for *timeout_s*.
        KeyspaceUnknown: if the keyspace was dropped meanwhile.
        KeyspaceConflict: if this took so long that another node abandoned the checkpoint.
        StoreUnavailable: if the store fails; the checkpoint may have been made.
    """
    if type(keep) is not int or keep < 1:
        raise ConfigError(f"keep is a whole number above 0, not {keep!r}")
    catalog = Catalog(host.store, host.keys.cluster)
    number: int = await host.worker.run(_begin, catalog, host.keys, host.node.name)
    try:
        files = await _ask_owners(host, number, timeout_s)
    except BaseException:  # also if cancelled: its files must not wait for the next checkpoint
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
        now_us(),
    )
    key = host.keys.manifest(number)
    # An abandoned checkpoint has a manifest that says so, so only one of both can be put.
    if not await host.worker.run(host.store.put_if_absent, key, manifest.encode(key)):
        raise KeyspaceConflict(
            f"checkpoint {manifest.name} took so long that it was abandoned; make a new one"
        )
    log.info("checkpoint-of-the-whole", keyspace=manifest.keyspace, epoch=number)
    await _retire(host, catalog, keep)
    return manifest


def _begin(catalog: Catalog, keys: KeyspaceKeys, name: str) -> int:
    """Reserve and return the number of a new checkpoint."""
    known = [0]
    for each in all_keys(catalog, keys.name):
        known += numbers_in(catalog.store, each.begun)
        known += numbers_in(catalog.store, each.manifests)
    number = max(known) + 1
    # Another node may have taken the number since.
    while True:
        key = keys.begun_epoch(number)
        if catalog.store.put_if_absent(key, wrap_message([now_us(), name], key)):
            return number
        number += 1


async def _ask_owners(host: DurableHost, number: int, timeout_s: float) -> tuple[EpochFile, ...]:
    dispatcher = Dispatcher(host.node, host, random.Random(secrets.randbits(64)))
    asking = SnapshotAsking(host.snapshots, number)
    count = host.definition.partitions
    files: dict[int, EpochFile] = {}

    async def one(partition: int) -> None:
        deadline = trio.current_time() + timeout_s
        result = (await dispatcher.ask(asking, [partition], deadline))[partition]
        if isinstance(result, KeyspaceError):
            raise result
        assert isinstance(result, EpochFile)
        files[partition] = result

    await in_parallel(one, count, AT_ONCE)
    return tuple(files[partition] for partition in range(count))


# Checkpoints that are no longer needed.


async def _abandon(host: DurableHost, number: int) -> None:
    with suppress(KeyspaceError):  # the next checkpoint deletes it otherwise
        if await host.worker.run(_give_up, host.store, host.keys, number):
            await host.worker.run(_delete_files, host.store, host.keys, number)
    log.warning("checkpoint-abandoned", keyspace=host.definition.name, epoch=number)


async def _retire(host: DurableHost, catalog: Catalog, keep: int) -> None:
    """Delete old checkpoints. A failure does not harm the one just made."""
    try:
        await host.worker.run(_delete_old, catalog, host.definition.name, keep)
    except KeyspaceError as error:
        log.warning("checkpoints-not-deleted", keyspace=host.definition.name, text=str(error))


def _delete_old(catalog: Catalog, name: str, keep: int) -> None:
    store, complete = catalog.store, read_manifests(catalog, name)
    for manifest in complete[:-keep]:
        keys = KeyspaceKeys(catalog.cluster, name, manifest.generation)
        # Delete the manifest first. A restore from it that is under way misses a file, at worst,
        # and reports that. If we stop halfway, the rest does not look like a whole checkpoint.
        store.delete([keys.manifest(manifest.number)])
        _delete_files(store, keys, manifest.number)
    counts = {(manifest.generation, manifest.number) for manifest in complete}
    for keys in all_keys(catalog, name):
        for number in numbers_in(store, keys.begun):
            if (keys.generation, number) not in counts and _is_old(store, keys, number):
                _give_up(store, keys, number)
                key = keys.manifest(number)
                if store.get(key) == abandoned(key):  # or it was completed just now
                    _delete_files(store, keys, number)


def _is_old(store: Store, keys: KeyspaceKeys, number: int) -> bool:
    key = keys.begun_epoch(number)
    try:
        value = store.get(key) or b""
        begun_us: int = unwrap_message(tuple[Natural, Text], value, key, "time")[0]
    except StateDamaged:
        return True  # nothing else says when it was begun
    return now_us() - begun_us > ABANDONED_AFTER_US


def _give_up(store: Store, keys: KeyspaceKeys, number: int) -> bool:
    """Abandon that checkpoint; return whether it was incomplete, and now always will be."""
    key = keys.manifest(number)
    return store.put_if_absent(key, abandoned(key))


def _delete_files(store: Store, keys: KeyspaceKeys, number: int) -> None:
    store.delete([*store.list(keys.epoch_files(number)), keys.begun_epoch(number)])
