"""Holding a name in the task that needs it, under trio or asyncio; and what the holder sees."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from ringpop_py.base.errors import LeadershipLost, RingpopError
from ringpop_py.state.leaders.election import (
    ElectionOver,
    ReadRecord,
    SwapRecord,
    TermGained,
    TermLost,
    WaitUntil,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ringpop_py.state.leaders.election import Effect, Election
    from ringpop_py.state.leaders.record import LeaderRecord

RELEASE_S: Final = 2.0
"""The most seconds for which the end of a block tries to release the name."""


class Records(Protocol):
    """Where records of leaders are read and changed."""

    async def read(self, name: str, timeout_s: float) -> tuple[LeaderRecord | None, bool]:
        """Return the record, and whether its holder is a member that is gone."""

    async def swap(self, name: str, swap: SwapRecord, timeout_s: float) -> bool:
        """Change the record; return whether it was as expected. Raises RingpopError."""

    async def gone(self, record: LeaderRecord | None) -> None:
        """Return when the holder in *record* is a member that is gone; perhaps never."""


class Lead:
    """A name that is held. Nobody can know that no other program believes to hold it, too.

    Attributes:
        name: the name.
        term: above all terms before, and of this holder alone: a token for other systems, which
            refuse those with a lower one.
        lost: set as soon as the name is known to be lost; `check` may know it before.
    """

    def __init__(self, name: str, election: Election, now: Callable[[], float]) -> None:
        self.name = name
        self.term = election.term
        self._election = election
        self._now = now
        self.lost = threading.Event()

    def __repr__(self) -> str:
        return f"<Lead {self.name!r}, term {self.term}>"

    def check(self) -> None:
        """Raise LeadershipLost if the name is no longer held, as far as is known here."""
        if why := self.why_lost():
            raise LeadershipLost(why)

    def why_lost(self) -> str:
        """Return why the name is not held; empty if it is, as far as is known here."""
        why = self._election.why_lost(self._now())
        return why and f"leader {self.name!r}, term {self.term}: {why}"


def is_final(error: RingpopError) -> bool:
    """Return whether it is useless to ask again after *error*."""
    return error.took_effect == "no" and not error.passes


@asynccontextmanager
async def leading(
    name: str, election: Election, records: Records, *, is_patient: bool = False
) -> AsyncIterator[Lead]:
    """Wait until the name is held; then run the block, which is cancelled when that ends.

    Args:
        is_patient: whether the end of the block waits until the release has taken effect.

    Raises:
        LeadershipLost: the name was lost before the block has ended.
        RingpopError: the records cannot be used.
    """
    holder = _Holder(name, election, records)
    failure: Exception | None = None
    try:
        await holder.until(TermGained)
        lead = Lead(name, election, anyio.current_time)
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as block:
                group.start_soon(holder.keep, lead, block)
                try:
                    yield lead
                except Exception as error:  # noqa: BLE001 - raised below: not in a group
                    failure = error
                finally:
                    why = lead.why_lost()  # before the release, which may take long
            group.cancel_scope.cancel()
        if is_patient:
            await holder.release()
    finally:
        with anyio.move_on_after(RELEASE_S, shield=True):
            await holder.release()
    if why or isinstance(holder.end, TermLost):  # or in the release
        raise LeadershipLost(why or lead.why_lost()) from failure
    if failure is not None:
        raise failure


class _Holder:
    """Carries out what an election asks for, one thing after the other."""

    def __init__(self, name: str, election: Election, records: Records) -> None:
        self.election = election
        self.end: Effect | None = None
        self._name = name
        self._records = records

    async def until(self, *kinds: type[Effect]) -> None:
        """Go on until the election says one of *kinds*, which is *end* then."""
        while True:
            effect = self.election.next(anyio.current_time())
            if isinstance(effect, (*kinds, TermLost, ElectionOver)):
                self.end = effect
                return
            if isinstance(effect, WaitUntil):
                await self._wait(effect)
            elif isinstance(effect, ReadRecord | SwapRecord):
                await self._ask(effect)

    async def keep(self, lead: Lead, block: anyio.CancelScope) -> None:
        """Beat, and cancel *block* when the name is lost."""
        await self.until(TermLost)
        lead.lost.set()
        block.cancel()

    async def release(self) -> None:
        """Release the name, if it is held."""
        self.election.resign(anyio.current_time())
        if not isinstance(self.end, TermLost):
            await self.until(ElectionOver)

    async def _wait(self, effect: WaitUntil) -> None:
        with anyio.move_on_after(effect.at - anyio.current_time()):
            if not effect.watches:
                await anyio.sleep_forever()
            await self._records.gone(self.election.record)
            self.election.look(anyio.current_time())

    async def _ask(self, effect: ReadRecord | SwapRecord) -> None:
        election, patience_s = self.election, self.election.patience_s(anyio.current_time())
        try:
            with anyio.fail_after(patience_s):
                if isinstance(effect, ReadRecord):
                    record, is_gone = await self._records.read(self._name, patience_s)
                    election.seen(record, anyio.current_time(), is_gone=is_gone)
                else:
                    is_done = await self._records.swap(self._name, effect, patience_s)
                    election.swapped(anyio.current_time(), is_done=is_done)
        except TimeoutError:
            election.failed(anyio.current_time())
        except RingpopError as error:
            if election.waits and is_final(error):
                raise
            election.failed(anyio.current_time())
