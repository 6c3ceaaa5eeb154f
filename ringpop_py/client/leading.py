"""Holding a name from a program that is no member: by beats through a daemon."""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from ringpop_py.base.errors import ConfigError, LeadershipLost, RingpopError
from ringpop_py.state.leaders.election import (
    Candidate,
    Election,
    ElectionOver,
    ReadRecord,
    SwapRecord,
    TermGained,
    TermLost,
    WaitUntil,
)
from ringpop_py.state.leaders.lead import RELEASE_S, Lead, is_final
from ringpop_py.state.leaders.lead import leading as leading_in_task
from ringpop_py.state.leaders.record import (
    READ,
    SWAP,
    checked_above,
    checked_name,
    checked_ttl_s,
    record_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager

    from ringpop_py.state.leaders.election import Effect
    from ringpop_py.state.leaders.record import LeaderRecord

TIMEOUT_S_MIN: Final = 0.05


class _AsyncAdmin(Protocol):
    async def admin(self, endpoint: str, body: object, *, timeout_s: float) -> Any: ...  # noqa: ANN401 - a plain value


class _Admin(Protocol):
    def admin(self, endpoint: str, body: object, *, timeout_s: float) -> Any: ...  # noqa: ANN401 - as above


def async_leading(
    client: _AsyncAdmin, name: str, ttl_s: float, above: int
) -> AbstractAsyncContextManager[Lead]:
    """See `AsyncClient.leader`."""
    me = _candidate(ttl_s, above, anyio.current_time())
    return leading_in_task(checked_name(name), Election(me), _RemoteRecords(client))


@contextmanager
def leading(client: _Admin, name: str, ttl_s: float, above: int) -> Iterator[Lead]:
    """See `Client.leader`: a thread beats while the block runs."""
    election = Election(_candidate(ttl_s, above, time.monotonic()))
    holder = _ThreadHolder(client, checked_name(name), election)
    try:
        holder.until(TermGained)
        lead = Lead(name, election, time.monotonic)
        beats = threading.Thread(
            target=holder.keep, args=(lead,), name=f"leader {name}", daemon=True
        )
        beats.start()
        try:
            yield lead
        finally:
            why = lead.why_lost()  # after a pause, that thread may not know it yet
            holder.stopped.set()
            beats.join()
    finally:
        holder.release()
    if why or isinstance(holder.end, TermLost):  # or in the release
        raise LeadershipLost(why or lead.why_lost())


def _candidate(ttl_s: float, above: int, now: float) -> Candidate:
    return Candidate(
        holder=f"{socket.gethostname()}/{os.getpid()}",
        is_member=False,
        nonce=secrets.token_hex(12),
        ttl_s=checked_ttl_s(ttl_s),
        above=checked_above(above),
        wall_offset_s=time.time() - now,
    )


class _RemoteRecords:
    """See `Records`."""

    def __init__(self, client: _AsyncAdmin) -> None:
        self._client = client

    async def read(self, name: str, timeout_s: float) -> tuple[LeaderRecord | None, bool]:
        """See `Records`."""
        answer = await self._client.admin(READ, {"name": name}, timeout_s=_some(timeout_s))
        return _read_of(answer, name)

    async def swap(self, name: str, swap: SwapRecord, timeout_s: float) -> bool:
        """See `Records`."""
        body = _swap_body(name, swap)
        answer = await self._client.admin(SWAP, body, timeout_s=_some(timeout_s))
        return bool(answer["is_done"])

    async def gone(self, _record: LeaderRecord | None) -> None:
        """See `Records`: the daemon says it when it is asked next."""
        await anyio.sleep(math.inf)


class _ThreadHolder:
    """Carries out what an election asks for, in whichever thread calls; in one at a time."""

    def __init__(self, client: _Admin, name: str, election: Election) -> None:
        self.stopped = threading.Event()
        self.end: Effect | None = None
        self._client = client
        self._name = name
        self._election = election

    def until(self, *kinds: type[Effect], until: float = math.inf) -> None:
        """Go on until the election says one of *kinds*, which is *end* then; or until a stop."""
        while not self.stopped.is_set() and time.monotonic() < until:
            effect = self._election.next(time.monotonic())
            if isinstance(effect, (*kinds, TermLost, ElectionOver)):
                self.end = effect
                return
            if isinstance(effect, WaitUntil):
                self.stopped.wait(effect.at - time.monotonic())
            elif isinstance(effect, ReadRecord | SwapRecord):
                self._ask(effect)

    def keep(self, lead: Lead) -> None:
        """Beat, and say when the name is lost."""
        self.until(TermLost)
        if isinstance(self.end, TermLost):
            lead.lost.set()

    def release(self) -> None:
        """Release the name, if it is held."""
        self.stopped.clear()
        self._election.resign(time.monotonic())
        if not isinstance(self.end, TermLost):
            self.until(ElectionOver, until=time.monotonic() + RELEASE_S)

    def _ask(self, effect: ReadRecord | SwapRecord) -> None:
        election, client = self._election, self._client
        timeout_s = _some(election.patience_s(time.monotonic()))
        try:
            if isinstance(effect, ReadRecord):
                answer = client.admin(READ, {"name": self._name}, timeout_s=timeout_s)
                record, is_gone = _read_of(answer, self._name)
                election.seen(record, time.monotonic(), is_gone=is_gone)
            else:
                answer = client.admin(SWAP, _swap_body(self._name, effect), timeout_s=timeout_s)
                election.swapped(time.monotonic(), is_done=bool(answer["is_done"]))
        except RingpopError as error:
            if election.waits and is_final(error):
                raise
            election.failed(time.monotonic())


def _some(timeout_s: float) -> float:
    return max(timeout_s, TIMEOUT_S_MIN)


def _swap_body(name: str, swap: SwapRecord) -> dict[str, Any]:
    before = swap.before and swap.before.as_value()
    return {"name": name, "before": before, "after": swap.after.as_value()}


def _read_of(answer: dict[str, Any], name: str) -> tuple[LeaderRecord | None, bool]:
    if "refused" in answer:
        raise ConfigError(answer["refused"])
    return record_in(answer["record"], name), bool(answer["is_gone"])
