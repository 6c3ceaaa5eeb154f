"""The durable keyspaces in this node's store: made, found, dropped."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ringpop_py.catalog.catalog import Catalog
from ringpop_py.errors import KeyspaceConflict, StoreUnavailable
from ringpop_py.logs import log
from ringpop_py.partition.fence import fence_at_once
from ringpop_py.partition.tasks import Worker
from ringpop_py.stores.layout import KeyspaceKeys
from ringpop_py.stores.store import Store  # noqa: TC001 - read at run time

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.catalog.catalog import CatalogEntry
    from ringpop_py.config.settings import Config
    from ringpop_py.placing.definition import Definition
    from ringpop_py.stores.rocks import RocksDatabase

STORE_LABEL: Final = "ringpop.store"
"""Of members that have a store: which one. Partitions go to members of the same store alone."""

CATALOG_S: Final = 1.0
"""How long to wait before a store that did not answer is read again."""


class OpenedStore(NamedTuple):
    """A store, what tells it from others, and where entries of its partitions are: memory if None.

    Who opened them closes them.
    """

    store: Store
    id: str
    rocks: RocksDatabase | None = None

    @property
    def label(self) -> tuple[str, str]:
        """What members say who have it."""
        return STORE_LABEL, self.id


class StoredKeyspaces:
    """What the catalog in *opened* says, told to *learn* entry by entry.

    Methods raise `StoreUnavailable`, unless they say otherwise.
    """

    def __init__(
        self, opened: OpenedStore, config: Config, learn: Callable[[CatalogEntry], None]
    ) -> None:
        self.opened = opened
        self.catalog = Catalog(opened.store, config.cluster)
        self.worker = Worker(opened.store, config.state.store_threads)
        self._learn = learn

    async def create(self, definition: Definition) -> None:
        """Have the keyspace of this *definition*. Raises KeyspaceConflict, KeyspaceUnknown."""
        self._learn(await self.worker.run(self.catalog.create, definition))

    async def find(self, name: str) -> None:
        """Learn of the keyspace *name*, if the store knows it. Raises KeyspaceConflict."""
        entry = await self.worker.run(self.catalog.find, name)
        if entry is not None:
            self._learn(entry)

    async def look_up(self, name: str) -> None:
        """As `find`, where others may tell us if the store does not. Raises nothing."""
        with suppress(StoreUnavailable, KeyspaceConflict):
            await self.find(name)

    async def drop(self, name: str, spread: Callable[[CatalogEntry], None]) -> CatalogEntry:
        """Drop the keyspace *name*, have others told, and fence its partitions.

        Raises:
            KeyspaceUnknown: there is none.
        """
        entry = await self.worker.run(self.catalog.drop, name)
        spread(entry)
        keys = KeyspaceKeys(self.catalog.cluster, name, entry.generation)
        count = entry.definition.partitions
        await fence_at_once(self.worker, self.catalog.store, keys, count)
        return entry

    async def read(self, tried: trio.Event) -> None:
        """Learn of all keyspaces: nobody else may be there to tell us. Sets *tried* after a try."""
        while not await self._read():
            tried.set()
            await trio.sleep(CATALOG_S)
        tried.set()

    async def _read(self) -> bool:
        """Learn of all keyspaces in the store. Whether it answered."""
        try:
            for name in await self.worker.run(self.catalog.names):
                try:
                    await self.find(name)
                except KeyspaceConflict as error:  # this one alone
                    log.warning("keyspace-not-read", keyspace=name, text=str(error))
        except StoreUnavailable as error:
            log.warning("keyspaces-not-read", text=str(error))
            return False
        return True
