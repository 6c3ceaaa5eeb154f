"""Checkpoints of whole keyspaces, as the store knows them: which exist, and of which state.

A checkpoint has a number, which counts up through all generations of the keyspace. The node that
puts ``begun/epoch-N`` first has that number to itself. It then puts the files, one for each
partition, and last the manifest, which makes the checkpoint complete. Without a manifest the other
files do not count.

The functions here block, as the store does. They raise `StoreUnavailable` if it does not answer,
and `StateDamaged` if an object in it is not a manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringpop_py.base.errors import KeyspaceUnknown
from ringpop_py.base.values.checksum import unwrap_message, wrap_message
from ringpop_py.base.values.declared import Declared, Natural, Text, astuple
from ringpop_py.base.values.operations import check_values
from ringpop_py.state.catalog.layout import number_in
from ringpop_py.state.journal.records import Slot

if TYPE_CHECKING:
    from ringpop_py.state.catalog.catalog import Catalog
    from ringpop_py.state.catalog.layout import KeyspaceKeys
    from ringpop_py.state.stores.store import Store


class EpochFile(Declared, frozen=True):
    """One partition in a checkpoint of the whole.

    Attributes:
        offsets: how much of each source of input the file includes.
    """

    partition: Natural
    epoch: Natural
    sequence: Natural
    size_bytes: Natural
    keys_count: Natural
    offsets: dict[str, Any]

    def __post_init__(self) -> None:
        check_values(self.offsets.values())

    @property
    def slot(self) -> Slot:
        """The last slot of the partition's log that the file includes."""
        return Slot(self.epoch, self.sequence)


class _Recorded(Declared, frozen=True):
    files: tuple[EpochFile, ...]
    members: tuple[Text, ...]
    made_by: Text
    made_at_us: Natural


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

    def encode(self, key: str) -> bytes:
        """Return the manifest as the value of *key*."""
        recorded = _Recorded(self.files, self.members, self.made_by, self.made_at_us)
        return wrap_message(recorded, key)


def abandoned(key: str) -> bytes:
    """Return the value of *key* in place of a manifest: the checkpoint will never be complete."""
    return wrap_message([], key)


def read_manifest(store: Store, keys: KeyspaceKeys, number: int) -> Manifest | None:
    """Return the checkpoint *number* of one generation; None if it is not complete."""
    key = keys.manifest(number)
    value = store.get(key)
    if value is None or value == abandoned(key):
        return None
    found = unwrap_message(_Recorded, value, key, "manifest")
    return Manifest(keys.name, keys.generation, number, *astuple(found))


def numbers_in(store: Store, prefix: str) -> list[int]:
    """Return the numbers of the checkpoints with a key under *prefix*, in order."""
    numbers = (number_in(key) for key in store.list(prefix))
    return sorted(number for number in numbers if number is not None)


def all_keys(catalog: Catalog, name: str) -> list[KeyspaceKeys]:
    """Return the keys of all generations of *name*, the first one first."""
    return [catalog.keys_of(entry) for entry in catalog.generations(name)]


def read_manifests(catalog: Catalog, name: str) -> list[Manifest]:
    """Return the complete checkpoints of all generations of *name*, the oldest first."""
    found = (
        read_manifest(catalog.store, keys, number)
        for keys in all_keys(catalog, name)
        for number in numbers_in(catalog.store, keys.manifests)
    )
    complete = (manifest for manifest in found if manifest is not None)
    # Numbers count on through generations.
    return sorted(complete, key=lambda m: (m.number, m.generation))


def find_manifest(catalog: Catalog, name: str, number: int | None) -> Manifest:
    """Return the checkpoint *number* of *name*, or the newest one if it is None.

    Raises:
        KeyspaceUnknown: if there is no such checkpoint.
    """
    for keys in reversed(all_keys(catalog, name)):
        for candidate in reversed(numbers_in(catalog.store, keys.manifests)):
            if number in (None, candidate):
                found = read_manifest(catalog.store, keys, candidate)
                # The newest one may be abandoned, and is passed over then.
                if found is not None:
                    return found
    which = "no complete checkpoint" if number is None else f"no checkpoint epoch-{number}"
    raise KeyspaceUnknown(f"keyspace {name!r} has {which}")
