"""Random schedules of a log of two partitions, whose owners move, and of watchers that ask them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from ringpop_py.base.errors import KeyspaceError, PartitionUnavailable, WatchGap
from ringpop_py.base.values.declared import convert, decode, encode
from ringpop_py.base.values.packed import make_packer
from ringpop_py.state.placement.keys import Placing
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.bodies import Body
from ringpop_py.state.table.keyed import KeyedState
from ringpop_py.state.watch import recent
from ringpop_py.state.watch.course import Course
from ringpop_py.state.watch.messages import Watched
from ringpop_py.state.watch.recent import AnswerRoom, RecentChanges, WatchCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.table.keyed import Snapshot
    from ringpop_py.state.watch.course import KeyChange
    from ringpop_py.state.watch.messages import WatchPart, WatchRequest

PLACING: Final = Placing(2)
KEYS: Final = [f"{'ab'[n % 2]}{n // 2}" for n in range(24)]
STEPS: Final = 120
SMALL: Final = {
    "KEPT_MAX": 14,
    "KEPT_BYTES": 4_000,
    "SAVED_BYTES": 2_000,
    "ANSWER_BYTES": 600,
    "PAGE_ROWS": 4,
}
"""What the constants of `recent` are in these schedules."""


class Violated(Exception):
    """A promise did not hold."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is kept and sent is small, so that schedules come to the limits."""
    for name, value in SMALL.items():
        monkeypatch.setattr(recent, name, value)


def broken_in(seeds: int, make: Callable[[int], Schedule]) -> str | None:
    """What is violated first in schedules of the first *seeds* seeds."""
    for seed in range(seeds):
        try:
            make(seed).run()
        except Violated as why:
            return str(why)
    return None


class Log:
    """What is committed of a partition: its entries, and the changes of keys in their order."""

    def __init__(self) -> None:
        self.entries: list[Body] = []
        self.changes: list[tuple[str, bytes | None]] = []
        self.history: dict[str, list[int]] = {}  # by key: the numbers of its changes
        self.checkpoint: tuple[int, list[Snapshot]] = (0, [])

    def add(self, body: Body) -> None:
        self.entries.append(body)
        before = len(self.changes)
        self.changes += [*body.changed.items(), *((key, None) for key in body.deleted)]
        for number, (key, _) in enumerate(self.changes[before:], before + 1):
            self.history.setdefault(key, []).append(number)

    def last(self, key: str, upto: int) -> int:
        """The number of the last change of *key* up to that number; 0 if it had none yet."""
        return max((n for n in self.history.get(key, ()) if n <= upto), default=0)

    def must_have(self, after: int, upto: int) -> bool:
        """Whether an owner that has come up to *upto* has what comes after *after* in any case."""
        if not after < upto <= len(self.changes):
            return True  # not a number of this log
        size = sum(recent.weight(*change) for change in self.changes[after:upto])
        return upto - after <= recent.KEPT_MAX and size <= recent.SAVED_BYTES


class Owner:
    """A node that follows a log, from a checkpoint on."""

    def __init__(self, log: Log, make: type[RecentChanges]) -> None:
        self.log = log
        self.recent = make(WatchCounts())
        self.state = KeyedState(make_packer(), Aggregations(), changes=self.recent)
        self.ends: int | None = None  # how many entries there were when another took over
        self.applied, snapshots = log.checkpoint
        if snapshots:
            self.state.restore(snapshots)
        self.catch_up()

    def catch_up(self) -> None:
        entries = self.log.entries[: self.ends]
        for body in entries[self.applied :]:
            self.state.apply(list(body))  # as it is read
        self.applied = len(entries)


class Seen:
    """A watcher, and what it knows of each key: the number of the change that it has seen last."""

    def __init__(self, course: Course, wanted: WatchRequest, *, existing: bool) -> None:
        self.course, self.wanted, self.existing = course, wanted, existing
        self.position = course.position
        self.last: dict[str, int] = {}


class Schedule:
    """See the module.

    Args:
        course, changes: the classes under test, which a planted variant replaces.

    Attributes:
        counts: of what has happened.
    """

    def __init__(
        self,
        seed: int,
        course: type[Course] = Course,
        changes: type[RecentChanges] = RecentChanges,
    ) -> None:
        self.rng = random.Random(seed)
        self.make_course, self.make_changes = course, changes
        self.values = 0
        self.counts = {"rows": 0, "gaps": 0, "moves": 0, "ends": 0}
        self.logs = [Log() for _ in range(PLACING.count)]
        self.owners = [[Owner(log, changes)] for log in self.logs]  # the last one is the true one
        self.watchers: list[Seen] = []
        for _ in range(30):
            self.write(self.rng.randrange(PLACING.count))

    def run(self) -> dict[str, int]:
        acts: list[Callable[[int], None]] = [
            self.write,
            self.write,
            self.write,
            self.ask,
            self.ask,
            self.ask,
        ]
        more = [self.move, self.save, self.wake, self.begin]
        for _ in range(STEPS):
            act = self.rng.choice(acts if self.rng.random() < 0.8 else more)
            act(self.rng.randrange(PLACING.count))
        for seen in list(self.watchers):
            self.come_to_the_end(seen)
        return self.counts

    # The log and its owners.

    def write(self, number: int) -> None:
        rng, log, owner = self.rng, self.logs[number], self.owners[number][-1]
        body = self.a_body(number, owner)
        self.staged(owner, body)
        if rng.random() < 0.1:  # nobody hears whether it was committed, and another one takes over
            if rng.random() < 0.5:
                log.add(body)
            self.move(number)
            return
        log.add(body)
        owner.state.apply(body)
        owner.applied += 1

    def a_body(self, number: int, owner: Owner) -> Body:
        rng = self.rng
        mine = [key for key in KEYS if PLACING.partition_of(key) == number]
        count = rng.choice((0, 1, 1, 1, 2, 3, 8, len(mine)))
        chosen = rng.sample(mine, min(count, len(mine)))
        present = [key for key in chosen if owner.state.packed([key])[0] is not None]
        deleted = [key for key in present if rng.random() < 0.3]
        if rng.random() < 0.2:  # what is due, alone
            return Body({}, present[:2], {}, {})
        changed = {}
        for key in chosen:
            if key not in deleted:
                self.values += 1
                changed[key] = encode([self.values, "x" * rng.choice((1, 5, 30, 30, 700))])
        return Body(changed, deleted, {}, {})

    def staged(self, owner: Owner, body: Body) -> None:
        """*owner* is about to send *body* to the log."""

    def move(self, number: int) -> None:
        self.counts["moves"] += 1
        self.owners[number][-1].ends = len(self.logs[number].entries)
        self.owners[number] = [
            *self.owners[number][-1:],
            Owner(self.logs[number], self.make_changes),
        ]

    def save(self, number: int) -> None:
        owner = self.owners[number][-1]
        base = self.logs[number].checkpoint[1]
        first = owner.state.snapshot(base[-1].mark if base and self.rng.random() < 0.5 else None)
        snapshots = [first] if first.since is None else [owner.state.whole()]
        self.logs[number].checkpoint = (owner.applied, snapshots)

    def wake(self, number: int) -> None:
        """One that was deposed learns what was committed before."""
        self.owners[number][0].catch_up()

    # Watchers.

    def begin(self, _number: int) -> None:
        rng = self.rng
        if len(self.watchers) == 3:
            self.come_to_the_end(rng.choice(self.watchers))
            return
        prefix, key = rng.choice((("", None), ("", None), ("a", None), ("", rng.choice(KEYS))))
        self.start(prefix, key, None, existing=rng.random() < 0.6)

    def start(self, prefix: str, key: str | None, after: str | None, *, existing: bool) -> Seen:
        course = self.make_course("k", 1, PLACING, prefix, key, after, existing=existing)
        seen = Seen(course, course.request(0), existing=existing)
        for number, upto in course.position.numbers:
            self.knows(seen, number, upto)
        self.watchers.append(seen)
        return seen

    def wanted(self, seen: Seen, number: int) -> list[str]:
        return [k for k in KEYS if PLACING.partition_of(k) == number and seen.wanted.wants(k)]

    def knows(self, seen: Seen, number: int, upto: int) -> None:
        for key in self.wanted(seen, number):
            seen.last[key] = self.logs[number].last(key, upto)

    def ask(self, _number: int, seen: Seen | None = None) -> None:
        rng = self.rng
        if seen is None:
            if not self.watchers:
                return
            seen = rng.choice(self.watchers)
        request = decode(type(seen.wanted), encode(seen.course.request(rng.choice((0, 20)))))
        room = AnswerRoom()
        results: dict[int, Any] = {
            part.number: self.answer(request, part, room) for part in request.parts
        }
        lost = [number for number in results if rng.random() < 0.2]
        for number in lost:
            del results[number]
        before = dict(seen.course.position.numbers)
        try:
            changes = seen.course.take(results)
        except WatchGap:
            self.counts["gaps"] += 1
            self.watchers.remove(seen)
            return
        if not seen.existing:
            for number, upto in seen.course.position.numbers:
                if number not in before and isinstance(results[number], Watched):
                    self.knows(seen, number, upto)
        self.see(seen, changes)

    def answer(
        self, request: WatchRequest, part: WatchPart, room: AnswerRoom
    ) -> Watched | KeyspaceError:
        rng, owners = self.rng, self.owners[part.number]
        owner = rng.choice((owners[0], owners[-1], owners[-1]))
        if owner is not owners[-1] and not self.answers(owner, part):
            return PartitionUnavailable("it is no owner any longer")
        try:
            found = owner.recent.look(request, part, owner.state, room)
        except WatchGap as gap:
            assert part.after is not None
            log = owner.log
            upto = len(log.changes) if owner is owners[-1] else owner.recent.newest
            if log.must_have(part.after, upto):
                raise Violated(f"a gap after {part.after} of {upto}, which is kept") from gap
            return gap
        return convert(Watched, decode(object, encode(found)))

    def answers(self, owner: Owner, part: WatchPart) -> bool:
        """Whether *owner*, which was deposed and does not know it, may answer."""
        return part.after is not None and part.after <= owner.recent.newest

    def see(self, seen: Seen, changes: list[KeyChange]) -> None:
        """Judge *changes*, of which the program perhaps takes only some before it ends."""
        taken = len(changes)
        if changes and self.rng.random() < 0.15:
            taken = self.rng.randrange(1, taken + 1)
        for change in changes[:taken]:
            self.counts["rows"] += 1
            self.see_one(seen, change)
        seen.position = (
            changes[taken - 1].position if taken < len(changes) else seen.course.position
        )
        if taken < len(changes):
            self.end(seen)

    def see_one(self, seen: Seen, change: KeyChange) -> None:
        log = self.logs[PLACING.partition_of(change.key)]
        history = log.history.get(change.key, [])
        last = seen.last.get(change.key)
        if change.packed is not None:
            found = [n for n in history if log.changes[n - 1][1] == change.packed]
        else:
            found = [n for n in history if log.changes[n - 1][1] is None and n > (last or 0)][:1]
        if not found:
            raise Violated(f"{change.key} was never {change.packed!r}")
        if last is not None:
            expected = next((n for n in history if n > last), None)
            if found[0] != expected:
                raise Violated(f"{change.key}: change {found[0]} after {last}, not {expected}")
        seen.last[change.key] = found[0]

    def end(self, seen: Seen) -> None:
        """The program ends; another one goes on where it has come to, with what it knows."""
        self.counts["ends"] += 1
        self.watchers.remove(seen)
        wanted = seen.wanted
        prefix, key = ("", wanted.prefix) if wanted.exact else (wanted.prefix, None)
        before = {k: n for k, n in seen.last.items() if n}
        again = self.start(prefix, key, str(seen.position), existing=seen.existing)
        for number, upto in seen.position.numbers:
            for name in self.wanted(again, number):
                log, known = self.logs[number], before.get(name, 0)
                last = log.last(name, upto)
                later = [n for n in log.history.get(name, ()) if n >= last > 0]
                # One that a page did not have is gone by then, if not by that number.
                gone = any(log.changes[n - 1][1] is None for n in later)
                if known < last and (known or not gone):
                    raise Violated(f"{name} is left out by a watch that goes on after {upto}")

    def come_to_the_end(self, seen: Seen) -> None:
        """Nothing is written meanwhile: the watcher comes to know all."""
        for _ in range(400):
            numbers = dict(seen.course.position.numbers)
            behind = [
                number
                for number in (part.number for part in seen.wanted.parts)
                if numbers.get(number) != len(self.logs[number].changes)
            ]
            if not behind:
                break
            self.ask(0, seen)
            if seen not in self.watchers:
                return  # it was a gap, or another one goes on
        else:
            raise Violated(f"a watcher does not come to the end: {seen.course.position}")
        for part in seen.wanted.parts:
            for key in self.wanted(seen, part.number):
                log = self.logs[part.number]
                now, known = log.last(key, len(log.changes)), seen.last.get(key, 0)
                if now != known and not (known == 0 and log.changes[now - 1][1] is None):
                    raise Violated(f"{key} is known as of change {known}, and is as of {now}")
        self.watchers.remove(seen)
