"""Whether all that a store holds can be read: each object, and each partition as a whole.

An object has a checksum. A partition is read as a node that takes it over reads it, so what is
missing is found as well. Nothing is put or deleted: a cluster may use the store meanwhile.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import StateDamaged
from ringpop_py.base.values.checksum import unwrap
from ringpop_py.state.catalog.catalog import Catalog
from ringpop_py.state.catalog.fence import run_now
from ringpop_py.state.catalog.high_water import ReachedBook
from ringpop_py.state.catalog.journalstore import JournalStore, KnownRecords, checkpoint_in
from ringpop_py.state.catalog.layout import KeyspaceKeys, name_of_part, shuffles_prefix, slot_in
from ringpop_py.state.journal.journal import Journal
from ringpop_py.state.journal.recovery import Recovery
from ringpop_py.state.tasks import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.state.catalog.catalog import CatalogEntry
    from ringpop_py.state.stores.store import Store

    Tell = Callable[[str], object]
    """Is told now and then how far it is."""
    _Place = tuple[str, str, int]

THREADS: Final = 8
BATCH: Final = 500
"""The objects that are asked for before it is told how far it is."""
OTHERS: Final = ""
"""In place of a keyspace's name: objects of the store itself, of shuffles and of dataflows."""
MARKS: Final = ("dropped", "fenced", "completed", "void")
"""What a generation is marked with, by objects without content."""


@dataclass(slots=True)
class Verified:
    """What was found of one generation of a keyspace.

    Attributes:
        size_bytes: the size of the objects that were read.
        damaged: what is wrong with each object that cannot be read, by its key.
        partitions_damaged: why each partition that a node could not take over cannot be read.
        partitions: how many it has; None if they were not read: its definition cannot be read, or
            the generation does not count.
    """

    cluster: str
    name: str
    generation: int
    objects: int = 0
    size_bytes: int = 0
    damaged: dict[str, str] = field(default_factory=dict)
    partitions: int | None = None
    partitions_damaged: dict[int, str] = field(default_factory=dict)

    def note(self, key: str, size_bytes: int, damage: str) -> None:
        """Count the object at *key*; *damage* is empty if it can be read."""
        self.objects += 1
        self.size_bytes += size_bytes
        if damage:
            self.damaged[key] = damage


def verify(
    store: Store, keyspace: str | None = None, tell: Tell = lambda _: None
) -> list[Verified]:
    """Read all objects in *store*, or those of *keyspace* only. Blocking, for as long as it takes.

    Raises:
        StoreUnavailable: the store fails.
    """
    found: dict[_Place, Verified] = {}
    keys = [key for key in store.list("") if keyspace in (None, _place(key)[1])]
    with ThreadPoolExecutor(THREADS) as pool:
        for first in range(0, len(keys), BATCH):
            batch = keys[first : first + BATCH]
            for key, seen in zip(batch, pool.map(partial(_look, store), batch), strict=True):
                if seen is not None:
                    place = _place(key)
                    found.setdefault(place, Verified(*place)).note(key, *seen)
            tell(f"{first + len(batch)} of {len(keys)} objects")
        for place, one in found.items():
            key = KeyspaceKeys(*place).definition
            if place[1] != OTHERS and store.get(key) is None:
                one.damaged[key] = f"{key} is gone, and says what the data are; restore the object"
        for cluster, name in dict.fromkeys(place[:2] for place in found if place[1] != OTHERS):
            all_of_it = [one for place, one in found.items() if place[:2] == (cluster, name)]
            for entry in _generations(Catalog(store, cluster), all_of_it):
                one = found.setdefault(place := (cluster, name, entry.generation), Verified(*place))
                one.partitions = entry.definition.partitions
                read = _reader(store, KeyspaceKeys(*place))
                why = enumerate(pool.map(read, range(one.partitions)))
                one.partitions_damaged = {number: text for number, text in why if text}
                tell(f"the partitions of {name}, generation {entry.generation}")
    return [found[place] for place in sorted(found)]


def _place(key: str) -> _Place:
    """Return the cluster, the keyspace and the generation to which *key* belongs, by its parts."""
    match key.split("/"):
        case [cluster, "catalog" | "keyspaces", name, number, _, *_] if number.isdecimal():
            return name_of_part(cluster), name_of_part(name), int(number)
        case parts:
            return name_of_part(parts[0]), OTHERS, 0


# Objects.


def _look(store: Store, key: str) -> tuple[int, str] | None:
    """Return the size of the object at *key*, and what is wrong with it; None if it is gone."""
    value = store.get(key)
    if value is None:
        return None
    try:
        _check(value, key)
    except StateDamaged as error:
        return len(value), str(error) if key in str(error) else f"{key}: {error}"
    return len(value), ""


def _check(value: bytes, key: str) -> None:
    """Raise StateDamaged if *value*, which was read at *key*, is not what was put there."""
    cluster, name, generation = _place(key)
    keys = KeyspaceKeys(cluster, name, generation)
    inner = key.removeprefix(keys.root).split("/") if key.startswith(keys.root) else []
    match inner:
        case ["p", number, "ck", *_] if number.isdecimal() and (slot := slot_in(key)) is not None:
            checkpoint_in(value, keys.partition(int(number)), slot)
        case ["checkpoints", epoch, _] if epoch.startswith("epoch-"):
            from ringpop_py.state.catalog.checkpoints import decode_checkpoint  # noqa: PLC0415 - pyarrow takes 60 MB

            decode_checkpoint(value)
        case ["jobs", "staged", _, _, file] if file != "manifest":
            from ringpop_py.state.rows.stagefile import index_of  # noqa: PLC0415 - likewise

            index_of(value)
        case ["jobs", "days" | "done", *_] if not value:
            pass
        case _ if key.rpartition("/")[2] in MARKS and not value:
            pass
        case _ if f"{key}/".startswith(shuffles_prefix(cluster)):
            pass  # frames, which have checksums for those who read a whole segment
        case _:
            unwrap(value, key)


# Partitions.


def _generations(catalog: Catalog, seen: Sequence[Verified]) -> list[CatalogEntry]:
    """Return the generations that count of the keyspace of *seen*; nothing if one is damaged."""
    try:
        return catalog.generations(seen[0].name)
    except StateDamaged as error:
        text = str(error)
        if not any(text in one.damaged.values() for one in seen):
            last = seen[-1]
            last.damaged[KeyspaceKeys(last.cluster, last.name, last.generation).definition] = text
        return []


class _Nothing:
    """A fold that forgets what it sees."""

    def reset(self) -> None:
        """See `Fold`."""

    def restore(self, checkpoint: object) -> None:
        """See `Fold`."""

    def apply(self, body: object) -> None:
        """See `Fold`."""


def _reader(store: Store, keys: KeyspaceKeys) -> Callable[[int], str]:
    """Return a function that reads a partition, and returns why it cannot be read, or nothing."""
    book = ReachedBook(store, keys)
    book.look()
    known = KnownRecords()

    def read(number: int) -> str:
        logs = JournalStore(keys, Worker(store, 1), known)
        recovery = Recovery(number, _Nothing(), Journal("(verify)", logs.make_name))
        try:
            run_now(recovery, recovery.follow(miss_nothing=True), logs)
        except StateDamaged as error:
            return str(error)
        # What a node that takes it over looks at before it ends the journal, and claims.
        epoch, end = recovery.epoch, recovery.position.sequence + 1
        lost = book.lost_at(recovery.journal_of(epoch), end) if epoch else ""
        return lost or book.lost_claim(number, epoch + 1)

    return read
