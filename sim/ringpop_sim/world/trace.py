"""What happened: a rolling digest of all events, and the facts as records for people."""

from __future__ import annotations

import struct
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import xxhash

from ringpop_py.member.swim.effects import StatusChanged

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.member import Member
    from ringpop_sim.world.process import Process

DIGEST_EVENTS: Final = 10_000
"""A digest is kept each time after this many events, so that a divergence can be located."""
SENT, ARRIVED, ANSWERED, FAILED, WOKEN, NOTED = range(6)
"""The kinds of events in the digest."""
# Of one byte order and size, so that stored cases have the same digest on every machine.
_EVENT: Final = struct.Struct("<qqqq").pack


class Trace:
    """The trace of one run.

    Attributes:
        records: (instant, process, effect) of each fact, if they are kept.
        digests: the digest after every `DIGEST_EVENTS` events.
    """

    def __init__(self, *, keep: bool) -> None:
        self._hash = xxhash.xxh64(seed=0)
        self._keep = keep
        self._count = 0
        self.records: list[tuple[int, Process, Effect]] = []
        self.digests: list[str] = []

    def event(self, now: int, kind: int, serial: int, detail: int) -> None:
        """Add an event at *now* to the digest."""
        self._hash.update(_EVENT(now, kind, serial, detail))
        self._count += 1
        if self._count % DIGEST_EVENTS == 0:
            self.digests.append(self._hash.hexdigest())

    def fact(self, now: int, process: Process, effect: Effect) -> None:
        """Add a fact that a node reported to the digest and, if they are kept, to the records."""
        # Also if facts are not kept: the digest must not depend on whether they are read.
        self._hash.update(_brief(effect).encode())
        if self._keep:
            self.records.append((now, process, effect))

    def note(self, now: int, serial: int, what: object) -> None:
        """Add what the keyspace of a process has done to the digest, by its `repr`."""
        self.event(now, NOTED, serial, xxhash.xxh32_intdigest(repr(what).encode()))

    @property
    def digest(self) -> str:
        """The digest of all events and facts so far."""
        return self._hash.hexdigest()


def _brief(effect: Effect) -> str:
    """Return the text of *effect* for the digest; `repr` is too slow for the most frequent kind."""
    if not isinstance(effect, StatusChanged):
        return repr(effect)
    rows = f"{_row(effect.before)} {_row(effect.after)}"
    return f"{rows} {effect.via} {effect.told_by} {effect.source} {effect.waited_us}"


def _row(member: Member | None) -> str:
    if member is None:
        return "-"
    return f"{member.name} {member.incarnation} {int(member.status)} {member.damping}"


def plain(value: Any) -> Any:  # noqa: ANN401 - any field
    """Return *value*, a field of an operation, in types that JSON has."""
    if isinstance(value, Enum):
        return value.name.lower()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "port"):  # an address, before other tuples
        return str(value)
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value
