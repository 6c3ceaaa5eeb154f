"""The keyspaces of a cluster as its store knows them: definitions, generations, drops.

A name may have several generations, one after the other. A keyspace that was dropped and created
again, or restored from a checkpoint, is a new generation. The name means the newest one, unless
that was dropped. If an admin changes a definition, the whole of it is put again, as the next
revision. All of this is put if absent, so two nodes that create, change or drop at the same time do
no harm.

A generation that is restored takes its number first; then its data are put, and last the mark that
it is complete. Until then it does not count, and no other can be created beside it.

In memory mode there is no store to number keyspaces. A generation's number follows from how many
there were of that name, and from a hash of the definition. So two nodes that create the same
keyspace at the same time create the same generation, even without contact. If two different ones
are created on two sides of a partitioned network, all nodes choose the same one afterwards.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from ringpop_py.base.errors import (
    BodyError,
    ConfigError,
    KeyspaceConflict,
    KeyspaceUnknown,
    StateDamaged,
)
from ringpop_py.base.values.checksum import unwrap, unwrap_message, wrap_message
from ringpop_py.base.values.packed import a_map, a_text, decode_value
from ringpop_py.state.catalog.fence import fence_generation
from ringpop_py.state.catalog.layout import KeyspaceKeys, catalog_prefix, probe_key, store_id_key
from ringpop_py.state.placement.definition import Definition, is_name
from ringpop_py.state.placement.keys import hash_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.state.stores.store import Store

MARK_BITS: Final = 32
_ORIGIN: Final = "restored_from"


class CatalogEntry(NamedTuple):
    """One generation of a keyspace."""

    definition: Definition
    generation: int
    dropped: bool = False
    origin: str = ""
    """The source from which it was restored; empty if it was not."""

    @property
    def name(self) -> str:
        """The name of the keyspace."""
        return self.definition.name

    @property
    def order(self) -> tuple[bool, int, bool, int]:
        """A sort key: of two entries of one name, the greater one counts.

        A durable keyspace is never replaced by one in memory whose creator did not know of it.
        """
        of = self.definition
        return of.mode == "durable", self.generation, self.dropped, of.revision


class Catalog:
    """The keyspaces of *cluster* in *store*. Blocking, as the store is.

    All methods raise `StoreUnavailable`, and `StateDamaged` if an object cannot be read.
    """

    def __init__(self, store: Store, cluster: str) -> None:
        self.store = store
        self.cluster = cluster

    def keys_of(self, entry: CatalogEntry) -> KeyspaceKeys:
        """Return the keys of that generation."""
        return KeyspaceKeys(self.cluster, entry.name, entry.generation)

    def store_id(self, *, create: bool) -> str | None:
        """Return eight hexadecimal digits that identify this store, made by the first call.

        Args:
            create: whether to make them if they are missing; otherwise None is returned.
        """
        key = store_id_key(self.cluster)
        found = self.store.get(key)
        if found is None and create:
            self.store.put_if_absent(key, wrap_message(secrets.token_hex(4), key))
            found = self.store.get(key) or b""  # another node's may have won
        return None if found is None else unwrap_message(str, found, key, "store's id")

    def try_to_write(self) -> None:
        """Put something, and delete it again.

        A node that cannot write must not be given partitions: their owners hand them over before
        the node claims them.

        Raises:
            StoreUnavailable: if that fails.
        """
        key = probe_key(self.cluster, secrets.token_hex(8))
        self.store.put_if_absent(key, wrap_message("", key))
        self.store.delete([key])

    def names(self) -> list[str]:
        """Return the names of all keyspaces that exist or existed, sorted."""
        prefix = catalog_prefix(self.cluster)
        parts = {key.removeprefix(prefix).split("/", 1)[0] for key in self.store.list(prefix)}
        return sorted(unquote(part) for part in parts)

    def find(self, name: str) -> CatalogEntry | None:
        """Return the newest generation of *name* that counts; None if there is none."""
        return self._newest(name)[0]

    def generations(self, name: str) -> list[CatalogEntry]:
        """Return all generations of *name* that count, the first one first."""
        return [entry for entry, counts in self._newest_first(name) if counts][::-1]

    def older(self, name: str, generation: int) -> list[tuple[CatalogEntry, bool]]:
        """Return the generations before *generation*, and whether each counts; newest first."""
        found = self._newest_first(name)
        return [(entry, counts) for entry, counts in found if entry.generation < generation]

    def create(self, definition: Definition) -> CatalogEntry:
        """Return the keyspace of this *definition*; create it if it does not exist.

        Raises:
            KeyspaceConflict: if a keyspace of this name has another definition, or is being
                restored.
        """
        while True:
            # Use one listing for all decisions: a generation put after it makes our put lose.
            found, newer = self._newest(definition.name)
            if found is not None and not found.dropped:
                found.definition.check_same(definition)
                return found
            restoring = [entry for entry in newer if not entry.dropped]
            if restoring:
                raise KeyspaceConflict(
                    f"keyspace {definition.name!r} is being {restoring[0].origin}; if the process"
                    " that does this is gone, restore again, or drop the keyspace"
                )
            if found is not None:
                fence_generation(self.store, self.keys_of(found), found.definition.partitions)
            newest = newer[0] if newer else found
            self._put(definition, newest.generation + 1 if newest is not None else 1, "")

    def reserve(self, definition: Definition, origin: str) -> CatalogEntry:
        """Create a generation of this *definition* that does not count before `complete`."""
        while True:
            # The newest of all generations, even of those that do not count, as numbers are taken.
            newest = max(self._marks(definition.name), default=0)
            entry = self._put(replace(definition, revision=0), newest + 1, origin)
            if entry is None:  # another put has taken that number
                continue
            if definition.revision:  # what an admin has set holds in what is restored, too
                entry = self._put(definition, entry.generation, origin) or entry
            return entry

    def complete(self, entry: CatalogEntry) -> None:
        """Make a reserved generation count from now on."""
        self.store.put_if_absent(self.keys_of(entry).completed, b"")

    def _put(self, definition: Definition, generation: int, origin: str) -> CatalogEntry | None:
        """Put that revision of that *generation*; *origin* as reserved. None if another put won."""
        entry = CatalogEntry(definition, generation, origin=origin)
        record = definition.as_record() | ({_ORIGIN: origin} if origin else {})
        key = self.keys_of(entry).revised(definition.revision)
        return entry if self.store.put_if_absent(key, wrap_message(record, key)) else None

    def change(self, name: str, min_cluster_size: int) -> tuple[CatalogEntry, Definition]:
        """Give the keyspace *name* another *min_cluster_size*; return it, and what it replaced.

        Raises:
            KeyspaceUnknown: if there is no keyspace of this name.
            ConfigError: if that number cannot be used.
        """
        while True:
            found = self.find(name)
            if found is None or found.dropped:
                raise KeyspaceUnknown(f"no keyspace {name!r} in cluster {self.cluster!r}")
            former = found.definition
            changed = former.revised(min_cluster_size)
            if former.min_cluster_size == min_cluster_size:
                return found, former
            entry = self._put(changed, found.generation, found.origin)
            if entry is not None:  # otherwise another change was faster, and ours replaces that
                return entry, former

    def drop(self, name: str) -> CatalogEntry:
        """Mark *name* as dropped, and what is being restored under it. Its data stay in the store.

        Owners that do not learn of the drop go on until they are fenced (`fence.py`).

        Raises:
            KeyspaceUnknown: if there is no keyspace of this name.
        """
        found, newer = self._newest(name)
        restoring = [entry for entry in newer if not entry.dropped]
        for entry in restoring:
            self.mark_dropped(entry)
        # A keyspace that was dropped but not fenced yet is dropped again: the first drop may have
        # been cut short, and its owners may still acknowledge writes.
        fenced = found is not None and self.store.get(self.keys_of(found).fenced) is not None
        if found is None or (found.dropped and fenced):
            if restoring:
                return restoring[0]._replace(dropped=True)
            raise KeyspaceUnknown(f"no keyspace {name!r} in cluster {self.cluster!r}")
        self.mark_dropped(found)
        return found._replace(dropped=True)

    def mark_dropped(self, entry: CatalogEntry) -> None:
        """Mark that generation as one that must no longer be served."""
        self.store.put_if_absent(self.keys_of(entry).dropped, b"")

    def delete_incomplete(self, entry: CatalogEntry) -> None:
        """Delete the contents of a reserved generation that was incomplete a moment ago.

        If it is completed nevertheless, it does not count.
        """
        keys = self.keys_of(entry)
        # The marks come first: a `complete` between them and the deletion must not count.
        self.store.put_if_absent(keys.dropped, b"")
        self.store.put_if_absent(keys.void, b"")
        self.store.delete(self.store.list(keys.root))

    def _marks(self, name: str) -> dict[int, set[str]]:
        """Return the marks of each generation, which are the last parts of its keys."""
        # A name comes from a request, and may be too long for a key of the store.
        if not is_name(name):
            return {}
        prefix = catalog_prefix(self.cluster, name)
        marks: dict[int, set[str]] = {}
        for key in self.store.list(prefix):
            generation, _, mark = key.removeprefix(prefix).partition("/")
            marks.setdefault(int(generation), set()).add(mark)
        return {number: found for number, found in marks.items() if "definition" in found}

    def _newest(self, name: str) -> tuple[CatalogEntry | None, list[CatalogEntry]]:
        """Return the newest generation that counts, and the newer ones, the newest first."""
        newer: list[CatalogEntry] = []
        # No further than the newest that counts: older definitions may be damaged.
        for entry, counts in self._newest_first(name):
            if counts:
                return entry, newer
            newer.append(entry)
        return None, newer

    def _newest_first(self, name: str) -> Iterator[tuple[CatalogEntry, bool]]:
        """Yield all generations, the newest first, and whether they count."""
        for generation, marks in sorted(self._marks(name).items(), reverse=True):
            revisions = [mark for mark in marks if mark.startswith("definition")]
            revision = max(int(mark.partition("-")[2] or 0) for mark in revisions)
            entry = self._read(name, generation, dropped="dropped" in marks, revision=revision)
            yield entry, not entry.origin or ("completed" in marks and "void" not in marks)

    def _read(
        self, name: str, generation: int, *, dropped: bool, revision: int = 0
    ) -> CatalogEntry:
        key = KeyspaceKeys(self.cluster, name, generation).revised(revision)
        try:
            payload = unwrap(self.store.get(key) or b"", key)
            record = a_map(decode_value("msgpack", payload), "a definition")
            origin = a_text(record.pop(_ORIGIN, ""), "an origin")
            definition = Definition.of_record(record, revision)
            return CatalogEntry(definition, generation, dropped, origin)
        except (BodyError, ConfigError) as error:
            raise StateDamaged(
                f"{key} holds no definition of keyspace {name!r}: {error}; restore the object"
            ) from None


def created(known: CatalogEntry | None, definition: Definition) -> CatalogEntry:
    """Return the entry of the keyspace of this *definition*; *known* is the entry until now.

    Raises:
        KeyspaceConflict: if a keyspace of this name has another definition; or if there was a
            durable one, whose data are still in the store.
    """
    name = definition.name
    if known is not None and known.definition.mode != definition.mode:
        was = "was dropped, and was" if known.dropped else "exists, and is"
        raise KeyspaceConflict(
            f"keyspace {name!r} {was} {known.definition.mode}: choose another name"
        )
    if known is None or known.dropped:
        number = (known.generation >> MARK_BITS if known is not None else 0) + 1
        return CatalogEntry(definition, number << MARK_BITS | _mark(definition))
    known.definition.check_same(definition)
    return known


def _mark(definition: Definition) -> int:
    record = replace(definition, creator="").as_record()
    del record["checkpoint_interval_s"]  # means nothing here, and 10 is not written like 10.0
    return hash_text(repr(sorted(record.items()))) & ((1 << MARK_BITS) - 1)
