"""Restores a keyspace from a checkpoint of the whole, or from its state when it was dropped.

Either way it becomes a new generation, whose partitions begin with a checkpoint at `ORIGIN`. The
order of steps makes it safe. The generation's number is taken, and all its data are put. Then the
generation before is ended (`fence.py`). Last, the new one is marked as complete, which makes it
count. If the restore is interrupted before the old generation has ended, that one stays in use. If
it is interrupted later, the keyspace is dropped until it is restored again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import trio

from ringpop_py.base.errors import (
    ConfigError,
    KeyspaceConflict,
    KeyspaceError,
    KeyspaceUnknown,
    StateDamaged,
)
from ringpop_py.base.logs import log
from ringpop_py.base.values.packed import encode_value
from ringpop_py.net.security.permits import check_name
from ringpop_py.state.catalog.assignments import read_newest, record
from ringpop_py.state.catalog.fence import fence_at_once, take_whole
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.catalog.manifests import find_manifest
from ringpop_py.state.journal.records import ORIGIN
from ringpop_py.state.placement.assignment import Assignment
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from ringpop_py.state.tasks import in_parallel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.catalog.catalog import Catalog, CatalogEntry
    from ringpop_py.state.catalog.manifests import Manifest
    from ringpop_py.state.keyspaces.registry import Keyspaces
    from ringpop_py.state.placement.definition import Definition
    from ringpop_py.state.stores.store import Store
    from ringpop_py.state.table.keyed import Snapshot
    from ringpop_py.state.tasks import Worker

    Source = Callable[[int], Snapshot]
    """Returns the state with which a partition begins. Blocking."""

AT_ONCE: Final = 4
CLEAN_UP_S: Final = 5.0


async def restore(
    keyspaces: Keyspaces,
    name: str,
    number: int | Literal["latest"] = "latest",
    *,
    into: str | None = None,
) -> CatalogEntry:
    """Restore the keyspace *name* from a checkpoint of the whole.

    The number of partitions stays; the number of nodes does not matter. Writes after the checkpoint
    are gone, and their ids are no longer known. `Keyspace` objects that were opened before refuse
    all calls: open the keyspace again.

    Args:
        number: of the checkpoint, which may be older than a drop of the keyspace.
        into: the name of another keyspace, which is created. By default it is *name* itself, whose
            present generation ends (`bring_back` undoes that).

    Raises:
        KeyspaceUnknown: if there is no such checkpoint.
        KeyspaceConflict: if *into* exists, or another node recreated this keyspace meanwhile.
        ConfigError: if *number* or *into* cannot be used.
        StateDamaged: if a file of the checkpoint is gone or cannot be read. Nothing was changed.
        StoreUnavailable: if the store fails. Nothing was changed; or the keyspace is dropped, and
            has to be restored again; or the restore has taken effect.
    """
    if number != "latest" and (type(number) is not int or number < 1):
        raise ConfigError(f"a checkpoint is 'latest' or a number above 0, not {number!r}")
    catalog, worker = keyspaces.durable(name)
    wanted = None if number == "latest" else number
    manifest: Manifest = await worker.run(find_manifest, catalog, name, wanted)
    entries: list[CatalogEntry] = await worker.run(catalog.generations, name)
    definition = next(e for e in entries if e.generation == manifest.generation).definition
    if [file.partition for file in manifest.files] != list(range(definition.partitions)):
        raise StateDamaged(f"the manifest of {manifest.name} does not have all partitions")
    origin = f"restored from {manifest.name} of generation {manifest.generation} of {name!r}"
    making = _Making(keyspaces, catalog, worker)
    source = partial(_from_checkpoint, catalog, manifest)
    wanted_name = name if into is None else into
    if wanted_name != name:
        check_name(wanted_name)
    definition = replace(definition, name=wanted_name).revised_as(entries[-1].definition)
    return await making.make(definition, origin, source, ends_old=wanted_name == name)


async def bring_back(
    keyspaces: Keyspaces, name: str, generation: int | None = None
) -> CatalogEntry:
    """Undo a drop or a restore in place: restore *name* as it was when that generation ended.

    Args:
        generation: the generation to restore; by default the newest, if that was dropped.

    Raises:
        KeyspaceUnknown: if there is no such keyspace or generation.
        KeyspaceConflict: if it was not dropped, or another node recreated it meanwhile.
        StateDamaged: if not all of its state can be read. Nothing was changed.
        StoreUnavailable: as in `restore`.
    """
    catalog, worker = keyspaces.durable(name)
    entries: list[CatalogEntry] = await worker.run(catalog.generations, name)
    wanted = [e for e in entries if generation in (None, e.generation)]
    if not wanted:
        which = "" if generation is None else f" of generation {generation}"
        raise KeyspaceUnknown(f"no keyspace {name!r}{which} in cluster {catalog.cluster!r}")
    old = wanted[-1]
    if not old.dropped:
        ended = [entry.generation for entry in entries if entry.dropped]
        hint = f"; to undo a restore, name the one before it: {ended[-1]}" if ended else ""
        text = f"generation {old.generation} of keyspace {name!r} was not dropped{hint}"
        raise KeyspaceConflict(text)
    origin = f"brought back from generation {old.generation} of {name!r}"
    making = _Making(keyspaces, catalog, worker)
    source = partial(_from_log, catalog.store, catalog.keys_of(old))
    definition = old.definition.revised_as(entries[-1].definition)
    return await making.make(definition, origin, source, ends_old=True)


def _from_checkpoint(catalog: Catalog, manifest: Manifest, partition: int) -> Snapshot:
    from ringpop_py.state.catalog.checkpoints import (  # noqa: PLC0415 - pyarrow takes 60 MB
        decode_checkpoint,
    )

    keys = KeyspaceKeys(catalog.cluster, manifest.keyspace, manifest.generation)
    key = keys.epoch_file(manifest.number, partition)
    file = catalog.store.get(key)
    if file is None:
        raise StateDamaged(f"{key} is gone: {manifest.name} is too old, and is being deleted")
    found = decode_checkpoint(file)
    says = (found.keyspace, found.generation, found.partition, found.slot)
    slot = manifest.files[partition].slot
    if says != (manifest.keyspace, manifest.generation, partition, slot) or found.builds_on:
        raise StateDamaged(f"{key} holds a different checkpoint; restore the object")
    return found.snapshot


def _from_log(store: Store, keys: KeyspaceKeys, partition: int) -> Snapshot:
    state = KeyedState(partial(encode_value, "msgpack"), Aggregations())
    take_whole(store, keys, partition, state)
    return state.whole()


@dataclass(frozen=True, slots=True)
class _Making:
    """Makes one generation."""

    keyspaces: Keyspaces
    catalog: Catalog
    worker: Worker

    async def make(
        self, definition: Definition, origin: str, source: Source, *, ends_old: bool
    ) -> CatalogEntry:
        """Make and return the new generation, which is served from now on."""
        name = definition.name
        if not ends_old:
            await self._refuse_if_there(name)
        target: CatalogEntry = await self.worker.run(self.catalog.reserve, definition, origin)
        try:
            if not ends_old:  # now no node can create it, but one may have done so just before
                await self._refuse_if_there(name)
            put = partial(self._put_state, target, source)
            await in_parallel(
                lambda number: self.worker.run(put, number), target.definition.partitions, AT_ONCE
            )
            await self._end_older(target)
        except BaseException:
            with trio.move_on_after(CLEAN_UP_S, shield=True):
                await self._clean_up(target)
            raise
        await self.worker.run(self.catalog.complete, target)
        found = await self.worker.run(self.catalog.find, name)
        if found is None or found.generation != target.generation or found.dropped:
            raise KeyspaceConflict(
                f"another process created or dropped keyspace {name!r} at the same time"
            )
        self.keyspaces.learn(found)
        log.info("keyspace-restored", keyspace=name, generation=found.generation, text=origin)
        return found

    async def _refuse_if_there(self, name: str) -> None:
        found = await self.worker.run(self.catalog.find, name)
        if found is not None and not found.dropped:
            raise KeyspaceConflict(
                f"keyspace {name!r} exists; choose another name, or drop it first"
            )

    def _put_state(self, target: CatalogEntry, source: Source, partition: int) -> None:
        """Put the checkpoint with which *partition* begins. Blocking."""
        from ringpop_py.state.catalog.checkpoints import (  # noqa: PLC0415 - pyarrow takes 60 MB
            Checkpoint,
            encode_checkpoint,
        )

        name, generation = target.name, target.generation
        state = source(partition)
        file = encode_checkpoint(Checkpoint(name, generation, partition, ORIGIN, (), state))
        # If it is there already, an earlier attempt put it, and its reply was lost.
        key = self.catalog.keys_of(target).partition(partition).checkpoint(ORIGIN)
        self.catalog.store.put_if_absent(key, file)

    async def _end_older(self, target: CatalogEntry) -> None:
        """End all older generations, also those that another node is still making."""
        older = partial(self.catalog.older, target.name, target.generation)
        # First mark all, so that owners stop serving; then fence each partition's log.
        for entry, _ in await self.worker.run(older):
            if not entry.dropped:
                await self.worker.run(self.catalog.mark_dropped, entry)
        ended = []
        for entry, counts in await self.worker.run(older):
            if not counts:  # a restore that was interrupted, or that fails now
                await self.worker.run(self.catalog.delete_incomplete, entry)
                continue
            keys, count = self.catalog.keys_of(entry), entry.definition.partitions
            await fence_at_once(self.worker, self.catalog.store, keys, count)
            ended.append(entry)
        if ended:
            await self.worker.run(self._copy_assignment, ended[0], target)

    def _copy_assignment(self, old: CatalogEntry, target: CatalogEntry) -> None:
        """Keep the recorded assignment, so that partitions stay where they were. Blocking."""
        count = target.definition.partitions
        if old.definition.partitions != count:
            return
        newest = read_newest(self.catalog.store, self.catalog.keys_of(old), count)
        if newest is not None:
            record(self.catalog.store, self.catalog.keys_of(target), Assignment(1, newest.owners))

    async def _clean_up(self, target: CatalogEntry) -> None:
        try:
            await self.worker.run(self.catalog.delete_incomplete, target)
        except KeyspaceError as error:
            log.warning("restoration-not-cleaned-up", keyspace=target.name, text=str(error))
