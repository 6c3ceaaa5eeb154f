"""Random schedules of candidates for one name, over a register whose replies are late or lost."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ringpop_py.state.leaders.election import (
    Candidate,
    Election,
    ElectionOver,
    ReadRecord,
    SwapRecord,
    TermGained,
    TermLost,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.leaders.election import Effect
    from ringpop_py.state.leaders.record import LeaderRecord

TTL_S: Final = 4.0
STEP_S: Final = 0.05
DELAYS_S: Final = (0.01, 0.01, 0.05, 0.3, 2.0)


class Violated(Exception):
    """A promise did not hold."""


@dataclass
class Pending:
    until: float
    reply: Callable[[float], None] | None = None


@dataclass
class Process:
    """A candidate, again and again, on a clock of its own."""

    name: str
    rate: float
    offset_s: float
    wall_offset_s: float
    election: Election
    nonce: str = ""
    above: int = 0
    alive: bool = True
    asleep_until: float = 0.0
    pending: Pending | None = None
    terms: list[int] = field(default_factory=list)

    def clock(self, t: float) -> float:
        return t * self.rate + self.offset_s

    def believes(self, t: float) -> bool:
        return self.alive and self.election.leads and self.clock(t) < self.election.lost_at


class Schedule:
    """Three processes and a register.

    Args:
        make: the class of elections, which a planted variant replaces.
        blind: whether the register does not compare.
        calm: whether nothing is lost, late or paused, and nobody resigns.
        deletes: whether a release deletes the record.
    """

    def __init__(
        self,
        seed: int,
        make: type[Election] = Election,
        *,
        blind: bool = False,
        calm: bool = False,
        deletes: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        self.make, self.blind, self.calm, self.deletes = make, blind, calm, deletes
        self.t = 0.0
        self.record: LeaderRecord | None = None
        self.history: list[LeaderRecord] = []
        self.gained_count = 0
        self.equal_clocks = calm or self.rng.random() < 0.5
        self.rumours = not calm and self.rng.random() < 0.3  # members that live are found gone
        self._mail: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self.processes = [self._process(name) for name in "abc"]

    def _process(self, name: str) -> Process:
        rng = self.rng
        rate = 1.0 if self.equal_clocks else rng.uniform(0.7, 1.4)
        offsets = rng.uniform(0, 1e4), rng.uniform(-3600, 3600)
        process = Process(name, rate, *offsets, election=None)  # type: ignore[arg-type]
        self.begin(process)
        return process

    def begin(self, process: Process) -> None:
        self._numbers += 1
        process.nonce = f"{process.name}{self._numbers}"
        process.above = self.rng.choice((0, 0, 0, 0, self.highest + 3))
        process.election = self.make(
            Candidate(
                holder=process.name,
                is_member=True,
                nonce=process.nonce,
                ttl_s=TTL_S,
                above=process.above,
                wall_offset_s=process.wall_offset_s,
            )
        )
        process.pending = None

    @property
    def highest(self) -> int:
        return max((record.term for record in self.history), default=0)

    def run(self, seconds: float) -> None:
        end = self.t + seconds
        while self.t < end:
            self.step()

    def step(self) -> None:
        self.t += STEP_S
        while self._mail and self._mail[0][0] <= self.t:
            heapq.heappop(self._mail)[2]()
        for process in self.rng.sample(self.processes, len(self.processes)):
            if process.alive and self.t >= process.asleep_until:
                self._act(process)
        if self.equal_clocks and not self.rumours and not self.blind:
            self.check_beliefs()

    def _act(self, process: Process) -> None:
        rng, now = self.rng, process.clock(self.t)
        if not self.calm and rng.random() < 0.004:
            process.asleep_until = self.t + rng.choice((0.5, 3.0, 12.0))
            return
        if not self.calm and rng.random() < 0.003:
            process.election.resign(now)
            process.pending = None  # as a driver that was cancelled
        if process.pending is not None:
            if process.pending.reply is not None:
                process.pending.reply(now)
                process.pending = None
            elif now >= process.pending.until:
                process.election.failed(now)
                process.pending = None
            return
        if self.is_gone(process.election.record):
            process.election.look(now)
        self._carry_out(process, process.election.next(now), now)

    def _carry_out(self, process: Process, effect: Effect, now: float) -> None:
        match effect:
            case ReadRecord() | SwapRecord():
                self._send(process, effect, now)
            case TermGained(term):
                self.gained_count += 1
                process.terms.append(term)
                self.check_gain(process, term)
            case TermLost() | ElectionOver():
                self.begin(process)
            case _:
                pass

    def _send(self, process: Process, effect: ReadRecord | SwapRecord, now: float) -> None:
        rng, election = self.rng, process.election
        pending = process.pending = Pending(now + election.patience_s(now))
        lost = () if self.calm else (rng.random() < 0.05, rng.random() < 0.1)

        def arrive() -> None:
            if isinstance(effect, ReadRecord):
                record = self.record
                gone = self.is_gone(record)
                reply = lambda now: election.seen(record, now, is_gone=gone)  # noqa: E731
            else:
                done = self.swap(effect)
                reply = lambda now: election.swapped(now, is_done=done)  # noqa: E731
            if not (lost and lost[1]):
                self._later(lambda: setattr(pending, "reply", reply))

        if not (lost and lost[0]):
            self._later(arrive)

    def _later(self, act: Callable[[], None]) -> None:
        self._numbers += 1
        delay_s = 0.01 if self.calm else self.rng.choice(DELAYS_S)
        heapq.heappush(self._mail, (self.t + delay_s, self._numbers, act))

    def swap(self, swap: SwapRecord) -> bool:
        done = self.blind or swap.before == self.record
        if done:
            self.write(swap.after)
        return done

    def write(self, record: LeaderRecord) -> None:
        self.record = None if self.deletes and not record.holder else record
        self.history.append(record)

    def is_gone(self, record: LeaderRecord | None) -> bool:
        if record is None or not record.holder:
            return False
        holder = next(p for p in self.processes if p.name == record.holder)
        return not holder.alive or (self.rumours and self.rng.random() < 0.002)

    # What is promised.

    def check_gain(self, process: Process, term: int) -> None:
        if not any((r.term, r.nonce) == (term, process.nonce) for r in self.history):
            raise Violated(f"{process.name} leads by term {term}, which is not in the register")
        if term <= process.above:
            raise Violated(f"term {term} is not above {process.above}")
        if sum(term in other.terms for other in self.processes) > 1:
            raise Violated(f"two were told that they lead by term {term}")

    def check_beliefs(self) -> None:
        if sum(process.believes(self.t) for process in self.processes) > 1:
            raise Violated("two believe that they lead, although their clocks go alike")

    def check_history(self) -> None:
        holders: dict[int, str] = {}
        highest = 0
        for record in self.history:
            if not record.holder:
                continue
            if holders.setdefault(record.term, record.nonce) != record.nonce:
                raise Violated(f"term {record.term} has two holders")
            if record.term < highest:
                raise Violated(f"term {record.term} after {highest}")
            highest = record.term

    def check_succession(self, bound_s: float) -> None:
        """Kill the holder: another has to lead within the time that the slowest clock allows."""
        self.calm, self.rumours = True, False
        self.run(4 * TTL_S / min(p.rate for p in self.processes))
        leaders = [process for process in self.processes if process.believes(self.t)]
        if not leaders:
            raise Violated("nobody leads, though all is well")
        leaders[0].alive = False
        end = self.t + bound_s
        while not any(process.believes(self.t) for process in self.processes):
            self.step()
            if self.t > end:
                raise Violated(f"nobody leads {bound_s:g} s after the holder's death")
