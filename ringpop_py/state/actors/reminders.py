"""Reminders of actors: what a turn arms and cancels, and which are delivered now (pure).

A reminder is part of its actor's record. So it goes wherever that goes: into journals, checkpoints
and backups, and to the next owner. Before the record stands the instant of the first one, which the
owner's index follows. What a turn with a reminder changes, and that this reminder is over, are one
write, conditional on the record's version. So a reminder is delivered until a turn with it has
returned, and takes effect once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.arguments import checked_text, instant_ms, ms_of
from ringpop_py.base.errors import BadOperation, ConfigError
from ringpop_py.base.values.packed import decode_value
from ringpop_py.state.actors.mail import pack
from ringpop_py.state.table.due import NEVER_MS, WAKES, DueTimes, instant_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping, Sequence

    from ringpop_py.base.arguments import ZonedTime
    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.table.due import DueClock

REMINDERS_MAX: Final = 64
"""The most reminders of an actor."""
NAME_CHARACTERS_MAX: Final = 256
WAKING_MAX: Final = 256
"""The most actors of a keyspace that are at work at a node because of reminders."""
FIRST_RETRY_MS: Final = 1_000
RETRY_MS_MAX: Final = 60_000
LOOK_MS: Final = 1_000
"""The longest from one look at what is due to the next: partitions come, and clocks are set."""
TOGETHER_MS: Final = 100
"""The shortest."""


@dataclass(frozen=True, slots=True)
class Reminder:
    """A message of an actor to itself, at the time for which it was armed.

    Attributes:
        due_at: that time, in seconds since 1970.
        message: as it was armed with.
    """

    name: str
    due_at: float
    message: Value = None


class Armed(NamedTuple):
    """A reminder that is not over.

    Attributes:
        message: packed.
        every_ms: after which time it is due again; 0 if it is then over.
    """

    at_ms: int
    message: bytes
    every_ms: int


Reminders = dict[str, Armed]
"""Those of an actor, by name."""
Turn = tuple[int, str]
"""Identifies a reminder: its instant and its name."""


def reminders_in(record: Mapping[str, Any]) -> Reminders:
    """Return the reminders in the *record* of an actor.

    Raises:
        TypeError, ValueError, AttributeError: if they are malformed.
    """
    found = {name: Armed(*row) for name, row in record.get("reminders", {}).items()}
    for name, armed in found.items():
        sound = [*map(type, (name, *armed))] == [str, int, bytes, int]
        if not (sound and 0 <= armed.at_ms < NEVER_MS and armed.every_ms >= 0):
            raise ValueError("a reminder has a name, an instant, a message and an interval")
    return found


def instant_before(reminders: Reminders) -> int | None:
    """Return the instant that stands before the record of an actor; None if it has no reminders."""
    first_ms = min((armed.at_ms for armed in reminders.values()), default=None)
    return None if first_ms is None else first_ms + WAKES


def next_turn(reminders: Reminders, after: Turn | None, due_ms: int) -> Turn | None:
    """Return the first of *reminders*, in the order of turns, that is *after* one and due."""
    turns = ((armed.at_ms, name) for name, armed in reminders.items() if armed.at_ms <= due_ms)
    return min((turn for turn in turns if after is None or turn > after), default=None)


def reminder_of(reminders: Reminders, turn: Turn) -> Reminder:
    """Return what to deliver for *turn*."""
    at_ms, name = turn
    return Reminder(name, at_ms / 1_000, decode_value("msgpack", reminders[name].message))


def without(reminders: Reminders, turn: Turn, due_ms: int) -> Reminders:
    """Return *reminders* after *turn*, which is over or, if it repeats, due again after *due_ms*.

    What was missed meanwhile, because its owner was away, is not made up for.
    """
    at_ms, name = turn
    found = {other: armed for other, armed in reminders.items() if other != name}
    armed = reminders[name]
    if armed.every_ms:
        times = max(due_ms - at_ms, 0) // armed.every_ms + 1
        found[name] = armed._replace(at_ms=at_ms + times * armed.every_ms)
    return found


class Agenda:
    """The reminders of an actor during one of its turns.

    Args:
        now_ms: from which times are counted: `DueClock.set_ms`.

    Attributes:
        armed: what there is after the turn, unless it fails.
        closed: whether the turn is over.
    """

    def __init__(self, armed: Reminders, now_ms: int) -> None:
        self.armed = dict(armed)
        self.closed = False
        self._now_ms = now_ms

    def close(self) -> None:
        """Accept no more changes: a task of the actor may outlive the turn."""
        self.closed = True

    def remind(
        self,
        name: str,
        message: Value,
        in_s: float | None,
        at: float | ZonedTime | None,
        every_s: float | None,
    ) -> None:
        """See `Actor.remind`."""
        if not 0 < len(checked_text(name, "the name of a reminder")) <= NAME_CHARACTERS_MAX:
            raise ConfigError(f"the name of a reminder has 1 to {NAME_CHARACTERS_MAX} characters")
        if in_s is not None and at is not None:
            raise ConfigError("in_s and at exclude each other: give one of them")
        every_ms = 0 if every_s is None else ms_of(every_s, "every_s")
        if 0 < every_ms < LOOK_MS:
            raise ConfigError(f"every_s is 1 or more seconds, not {every_s!r:.60}")
        if at is not None:
            at_ms = instant_ms(at, "at")
        elif in_s is not None:
            what = "0 or more seconds, at most 100 years"
            at_ms = self._now_ms + (0 if in_s == 0 else ms_of(in_s, "in_s", what))
        elif every_ms:
            at_ms = self._now_ms + every_ms
        else:
            raise ConfigError(f"when is reminder {name!r} due? Give in_s, at or every_s")
        self.armed[name] = Armed(at_ms, pack(message), every_ms)
        if len(self.armed) > REMINDERS_MAX:
            del self.armed[name]
            raise BadOperation(f"an actor has at most {REMINDERS_MAX} reminders")

    def cancel(self, name: str) -> bool:
        """See `Actor.cancel_reminder`."""
        return self.armed.pop(name, None) is not None


def wakes_at_ms(stored: bytes) -> int | None:
    """Return when the first reminder is due of what is *stored*; None if it has none."""
    instant = instant_of(stored)
    return instant - WAKES if instant is not None and instant >= WAKES else None


class WakeTimes(DueTimes):
    """When actors of a partition have reminders."""

    of = staticmethod(wakes_at_ms)

    def __init__(self, clock: DueClock) -> None:
        super().__init__(clock)
        self._wall = clock
        # Of those that were postponed: when they were due, and when they were postponed first.
        self._late: dict[str, tuple[int, int]] = {}

    def note(self, changed: Mapping[str, bytes], deleted: Iterable[str]) -> None:
        """Follow what was written."""
        if self._late:
            for key in (*changed, *deleted):
                self._late.pop(key, None)
        super().note(changed, deleted)

    def clear(self) -> None:
        """Forget all."""
        super().clear()
        self._late.clear()

    def postpone(self, key: str) -> None:
        """Leave an actor alone that has failed, ever longer, or until its record is written."""
        at_ms, now_ms = self._at.get(key), self._wall.due_ms()
        if at_ms is not None:
            _, since_ms = self._late.setdefault(key, (at_ms, now_ms))
            self._set(key, now_ms + min(max(now_ms - since_ms, FIRST_RETRY_MS), RETRY_MS_MAX))

    def overdue_s(self) -> float:
        """Return for how many seconds the oldest reminder has been due; 0 if none is."""
        since_ms = min((at_ms for at_ms, _ in self._late.values()), default=NEVER_MS)
        return max((self._wall.due_ms() - since_ms) / 1_000, super().overdue_s())

    def clocks(self) -> tuple[int, int]:
        """Return from when instants are counted now, and up to when they are due."""
        return self._wall.set_ms(), self._wall.due_ms()

    def wait_ms(self) -> int:
        """Return how long nothing will be due; 0 if something is."""
        return 0 if self.is_any_due else self.first_ms - self._wall.due_ms()


class ActorDueTimes(DueTimes):
    """When keys of a partition expire; and beside that, when its actors have reminders."""

    def __init__(self, clock: DueClock, *, expired: Counter[str], name: str) -> None:
        super().__init__(clock, expired=expired, name=name)
        self.wakes = WakeTimes(clock)

    def note(self, changed: Mapping[str, bytes], deleted: Iterable[str]) -> None:
        """Follow what was written."""
        super().note(changed, deleted)
        self.wakes.note(changed, deleted)
        self.used = self.used or self.wakes.used  # whether there is something before values

    def clear(self) -> None:
        """Forget all."""
        super().clear()
        self.wakes.clear()


class Rounds:
    """Which actors of a node to wake, and when to look again.

    Attributes:
        begun: those that were woken and are not done, by partition and key.
    """

    def __init__(self) -> None:
        self.begun: set[tuple[int, str]] = set()
        self._count = 0
        self._is_full = False

    def begin(self, there: Sequence[tuple[int, WakeTimes]]) -> list[tuple[int, str]]:
        """Return which actors to wake, of the partitions that are *there*, each time others first.

        No more than `WAKING_MAX` are begun: others wait, so that messages to actors go on.
        """
        self._count += 1
        first = self._count % max(len(there), 1)
        found: list[tuple[int, str]] = []
        room = WAKING_MAX - len(self.begun)
        for number, wakes in (*there[first:], *there[:first]):
            if len(found) < room and wakes.is_any_due:
                due = ((number, key) for key in wakes.due())
                others = (actor for actor in due if actor not in self.begun)
                found += islice(others, room - len(found))
        self.begun.update(found)
        self._is_full = len(found) == room
        return found

    def ended(self, actor: tuple[int, str]) -> bool:
        """Note that *actor* is done; return whether to look now which others wait."""
        self.begun.remove(actor)
        return self._is_full and len(self.begun) <= WAKING_MAX // 2

    def wait_s(self, there: Sequence[tuple[int, WakeTimes]]) -> float:
        """Return how long to wait before the next look, unless `ended` says otherwise."""
        waits = [ms for _, wakes in there if 0 < (ms := wakes.wait_ms()) < LOOK_MS]
        return max(min(waits, default=LOOK_MS), TOGETHER_MS) / 1_000
