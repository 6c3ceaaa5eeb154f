"""Trims the journals of nodes that have ended, now and then, for all members."""

from __future__ import annotations

import random
import secrets
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.base.logs import log
from ringpop_py.state.durable.settle import settle
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.catalog.high_water import ReachedBook
    from ringpop_py.state.catalog.journalstore import JournalStore
    from ringpop_py.state.catalog.layout import KeyspaceKeys
    from ringpop_py.state.durable.writer import Writer
    from ringpop_py.state.tasks import Worker

SWEEP_S: Final = 600.0
"""The seconds between two sweeps: the journals of nodes that have ended only take up room."""


class Sweeper:
    """Sweeps the journals of one keyspace besides that of *writer*."""

    def __init__(
        self,
        keys: KeyspaceKeys,
        worker: Worker,
        writer: Writer,
        logs: JournalStore,
        reached: ReachedBook,
    ) -> None:
        self._reached = reached
        self._keys = keys
        self._worker = worker
        self._writer = writer
        self._logs = logs
        self._rng = random.Random(secrets.randbits(64))
        self._done: dict[str, int] = {}
        """The journals that are trimmed up to their end, and their highest marks."""

    async def run(self, is_ours: Callable[[], bool]) -> None:
        """Sweep from time to time if *is_ours* returns that this node should, until cancelled."""
        while True:
            await trio.sleep(SWEEP_S * self._rng.uniform(0.8, 1.2))
            if is_ours():
                try:
                    await self.sweep()
                except KeyspaceError as error:
                    name = self._keys.name
                    log.warning("journals-not-swept", keyspace=name, text=str(error))

    async def sweep(self) -> None:
        """Trim all journals that are not trimmed up to their end, and what is noted of them.

        Raises:
            StoreUnavailable: if the store does not answer.
        """
        keys = self._keys
        listed: list[str] = await self._worker.run(self._worker.store.list, keys.journals)
        names = dict.fromkeys(keys.journal_in(key) for key in listed)
        self._done = {name: mark for name, mark in self._done.items() if name in names}
        for name in names:
            if name == self._writer.journal.name or name in self._done:
                continue
            sweep = Sweep(name)
            (fact,) = await settle(sweep, sweep.begin(), self._logs.perform)
            assert isinstance(fact, fx.Trimmed)
            if fact.failed:
                log.info("journal-not-swept", keyspace=keys.name, journal=name)
            elif sweep.at_end:
                self._done[name] = fact.first
        needless = await self._worker.run(self._reached.needless, self._done)
        if needless:
            await self._worker.run(self._worker.store.delete, needless)
