"""Which keyspaces a cluster has, as its store knows: definitions, generations, drops.

A name may have several generations, one after the other: a keyspace that was dropped and made
again, or restored from a checkpoint, is a new one. The newest is meant, unless it was dropped.
All of this is put if absent, so two who create or drop at once do no harm.

A generation that is restored takes its number first, then its data are put, and last the mark that
it is complete: until then it does not count, and nobody is to create one beside it.

Nothing numbers keyspaces in memory mode but what was there before: a generation is made of how many
there were of that name, and of a hash of the definition. So two nodes that create the same keyspace
at the same time create the same generation of it, without having heard of each other; and of two
different ones, created on two sides of a cut, all choose the same one afterwards.
"""

from __future__ import annotations

import secrets
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from ringpop_py.errors import BodyError, ConfigError, KeyspaceConflict, KeyspaceUnknown
from ringpop_py.partition.fence import fence_generation
from ringpop_py.placing.definition import Definition, is_name
from ringpop_py.placing.keys import hash_text
from ringpop_py.stores.layout import KeyspaceKeys, catalog_prefix, store_id_key
from ringpop_py.values.packed import a_map, a_text, decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringpop_py.stores.store import Store

MARK_BITS: Final = 32
_ORIGIN: Final = "restored_from"


class CatalogEntry(NamedTuple):
    """One generation of a keyspace."""

    definition: Definition
    generation: int
    dropped: bool = False
    origin: str = ""
    """Of what it was made, if it was restored."""

    @property
    def name(self) -> str:
        """The keyspace's."""
        return self.definition.name

    @property
    def order(self) -> tuple[bool, int, bool]:
        """Of two entries of one name, the greater is the truth.

        A durable keyspace is never replaced by one in memory that somebody created unawares.
        """
        return self.definition.mode == "durable", self.generation, self.dropped


class Catalog:
    """The keyspaces of *cluster* in *store*. Blocking, as the store is.

    All methods raise `StoreUnavailable`.
    """

    def __init__(self, store: Store, cluster: str) -> None:
        self.store = store
        self.cluster = cluster

    def store_id(self) -> str:
        """What tells this store from others: eight hexadecimal digits, made when first asked."""
        key = store_id_key(self.cluster)
        self.store.put_if_absent(key, secrets.token_hex(4).encode())
        return (self.store.get(key) or b"").decode("ascii", "replace")

    def names(self) -> list[str]:
        """What keyspaces there are or were, sorted."""
        prefix = catalog_prefix(self.cluster)
        parts = {key.removeprefix(prefix).split("/", 1)[0] for key in self.store.list(prefix)}
        return sorted(unquote(part) for part in parts)

    def find(self, name: str) -> CatalogEntry | None:
        """The newest generation of *name* that counts."""
        return next((entry for entry, counts in self._newest_first(name) if counts), None)

    def generations(self, name: str) -> list[CatalogEntry]:
        """All generations of *name* that count, the first one first."""
        return [entry for entry, counts in self._newest_first(name) if counts][::-1]

    def older(self, name: str, generation: int) -> list[tuple[CatalogEntry, bool]]:
        """What is older than *generation*, and whether it counts; the newest first."""
        found = self._newest_first(name)
        return [(entry, counts) for entry, counts in found if entry.generation < generation]

    def restoring(self, name: str) -> list[CatalogEntry]:
        """What is being restored under *name*, or was begun and not finished."""
        return _restoring(self._newest_first(name))

    def create(self, definition: Definition) -> CatalogEntry:
        """The keyspace of this *definition*, made unless it is there.

        Raises:
            KeyspaceConflict: there is one of this name that is defined otherwise, or one is being
                restored.
        """
        while True:
            # All is of one listing: a generation that somebody puts after it is in our way.
            generations = list(self._newest_first(definition.name))
            found = next((entry for entry, counts in generations if counts), None)
            if found is not None and not found.dropped:
                break
            _refuse_while_restoring(generations)
            if found is not None:
                keys = KeyspaceKeys(self.cluster, found.name, found.generation)
                fence_generation(self.store, keys, found.definition.partitions)
            newest = generations[0][0].generation if generations else 0
            self._put(definition, newest + 1, "")
        difference = found.definition.difference_from(definition)
        if difference:
            message = f"keyspace {definition.name!r} exists and was created with {difference}"
            raise KeyspaceConflict(message)
        return found

    def reserve(self, definition: Definition, origin: str) -> CatalogEntry:
        """A new generation of this *definition* that does not count before `complete`."""
        while True:
            newest = max(self._marks(definition.name), default=0)
            entry = self._put(definition, newest + 1, origin)
            if entry is not None:
                return entry

    def complete(self, entry: CatalogEntry) -> None:
        """A reserved generation counts from now on."""
        keys = KeyspaceKeys(self.cluster, entry.name, entry.generation)
        self.store.put_if_absent(keys.completed, b"")

    def _put(self, definition: Definition, generation: int, origin: str) -> CatalogEntry | None:
        """That *generation*, reserved if it has an *origin*; None if somebody was faster."""
        keys = KeyspaceKeys(self.cluster, definition.name, generation)
        record = definition.as_record() | ({_ORIGIN: origin} if origin else {})
        was_put = self.store.put_if_absent(keys.definition, encode_value("msgpack", record))
        return CatalogEntry(definition, generation, origin=origin) if was_put else None

    def drop(self, name: str) -> CatalogEntry:
        """Mark *name* as dropped, and what is being restored under it. Its data stay in the store.

        Owners that do not hear of it go on until they are fenced (`fence.py`).

        Raises:
            KeyspaceUnknown: there is none of this name.
        """
        found, restoring = self.find(name), self.restoring(name)
        for entry in restoring:
            self.mark_dropped(entry)
        if found is None or (found.dropped and self._is_fenced(found)):
            if restoring:
                return restoring[0]._replace(dropped=True)
            message = f"no keyspace {name!r} in cluster {self.cluster!r}"
            raise KeyspaceUnknown(message)
        self.mark_dropped(found)
        return found._replace(dropped=True)

    def mark_dropped(self, entry: CatalogEntry) -> None:
        """That generation is not to be served any more."""
        self.store.put_if_absent(
            KeyspaceKeys(self.cluster, entry.name, entry.generation).dropped, b""
        )

    def delete_incomplete(self, entry: CatalogEntry) -> None:
        """Delete what there is of a reserved generation, which was not complete a moment ago.

        If it is completed nevertheless, it does not count.
        """
        keys = KeyspaceKeys(self.cluster, entry.name, entry.generation)
        self.store.put_if_absent(keys.dropped, b"")
        self.store.put_if_absent(keys.void, b"")
        self.store.delete(self.store.list(keys.root))

    def _is_fenced(self, entry: CatalogEntry) -> bool:
        keys = KeyspaceKeys(self.cluster, entry.name, entry.generation)
        return self.store.get(keys.fenced) is not None

    def _marks(self, name: str) -> dict[int, set[str]]:
        """What there is of each generation: the last parts of keys."""
        if not is_name(name):
            return {}
        prefix = catalog_prefix(self.cluster, name)
        marks: dict[int, set[str]] = {}
        for key in self.store.list(prefix):
            generation, _, mark = key.removeprefix(prefix).partition("/")
            marks.setdefault(int(generation), set()).add(mark)
        return {number: found for number, found in marks.items() if "definition" in found}

    def _newest_first(self, name: str) -> Iterator[tuple[CatalogEntry, bool]]:
        """All generations, and whether they count."""
        for generation, marks in sorted(self._marks(name).items(), reverse=True):
            entry = self._read(name, generation, dropped="dropped" in marks)
            yield entry, not entry.origin or ("completed" in marks and "void" not in marks)

    def _read(self, name: str, generation: int, *, dropped: bool) -> CatalogEntry:
        key = KeyspaceKeys(self.cluster, name, generation).definition
        try:
            record = a_map(decode_value("msgpack", self.store.get(key) or b""), "a definition")
            origin = a_text(record.pop(_ORIGIN, ""), "an origin")
            return CatalogEntry(Definition.of_record(record), generation, dropped, origin)
        except (BodyError, ConfigError) as error:
            message = f"the definition of keyspace {name!r} cannot be read ({key}): {error}"
            raise KeyspaceConflict(message) from None


def _restoring(newest_first: Iterable[tuple[CatalogEntry, bool]]) -> list[CatalogEntry]:
    """What does not count yet, of a listing of generations."""
    newer = takewhile(lambda found: not found[1], newest_first)
    return [entry for entry, _ in newer if not entry.dropped]


def _refuse_while_restoring(newest_first: Iterable[tuple[CatalogEntry, bool]]) -> None:
    restoring = _restoring(newest_first)
    if restoring:
        message = (
            f"keyspace {restoring[0].name!r} is being {restoring[0].origin}; if whoever did that is"
            " gone, do it again, or drop the keyspace"
        )
        raise KeyspaceConflict(message)


def created(known: CatalogEntry | None, definition: Definition) -> CatalogEntry:
    """The entry of the keyspace of this *definition*, where *known* is what there was until now.

    Raises:
        KeyspaceConflict: there is one of this name that is defined otherwise; or there was a
            durable one, whose data are still in the store.
    """
    name = definition.name
    if known is not None and known.definition.mode != definition.mode:
        was = "was dropped, and was" if known.dropped else "exists, and is"
        message = f"keyspace {name!r} {was} {known.definition.mode}: choose another name"
        raise KeyspaceConflict(message)
    if known is None or known.dropped:
        number = (known.generation >> MARK_BITS if known is not None else 0) + 1
        return CatalogEntry(definition, number << MARK_BITS | _mark(definition))
    difference = known.definition.difference_from(definition)
    if difference:
        message = f"keyspace {name!r} exists and was created with {difference}"
        raise KeyspaceConflict(message)
    return known


def _mark(definition: Definition) -> int:
    record = definition.as_record()
    del record["checkpoint_interval_s"]  # means nothing here, and 10 is not written like 10.0
    return hash_text(repr(sorted(record.items()))) & ((1 << MARK_BITS) - 1)
