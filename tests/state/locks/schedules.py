"""Random schedules of lockers of two keys in one partition: messages late, lost and repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

import msgpack

from ringpop_py.base.errors import ConditionFailed, KeyspaceError, StaleTerm
from ringpop_py.base.values.declared import replace
from ringpop_py.base.values.operations import Change, Outcome, Write
from ringpop_py.state.locks.terms import LOCK, LOCK_PREFIX, RENEW, UNLOCK
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.due import DueTimes
from ringpop_py.state.table.keyed import KeyedState

TTL_MS: Final = 8
STEPS: Final = 150
KEYS: Final = ("k", "l")
LOST: Final = 0.15


class Violated(Exception):
    """A promise did not hold."""


def check(holds: bool, why: str) -> None:  # noqa: FBT001
    if not holds:
        raise Violated(why)


@dataclass
class Clock:
    """The owner's; *ahead_ms* of the others'."""

    ms: int = 1_000_000
    ahead_ms: int = 0

    def set_ms(self) -> int:
        return self.ms + self.ahead_ms

    due_ms = set_ms


@dataclass
class Locker:
    """One try after the other to hold a lock; *term* is what it was told."""

    name: str
    key: str = "k"
    nonce: str = ""
    term: int = 0
    under_way: Write | None = None


@dataclass
class Truth:
    """Who holds each lock, by what took effect: term, nonce, and until when."""

    held: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    term: int = 0
    done: set[tuple[str, int]] = field(default_factory=set)

    def note(self, write: Write, outcome: Outcome, clock: Clock) -> None:
        """Check that *write* could take effect now, and follow it."""
        ((name, given),) = (write.offsets or {}).items()
        key = name.removeprefix(LOCK_PREFIX)
        held, (change,) = self.held.get(key), write.changes
        write_id = write.source, write.sequence
        if outcome.repeated:
            check(write_id in self.done, "a repetition of what took no effect")
            return
        check(write_id not in self.done, "one write took effect twice")
        self.done.add(write_id)
        if type(given) is int:
            check(held is not None and held[0] == given, "a write of one who has not the lock")
        elif change.aggregation == UNLOCK:
            check(held is not None and held[1] == given, "released by another")
            del self.held[key]
        else:
            term = outcome.values[0]
            assert type(term) is int
            if held is None or held[1] != given:
                check(change.aggregation == LOCK, "taken by a renewal")
                check(held is None or held[2] <= clock.due_ms(), "taken before it has lapsed")
                check(term > self.term, "a term again")
                self.term = term
            else:
                check(term == held[0], "another term for the same holder")
            self.held[key] = term, str(given), clock.set_ms() + TTL_MS


class World:
    """The owner of the partition, its log, and who asks."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.log: list[bytes] = []
        self.checkpoint, self.kept = self.fresh().whole(), 0
        self.state = self.fresh()
        self.truth = Truth()
        self.lockers = [Locker(name) for name in "abc"]
        self.late: list[tuple[Locker, Write]] = []
        self.told: dict[int, str] = {}
        self.count = 0

    def fresh(self) -> KeyedState:
        return KeyedState(msgpack.packb, Aggregations(), due=DueTimes(self.clock))

    def ask(self, locker: Locker, operation: str, given: int | str) -> None:
        self.count += 1
        change = Change(locker.key, operation, 1 if operation == "put" else TTL_MS)
        offsets = {f"{LOCK_PREFIX}{locker.key}": given}
        locker.under_way = Write("w", self.count, (change,), offsets)
        self.late.append((locker, locker.under_way))

    def arrive(self, locker: Locker, write: Write) -> None:
        """The owner takes *write*; its answer may be lost."""
        body, (outcome,) = self.state.stage([write])
        if body is not None:
            self.log.append(msgpack.packb(body))
            self.state.apply(body)
        if isinstance(outcome, Outcome):
            self.truth.note(write, outcome, self.clock)
        else:
            refused = isinstance(outcome, ConditionFailed | StaleTerm)
            check(refused, f"refused as {outcome!r}")
        if self.rng.random() > LOST and write is locker.under_way:
            locker.under_way = None
            self.answered(locker, write, outcome)

    def answered(self, locker: Locker, write: Write, outcome: Outcome | KeyspaceError) -> None:
        operation = write.changes[0].aggregation
        term = outcome.values[0] if isinstance(outcome, Outcome) and operation != "put" else 0
        assert type(term) is int
        if operation == LOCK and term:
            holder = self.told.setdefault(term, locker.nonce)
            check(holder == locker.nonce, "two holders of one term")
            locker.term = term
        elif not isinstance(outcome, Outcome):
            locker.term = 0

    def move(self) -> None:
        """The next owner restores the checkpoint, replays the log, and has another clock."""
        self.clock = Clock(self.clock.ms, self.rng.choice((0, 0, 5, -5)))
        self.state = self.fresh()
        self.state.restore([self.checkpoint])
        for body in self.log[self.kept :]:
            self.state.apply(msgpack.unpackb(body))

    def step(self) -> None:
        rng, locker = self.rng, self.rng.choice(self.lockers)
        chance = rng.random()
        if chance < 0.45 and self.late:
            some = self.late.pop(rng.randrange(len(self.late)))
            if rng.random() < LOST:
                self.late.append((some[0], replace(some[1], repeats=True)))
            self.arrive(*some)
        elif chance < 0.5:
            self.move()
        elif chance < 0.53:
            self.checkpoint, self.kept = self.state.whole(), len(self.log)
        elif chance < 0.65:
            self.clock.ms += rng.randrange(4)
        elif locker.under_way is not None:
            if rng.random() < 0.3:
                locker.under_way = replace(locker.under_way, repeats=True)
                self.late.append((locker, locker.under_way))
        elif locker.term == 0:
            locker.key, locker.nonce = rng.choice(KEYS), f"{locker.name}{self.count}"
            self.ask(locker, LOCK, locker.nonce)
        else:
            operation = rng.choice(("put", "put", "put", RENEW, UNLOCK))
            self.ask(locker, operation, locker.term if operation == "put" else locker.nonce)
            locker.term *= operation != UNLOCK or rng.random() < LOST

    def end(self) -> None:
        """Whatever happened, a locker that is left alone gets each lock."""
        self.clock.ms += TTL_MS + 10
        for key in KEYS:
            last = Locker("z", key, "last")
            self.ask(last, LOCK, last.nonce)
            write = last.under_way
            assert write is not None
            self.arrive(last, write)
            holder = self.truth.held.get(key)
            check(holder is not None and holder[1] == last.nonce, "nobody can lock it any more")


def run(seed: int) -> World:
    """Run one schedule. Raises Violated."""
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.end()
    return world
