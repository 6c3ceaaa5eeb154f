"""The durable keyspaces in this node's store: created, found, dropped."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ringpop_py.base.errors import StateDamaged, StoreUnavailable
from ringpop_py.base.logs import log
from ringpop_py.member.swim.member import STORE_LABEL
from ringpop_py.state.catalog.catalog import Catalog
from ringpop_py.state.catalog.fence import fence_at_once
from ringpop_py.state.stores.store import Store  # noqa: TC001 - read at run time
from ringpop_py.state.tasks import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.config.settings import Config
    from ringpop_py.state.catalog.catalog import CatalogEntry
    from ringpop_py.state.placement.definition import Definition
    from ringpop_py.state.stores.rocks import RocksDatabase

CATALOG_S: Final = 1.0
"""The seconds after which a store that did not answer is read again."""


class OpenedStore(NamedTuple):
    """A store, which its opener closes.

    Attributes:
        id: tells it from other stores.
        rocks: holds the entries of partitions on disk; None if they are in memory.
    """

    store: Store
    id: str
    rocks: RocksDatabase | None = None

    @property
    def label(self) -> tuple[str, str]:
        """The label of the members that have this store."""
        return STORE_LABEL, self.id


class StoredKeyspaces:
    """The catalog in *opened*, whose entries are passed to *learn*.

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
        """Create the keyspace if it does not exist.

        Raises KeyspaceConflict, KeyspaceUnknown, StateDamaged.
        """
        self._learn(await self.worker.run(self.catalog.create, definition))

    async def find(self, name: str) -> None:
        """Learn the keyspace *name*, if it is in the store. Raises StateDamaged."""
        entry = await self.worker.run(self.catalog.find, name)
        if entry is not None:
            self._learn(entry)

    async def look_up(self, name: str) -> None:
        """As `find`, but raise nothing."""
        with suppress(StoreUnavailable, StateDamaged):  # gossip may bring it as well
            await self.find(name)

    async def drop(self, name: str, spread: Callable[[CatalogEntry], None]) -> CatalogEntry:
        """Drop the keyspace *name*, *spread* the news, and fence its partitions.

        Raises:
            KeyspaceUnknown: if it does not exist.
        """
        entry = await self.worker.run(self.catalog.drop, name)
        spread(entry)  # before the fences: owners that learn of it stop without being fenced
        keys, count = self.catalog.keys_of(entry), entry.definition.partitions
        await fence_at_once(self.worker, self.catalog.store, keys, count)
        return entry

    async def read(self, tried: trio.Event) -> None:
        """Learn all keyspaces in the store, until it answers; set *tried* after the first try."""
        while True:
            try:
                for name in await self.worker.run(self.catalog.names):
                    try:
                        await self.find(name)
                    except StateDamaged as error:  # the others can be read
                        log.warning("keyspace-not-read", keyspace=name, text=str(error))
            except StoreUnavailable as error:
                log.warning("keyspaces-not-read", text=str(error))
            else:
                return
            finally:
                # After any first try, so that a store that is down delays the start only a little.
                tried.set()
            await trio.sleep(CATALOG_S)
