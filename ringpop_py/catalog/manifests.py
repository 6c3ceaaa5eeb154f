"""Checkpoints of a keyspace as a whole, as the store knows them: which there are, and of what.

A checkpoint has a number, which counts up through all generations of the keyspace. Whoever begins
one puts ``begun/epoch-N`` to have the number for itself; then come the files, one a partition; the
manifest, put last, makes it complete. What has no manifest does not count, whatever else is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringpop_py.errors import BodyError, KeyspaceUnknown, StateDamaged
from ringpop_py.slotlog.slots import Slot
from ringpop_py.stores.layout import KeyspaceKeys, epoch_in
from ringpop_py.values.operations import Value  # noqa: TC001 - read at run time
from ringpop_py.values.packed import (
    a_list,
    a_map,
    a_row,
    a_text,
    an_integer,
    decode_value,
    encode_value,
)

if TYPE_CHECKING:
    from ringpop_py.catalog.catalog import Catalog
    from ringpop_py.stores.store import Store


@dataclass(frozen=True, slots=True)
class EpochFile:
    """One partition in a checkpoint of the whole.

    Attributes:
        slot: the last one of the partition's log that the file has.
        offsets: how far which source of input is in it.
    """

    partition: int
    slot: Slot
    size_bytes: int
    keys_count: int
    offsets: dict[str, Value] = field(default_factory=dict)

    def as_row(self) -> list[Any]:
        """What `of_row` reads."""
        return [self.partition, *self.slot, self.size_bytes, self.keys_count, self.offsets]

    @classmethod
    def of_row(cls, row: object) -> EpochFile:
        """The file that *row* says. Raises BodyError."""
        partition, epoch, sequence, size, keys, offsets = a_row(row, 6, "a file")[:6]
        return cls(
            an_integer(partition, "a partition"),
            Slot(an_integer(epoch, "an epoch"), an_integer(sequence, "a sequence")),
            an_integer(size, "a size"),
            an_integer(keys, "a number of keys"),
            a_map(offsets, "offsets"),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete checkpoint of a keyspace as a whole.

    Attributes:
        number: it is ``epoch-N``.
        files: of all partitions, in order.
        members: who could own partitions when it was made; *made_by* is who asked them.
        made_at_us: microseconds since 1970, by the clock of *made_by*.
    """

    keyspace: str
    generation: int
    number: int
    files: tuple[EpochFile, ...]
    members: tuple[str, ...]
    made_by: str
    made_at_us: int

    @property
    def name(self) -> str:
        """How people call it."""
        return f"epoch-{self.number}"

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def keys_count(self) -> int:
        """Of all partitions."""
        return sum(file.keys_count for file in self.files)

    def encode(self) -> bytes:
        """As the value of its key."""
        rows = [file.as_row() for file in self.files]
        return encode_value("msgpack", [rows, self.members, self.made_by, self.made_at_us])


ABANDONED = encode_value("msgpack", [])
"""In a manifest's place: the checkpoint will never be complete."""


def read_manifest(store: Store, keys: KeyspaceKeys, number: int) -> Manifest | None:
    """The checkpoint *number* of one generation; None if it is not complete. Blocking.

    Raises:
        StateDamaged: what stands there is no manifest.
        StoreUnavailable: the store did not answer.
    """
    value = store.get(keys.manifest(number))
    if value is None or value == ABANDONED:
        return None
    try:
        rows, members, made_by, made_us = a_row(decode_value("msgpack", value), 4, "manifest")[:4]
        return Manifest(
            keys.name,
            keys.generation,
            number,
            tuple(EpochFile.of_row(row) for row in a_list(rows, "files")),
            tuple(a_text(name, "a member") for name in a_list(members, "members")),
            a_text(made_by, "a member"),
            an_integer(made_us, "a time"),
        )
    except BodyError as error:
        message = f"{keys.manifest(number)} is no manifest: {error}"
        raise StateDamaged(message) from None


def numbers_in(store: Store, prefix: str) -> list[int]:
    """The numbers of the checkpoints that have a key under *prefix*, in order. Blocking."""
    numbers = (epoch_in(key) for key in store.list(prefix))
    return sorted(number for number in numbers if number is not None)


def all_keys(catalog: Catalog, name: str) -> list[KeyspaceKeys]:
    """The keys of all generations of *name*, the first one first. Blocking."""
    cluster = catalog.cluster
    found = catalog.generations(name)
    return [KeyspaceKeys(cluster, name, entry.generation) for entry in found]


def read_manifests(catalog: Catalog, name: str) -> list[Manifest]:
    """The complete checkpoints of *name*, of all its generations, the oldest first. Blocking.

    Raises:
        StateDamaged: one of them cannot be read.
        StoreUnavailable: the store did not answer.
    """
    found = (
        read_manifest(catalog.store, keys, number)
        for keys in all_keys(catalog, name)
        for number in numbers_in(catalog.store, keys.manifests)
    )
    return sorted((m for m in found if m is not None), key=lambda m: (m.number, m.generation))


def find_manifest(catalog: Catalog, name: str, number: int | None) -> Manifest:
    """That checkpoint of *name*; the newest one, if *number* is None. Blocking.

    Raises:
        KeyspaceUnknown: there is none.
        StateDamaged: it cannot be read.
        StoreUnavailable: the store did not answer.
    """
    for keys in reversed(all_keys(catalog, name)):
        numbers = numbers_in(catalog.store, keys.manifests)
        for candidate in reversed(numbers):
            if number in (None, candidate):
                found = read_manifest(catalog.store, keys, candidate)
                if found is not None:
                    return found
    which = "no complete checkpoint" if number is None else f"no checkpoint epoch-{number}"
    message = f"keyspace {name!r} has {which}"
    raise KeyspaceUnknown(message)
