"""When keys expire: an instant before the packed value of each key that does, and their index.

The instant is part of what is stored, so it goes wherever the value goes: into journals and
checkpoints, to other copies, into backups. Nobody decides by a clock but the owner of a partition,
who deletes what is due by an entry of the log (`KeyedState.expired`). So a key expires once, at one
moment for all who read or replay.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Protocol

from ringpop_py.base.arguments import DELAY_S_MAX
from ringpop_py.base.errors import BadOperation
from ringpop_py.state.table.aggregations import ABSENT, Expiring

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.table.aggregations import Absent, Aggregations


MARK: Final = b"\xc1"
"""The first byte of a value with an instant. It begins no value of msgpack, and never will."""
INSTANT_BYTES: Final = 1 + 8
WAKES: Final = 1 << 63
"""Added to an instant at which the key does not expire: its owner has something to do then."""
EXPIRING: Final = "expiring"
"""The operation that makes another one, after which the key has an instant. Its argument is a list:
the other's name and argument, and the instant in milliseconds: from now on, or since 1970."""
PERSIST: Final = "persist"
"""The operation that takes a key's instant away, and keeps its value."""
PIECE_KEYS: Final = 1_000
"""The most keys that expire by one entry of the log: the requests between two wait for one."""
EXPIRES_S_MAX: Final = DELAY_S_MAX
NEVER_MS: Final = 1 << 62

_PARTS_COUNT: Final = 4
_first: Final = itemgetter(slice(0, 1))


class DueClock(Protocol):
    """The time by which keys expire, in milliseconds since 1970.

    While most members' clocks are right, no key expires early: `set_ms` is never behind the true
    time, and `due_ms` never ahead of it.
    """

    def set_ms(self) -> int:
        """Return the time from which instants are counted."""

    def due_ms(self) -> int:
        """Return the time up to which instants are due."""


def stamped(packed: bytes, at_ms: int | None) -> bytes:
    """Return *packed* with that instant before it."""
    return packed if at_ms is None else MARK + at_ms.to_bytes(8, "big") + packed


def at_ms_of(stored: bytes) -> int | None:
    """Return when the key of what is *stored* expires; None if it does not."""
    instant = instant_of(stored)
    return instant if instant is not None and instant < WAKES else None


def instant_of(stored: bytes) -> int | None:
    """Return the instant of what is *stored*, of either kind; None if it has none."""
    if stored[:1] != MARK or len(stored) < INSTANT_BYTES:
        return None
    return int.from_bytes(stored[1:INSTANT_BYTES], "big")


def plain(stored: bytes) -> bytes:
    """Return the packed value of what is *stored*."""
    return stored[INSTANT_BYTES:] if stored[:1] == MARK else stored


def have_instants(stored: Iterable[bytes]) -> bool:
    """Return whether any of what is *stored* has an instant."""
    return MARK in map(_first, stored)


class DueTimes:
    """The instants of the keys of one partition: an index, which follows from what is stored.

    Args:
        clock: None if nothing expires here: a copy for reading.
        refusal: why no key can be given an instant; empty if it can.
        expired: where the keys that have expired here are counted, under *name*.

    Attributes:
        of: from what is stored to its instant here, or None.
        used: whether any key had an instant since the state was empty. Until then it costs nothing.
    """

    of = staticmethod(at_ms_of)

    def __init__(
        self,
        clock: DueClock | None = None,
        refusal: str = "",
        *,
        expired: Counter[str] | None = None,
        name: str = "",
    ) -> None:
        self.clock = clock
        self._expired: Counter[str] = Counter() if expired is None else expired
        self._name = name
        self.refusal = refusal
        self.used = False
        self._at: dict[str, int] = {}
        # At least one row for each key, at its instant or before: renewals push none.
        self._heap: list[tuple[int, str]] = []
        self._ripe: dict[str, None] = {}  # those that have left the heap

    def __len__(self) -> int:
        return len(self._at)

    @property
    def first_ms(self) -> int:
        """When to look again: no key expires before that."""
        if self._ripe:
            return min(map(self._at.__getitem__, self._ripe))
        return self._heap[0][0] if self._heap else NEVER_MS

    def overdue_s(self) -> float:
        """Return for how many seconds the oldest key has been due; 0 if no key is."""
        if not self._at or self.clock is None or not self.due():
            return 0.0
        return max(self.clock.due_ms() - self.first_ms, 0) / 1_000

    @property
    def is_any_due(self) -> bool:
        """Whether `due` may have keys."""
        heap, clock = self._heap, self.clock
        if clock is None or not (heap or self._ripe):
            return False
        return bool(self._ripe) or heap[0][0] <= clock.due_ms()

    def note(self, changed: Mapping[str, bytes], deleted: Iterable[str]) -> None:
        """Follow what was written."""
        at = self._at
        if at:
            for key in deleted:
                at.pop(key, None)
                if key in self._ripe:  # mostly by its expiry
                    del self._ripe[key]
                    self._expired[self._name] += 1
        for key, stored in changed.items():
            instant = self.of(stored)
            if instant is not None:
                self._set(key, instant)
            elif at and at.pop(key, None) is not None:
                self._ripe.pop(key, None)
        if len(self._heap) > 2 * len(at) + PIECE_KEYS:  # of keys that were deleted, or due sooner
            self._heap = [(instant, key) for key, instant in at.items() if key not in self._ripe]
            heapify(self._heap)

    def _set(self, key: str, instant: int) -> None:
        self.used = True
        before = self._at.get(key)
        self._at[key] = instant
        if before is None or instant < before or key in self._ripe:
            self._ripe.pop(key, None)
            heappush(self._heap, (instant, key))

    def clear(self) -> None:
        """Forget all."""
        self._at.clear()
        self._heap.clear()
        self._ripe.clear()
        self.used = False

    def due(self) -> list[str]:
        """Return keys whose instant has passed by the clock now, at most `PIECE_KEYS`."""
        if self.clock is None:
            return []
        now_ms, at, heap, ripe = self.clock.due_ms(), self._at, self._heap, self._ripe
        while heap and heap[0][0] <= now_ms and len(ripe) < PIECE_KEYS:
            _, key = heappop(heap)
            instant = at.get(key)
            if instant is None or key in ripe:
                continue
            if instant > now_ms:  # it was renewed
                heappush(heap, (instant, key))
            else:
                ripe[key] = None
        return [key for key in ripe if at[key] <= now_ms]  # the clock may have been set back


def register_expiry(aggregations: Aggregations, clock: DueClock) -> None:
    """Register `EXPIRING` and `PERSIST`, by whose *clock* instants are counted."""

    def expire(there: Value | Absent, argument: Value) -> Value | Absent | Expiring:
        if type(argument) is not list or len(argument) != _PARTS_COUNT:
            raise BadOperation(f"{EXPIRING} needs a list: operation, argument, in_ms, at_ms")
        operation, inner, in_ms, at_ms = argument
        if type(operation) is not str or operation in (EXPIRING, PERSIST):
            raise BadOperation(f"{EXPIRING} needs the operation that it makes, as text")
        now_ms = clock.set_ms()
        if type(in_ms) is int and at_ms is None and 0 < in_ms <= EXPIRES_S_MAX * 1_000:
            at_ms = now_ms + in_ms
        elif type(at_ms) is not int or in_ms is not None or not 0 <= at_ms < NEVER_MS:
            raise BadOperation(f"{EXPIRING} needs in_ms or at_ms, as whole numbers above 0")
        if at_ms <= now_ms:
            late_s = (now_ms - at_ms) / 1_000
            raise BadOperation(
                f"expires_at is {late_s:.3f} s in the past, by the clock of the key's owner; to"
                " delete a key now, use delete"
            )
        value = inner if operation == "put" else aggregations.find(operation).function(there, inner)
        return value if value is ABSENT else Expiring(value, at_ms)

    def persist(there: Value | Absent, argument: Value) -> Value | Absent | Expiring:
        if argument is not None:
            raise BadOperation(f"{PERSIST} has no argument")
        return there if there is ABSENT else Expiring(there, None)

    aggregations.register_own(EXPIRING, expire)
    aggregations.register_own(PERSIST, persist)
