"""Which keyspaces a cluster has, as its store knows: definitions, generations, drops.

A name may have several generations, one after the other: a keyspace that was dropped and made
again, or restored from a checkpoint, is a new one. The newest is meant, unless it was dropped.
All of this is put if absent, so two who create or drop at once do no harm.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from ringpop_py.errors import BodyError, ConfigError, KeyspaceConflict, KeyspaceUnknown
from ringpop_py.partitions.definition import Definition
from ringpop_py.state.layout import KeyspaceKeys, catalog_prefix, store_id_key
from ringpop_py.wire.values import decode_value, encode_value

if TYPE_CHECKING:
    from ringpop_py.state.store import Store


class CatalogEntry(NamedTuple):
    """One generation of a keyspace."""

    definition: Definition
    generation: int
    dropped: bool = False

    @property
    def name(self) -> str:
        """The keyspace's."""
        return self.definition.name


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

    def entries(self) -> list[CatalogEntry]:
        """The newest generation of each keyspace, dropped ones among them; by name."""
        prefix = catalog_prefix(self.cluster)
        names = {key.removeprefix(prefix).split("/", 1)[0] for key in self.store.list(prefix)}
        found = (self.find(unquote(name)) for name in sorted(names))
        return [entry for entry in found if entry is not None]

    def find(self, name: str) -> CatalogEntry | None:
        """The newest generation of *name*."""
        prefix = catalog_prefix(self.cluster, name)
        keys = [key.removeprefix(prefix) for key in self.store.list(prefix)]
        generations = [int(key.split("/")[0]) for key in keys if key.endswith("/definition")]
        if not generations:
            return None
        newest = max(generations)
        dropped = any(key.startswith(f"{newest:06}/dropped") for key in keys)
        return self._read(name, newest, dropped=dropped)

    def create(self, definition: Definition) -> CatalogEntry:
        """The keyspace of this *definition*, made unless it is there.

        Raises:
            KeyspaceConflict: there is one of this name that is defined otherwise.
        """
        found = self.find(definition.name)
        if found is None or found.dropped:
            found = self.create_after(found.generation if found else 0, definition)
        difference = definition.difference_from(found.definition)
        if difference:
            message = f"keyspace {definition.name!r} exists and was created with {difference}"
            raise KeyspaceConflict(message)
        return found

    def create_after(self, generation: int, definition: Definition) -> CatalogEntry:
        """The generation after *generation*: of this *definition*, unless somebody was faster."""
        keys = KeyspaceKeys(self.cluster, definition.name, generation + 1)
        self.store.put_if_absent(keys.definition, encode_value("msgpack", definition.as_record()))
        return self._read(definition.name, generation + 1, dropped=False)

    def drop(self, name: str) -> CatalogEntry:
        """Mark *name* as dropped. Its data stay in the store.

        Raises:
            KeyspaceUnknown: there is none of this name.
        """
        found = self.find(name)
        if found is None or found.dropped:
            message = f"no keyspace {name!r} in cluster {self.cluster!r}"
            raise KeyspaceUnknown(message)
        keys = KeyspaceKeys(self.cluster, name, found.generation)
        self.store.put_if_absent(keys.dropped, b"")
        return found._replace(dropped=True)

    def _read(self, name: str, generation: int, *, dropped: bool) -> CatalogEntry:
        key = KeyspaceKeys(self.cluster, name, generation).definition
        try:
            record = decode_value("msgpack", self.store.get(key) or b"")
            return CatalogEntry(Definition.of_record(record), generation, dropped)
        except (BodyError, ConfigError) as error:
            message = f"the definition of keyspace {name!r} cannot be read ({key}): {error}"
            raise KeyspaceConflict(message) from None
