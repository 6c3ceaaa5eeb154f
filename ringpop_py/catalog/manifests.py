"""Checkpoints of whole keyspaces, as the store knows them: which exist, and of which state.

A checkpoint has a number, which counts up through all generations of the keyspace. The node that
puts ``begun/epoch-N`` first has that number to itself. It then puts the files, one for each
partition, and last the manifest, which makes the checkpoint complete. Without a manifest the other
files do not count.
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
        slot: the last slot of the partition's log that the file includes.
        offsets: how much of each source of input the file includes.
    """

    partition: int
    slot: Slot
    size_bytes: int
    keys_count: int
    offsets: dict[str, Value] = field(default_factory=dict)

    def as_row(self) -> list[Any]:
        """Return the row that `of_row` reads."""
        return [self.partition, *self.slot, self.size_bytes, self.keys_count, self.offsets]

    @classmethod
    def of_row(cls, row: object) -> EpochFile:
        """Decode a file's *row*. Raises BodyError."""
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
    """A complete checkpoint of a whole keyspace.

    Attributes:
        number: the N of ``epoch-N``.
        files: the files of all partitions, in order.
        members: the members that could own partitions then; *made_by* is the node that asked them.
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
        """The name of the checkpoint for people."""
        return f"epoch-{self.number}"

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def keys_count(self) -> int:
        """The number of keys in all partitions."""
        return sum(file.keys_count for file in self.files)

    def encode(self) -> bytes:
        """Return the manifest as the value of its key."""
        rows = [file.as_row() for file in self.files]
        return encode_value("msgpack", [rows, self.members, self.made_by, self.made_at_us])


ABANDONED = encode_value("msgpack", [])
"""A value in place of a manifest: the checkpoint will never be complete."""


def read_manifest(store: Store, keys: KeyspaceKeys, number: int) -> Manifest | None:
    """Return the checkpoint *number* of one generation; None if it is not complete. Blocking.

    Raises:
        StateDamaged: if the object there is not a manifest.
        StoreUnavailable: if the store does not answer.
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
        message = f"{keys.manifest(number)} is not a manifest: {error}; restore the object"
        raise StateDamaged(message) from None


def numbers_in(store: Store, prefix: str) -> list[int]:
    """Return the numbers of the checkpoints with a key under *prefix*, in order. Blocking."""
    numbers = (epoch_in(key) for key in store.list(prefix))
    return sorted(number for number in numbers if number is not None)


def all_keys(catalog: Catalog, name: str) -> list[KeyspaceKeys]:
    """Return the keys of all generations of *name*, the first one first. Blocking."""
    cluster = catalog.cluster
    found = catalog.generations(name)
    return [KeyspaceKeys(cluster, name, entry.generation) for entry in found]


def read_manifests(catalog: Catalog, name: str) -> list[Manifest]:
    """Return the complete checkpoints of all generations of *name*, the oldest first. Blocking.

    Raises:
        StateDamaged: if one of them cannot be read.
        StoreUnavailable: if the store does not answer.
    """
    found = (
        read_manifest(catalog.store, keys, number)
        for keys in all_keys(catalog, name)
        for number in numbers_in(catalog.store, keys.manifests)
    )
    return sorted((m for m in found if m is not None), key=lambda m: (m.number, m.generation))


def find_manifest(catalog: Catalog, name: str, number: int | None) -> Manifest:
    """Return the checkpoint *number* of *name*, or the newest one if it is None. Blocking.

    Raises:
        KeyspaceUnknown: if there is no such checkpoint.
        StateDamaged: if it cannot be read.
        StoreUnavailable: if the store does not answer.
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
