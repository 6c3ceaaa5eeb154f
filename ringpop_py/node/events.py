"""The last facts of a node, for an operator who wants to know what happened, and why."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.logs import log
from ringpop_py.base.texts import printable
from ringpop_py.member.swim.records import record_of

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.records import Record
    from ringpop_py.net.security.identity import Identity

EVENTS_MAX: Final = 2_000
PAGE_MAX: Final = 500
WAIT_S_MAX: Final = 30.0
TROUBLES_MAX: Final = 16
TROUBLED_MAX: Final = 1_000
FORGET_S: Final = 3600.0
WHAT_CHARACTERS_MAX: Final = 500
ASKED_CHARACTERS_MAX: Final = 500
OF_ITSELF: Final = frozenset(["stalled", "refuted", "ready"])
"""The events that say what happened to this node itself, and name no member."""


@dataclass(frozen=True, slots=True)
class Event:
    """A fact, when it happened by our wall clock, and its number, which counts up from 1."""

    number: int
    at: float
    fact: Effect | Record

    def record(self) -> Record:
        """Return the event as one flat record, for programs."""
        fact = self.fact if isinstance(self.fact, dict) else record_of(self.fact) or {}
        return {"number": self.number, "at": self.at, **fact}


class LoggedTroubles:
    """Remembers which troubles with which peers were logged, so that each is logged once.

    It is bounded, whatever peers send: `TROUBLES_MAX` troubles of one peer are logged, of at most
    `TROUBLED_MAX` peers. With more peers everything is forgotten, at most once in `FORGET_S`;
    until then, troubles of further peers are not logged.
    """

    def __init__(self) -> None:
        self._told: dict[str, set[str]] = {}
        self._forgotten_at = -math.inf

    def first_time(self, peer: str, what: str, now: float) -> bool:
        """Return whether to log *what* of *peer*; it counts as logged from now on."""
        if peer not in self._told and len(self._told) >= TROUBLED_MAX:
            if now < self._forgotten_at + FORGET_S:
                return False
            self._told.clear()
            self._forgotten_at = now
        known = self._told.setdefault(peer, set())
        # A peer chooses the text, and it is remembered for an hour or longer.
        what = what[:WHAT_CHARACTERS_MAX]
        if what in known or len(known) >= TROUBLES_MAX:
            return False
        known.add(what)
        return True


class EventLog:
    """Keeps the last `EVENTS_MAX` facts; older ones are forgotten.

    Attributes:
        last_number: the number of the latest event; 0 if there was none.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.last_number = 0
        self._more = trio.Event()

    def note(self, fact: Effect | Record) -> None:
        """Keep *fact* of the protocol, or a record of what stands above it, with a ``text``."""
        self.last_number += 1
        # The wall clock, so that an operator can put the events of several nodes in order.
        self._events.append(Event(self.last_number, time.time(), fact))
        self._more.set()  # wakes those who wait now; later ones wait for the next event
        self._more = trio.Event()

    def after(self, number: int) -> list[Record]:
        """Return up to `PAGE_MAX` events after event *number*, oldest first."""
        found = [event for event in self._events if event.number > number]
        return [event.record() for event in found[:PAGE_MAX]]

    def last(self, count: int) -> list[Record]:
        """Return the last *count* events, `PAGE_MAX` at most, oldest first."""
        count = min(count, PAGE_MAX, len(self._events))
        return [self._events[-count + index].record() for index in range(count)]

    def about(self, name: str, *, is_own: bool = False) -> list[Record]:
        """Return the last `PAGE_MAX` events about the member *name*, oldest first.

        Args:
            is_own: whether that is this node, whose own pauses and refutations name no member.
        """
        records = (event.record() for event in self._events)
        found = [
            record
            for record in records
            if record.get("member") == name or (is_own and record["event"] in OF_ITSELF)
        ]
        return found[-PAGE_MAX:]

    async def wait_after(self, number: int, timeout_s: float) -> None:
        """Return once there is an event after event *number*, or the time is over."""
        with trio.move_on_after(min(timeout_s, WAIT_S_MAX)):
            while self.last_number <= number:
                await self._more.wait()


def log_change(endpoint: str, caller: str, asked: object, identity: Identity | None = None) -> None:
    """Log that *caller* asks for a change. Later records say whether it was made.

    Args:
        identity: who the caller has proved to be.
    """
    who = "" if identity is None else str(identity)
    body = repr(asked)[:ASKED_CHARACTERS_MAX]  # not as JSON, which has no bytes
    by = f"{who} at {caller}" if who else caller
    text = f"{by} calls {endpoint}" + (f" with {body}" if asked else "")
    fields = {"caller": caller, "identity": who, "endpoint": endpoint, "asked": body}
    log.info("change-asked", text=printable(text), **fields)
