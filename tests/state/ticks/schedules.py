"""Random schedules of processes that run ticks, over a register and a partition with effects.

What a process sends is late, lost and repeated; processes sleep and die; their wall clocks jump.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ringpop_py.base.values.declared import replace
from ringpop_py.state.leaders.election import (
    Candidate,
    ElectionOver,
    SwapRecord,
    TermGained,
    TermLost,
)
from ringpop_py.state.ticks.plan import plan_of
from ringpop_py.state.ticks.record import TickElection, TickRecord, defined, number_and_attempt
from tests.state.leaders.schedules import TTL_S, Pending, Process, Schedule, Violated

if TYPE_CHECKING:
    from ringpop_py.state.leaders.election import Effect
    from ringpop_py.state.leaders.record import LeaderRecord

FANOUT: Final = 2
OFFSETS_S: Final = (0.0, 0.0, 3.0, -3.0, 25.0, -25.0)
BASE_S: Final = 1_800_000_000
PERIOD_S: Final = 5
PLAN: Final = plan_of(f"{PERIOD_S}s", None, None)


@dataclass(frozen=True)
class Write:
    """One effect of a tick; without an id it is told apart by nothing."""

    number: int
    what: str
    nonce: str
    id: str | None
    term: int | None


@dataclass
class Run:
    """What a process has still to do for a tick."""

    number: int
    left: list[Write]
    pending: Pending | None = None
    is_refused: bool = False


@dataclass
class Partition:
    """Effects by key, with fences and ids as partitions of keyspaces have them."""

    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    last: dict[int, str] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    term: int = 0
    order: list[int] = field(default_factory=list)

    def take(self, write: Write) -> bool:
        if write.id not in self.ids:
            if write.term is not None and write.term < self.term:
                return False
            if write.id is not None:
                self.ids.add(write.id)
            if write.what == "last":
                self.last[write.number] = write.nonce
            else:
                self.counts[write.number, write.what] += 1
            self.order.append(write.number)
        self.term = max(self.term, write.term or 0)
        return True


class TickSchedule(Schedule):
    """Three processes, a register with the record of the schedule, and a partition.

    Args:
        wrong: the name of a planted variant, of those that are not a class of elections.
    """

    def __init__(
        self,
        seed: int,
        make: type[TickElection] = TickElection,
        *,
        wrong: str = "",
        calm: bool = False,
    ) -> None:
        self.tick_election, self.wrong = make, wrong
        self.partition, self.runs = Partition(), dict[str, Run]()
        self.begun: list[tuple[int, int]] = []
        self.claims: set[LeaderRecord] = set()
        self.decided_at: dict[str, float] = {}  # by wall clocks
        self.skips = bool(seed % 2)
        super().__init__(seed, calm=calm)
        for process in self.processes:
            process.wall_offset_s = self.rng.choice(OFFSETS_S)
        first = defined(None, PLAN, BASE_S, redefines=True)
        assert first is not None
        self.write(first)

    def begin(self, process: Process) -> None:
        self._numbers += 1
        process.nonce = f"{process.name}{self._numbers}"
        me = Candidate(
            holder=process.name, is_member=True, nonce=process.nonce, ttl_s=TTL_S, wall_offset_s=0.0
        )
        process.election = self.tick_election(me, PLAN, skips=self.skips)
        process.pending = None
        self.runs.pop(process.name, None)

    def wall_s(self, process: Process) -> float:
        return BASE_S + self.t + (0.0 if self.calm else process.wall_offset_s)

    def check_beliefs(self) -> None:
        pass  # a process that slept may go on for a step: that is what fences are for

    def _act(self, process: Process) -> None:
        rng = self.rng
        if not self.calm and rng.random() < 0.001:
            process.wall_offset_s = rng.choice(OFFSETS_S)
        if not self.calm and rng.random() < 0.0005:
            self.begin(process)  # it was killed, and starts again
            return
        if not self.calm and process.name in self.runs and rng.random() < 0.008:
            process.asleep_until = self.t + rng.choice((0.5, 3.0, 12.0))
            return
        if rng.random() < 0.5:
            self._work(process)
        assert isinstance(process.election, TickElection)
        process.election.wall_offset_s = self.wall_s(process) - process.clock(self.t)
        if process.pending is not None and process.pending.reply is not None:
            self.decided_at[process.name] = self.wall_s(process)
        super()._act(process)
        if not (process.election.leads or process.election.waits):
            self.runs.pop(process.name, None)

    def _carry_out(self, process: Process, effect: Effect, now: float) -> None:
        match effect:
            case TermGained(term):
                self.gained_count += 1
                number, attempt = number_and_attempt(term)
                self.begun.append((number, attempt))
                self.runs[process.name] = self._run(process.nonce, number, term)
            case TermLost() | ElectionOver():
                self.begin(process)
            case SwapRecord(before, after) if before is not None and after.term != before.term:
                assert isinstance(after, TickRecord)
                is_early = after.attempt == 1 and after.due > self.decided_at[process.name]
                if is_early and after not in self.claims:
                    raise Violated(f"{process.name} claims {after.due} before it is due")
                self.claims.add(after)
                self._send(process, effect, now)
            case _:
                super()._carry_out(process, effect, now)

    def _run(self, nonce: str, number: int, term: int) -> Run:
        fence = None if self.wrong == "ids_without_fence" else term
        ids = [None if self.wrong == "fenced_without_ids" else f"{number}:{i}" for i in range(2)]
        writes = [Write(number, str(i), nonce, ids[i], fence) for i in range(FANOUT)]
        return Run(number, [*writes, Write(number, "last", nonce, None, fence)])

    def _work(self, process: Process) -> None:
        run = self.runs.get(process.name)
        if run is None or process.election.waits:
            return
        now = process.clock(self.t)
        election = process.election
        assert isinstance(election, TickElection)
        fails = not self.calm and self.rng.random() < 0.005
        if fails or run.is_refused or not run.left or self.wrong == "done_before_effects":
            election.is_over = not fails and not run.is_refused
            if self.wrong == "done_before_effects":
                self._effect(run, run.left[0], now)
            if election.leads:
                election.resign(now)
                process.pending = None
            self.runs.pop(process.name)
        elif run.pending is None or now > run.pending.until:
            self._effect(run, run.left[0], now)

    def _effect(self, run: Run, write: Write, now: float) -> None:
        run.pending = pending = Pending(now + 1.0)
        rng = self.rng
        lost = (False, False) if self.calm else (rng.random() < 0.05, rng.random() < 0.1)

        def answered(*, is_taken: bool) -> None:
            if run.pending is pending:
                run.pending = None
                run.is_refused = not is_taken
                run.left.remove(write)

        def arrive() -> None:
            is_taken = self.partition.take(write)
            if not lost[1]:
                self._later(lambda: answered(is_taken=is_taken))

        if not lost[0]:
            self._later(arrive)

    def swap(self, swap: SwapRecord) -> bool:
        before, after = swap.before, swap.after
        assert isinstance(before, TickRecord)
        assert isinstance(after, TickRecord)
        assert isinstance(self.record, TickRecord)
        if self.wrong == "done_blind" and not after.holder and after.due != before.due:
            self.write(after)
            return True
        if self.wrong == "skip_apart" and after.holder and after.due != before.due:
            self.write(replace(before, due=after.due, holder="", nonce=""))
            return super().swap(SwapRecord(self.record, after))
        return super().swap(swap)

    # What is promised.

    def settle(self) -> int:
        """Go on without faults until all that is due is done; return the number of ticks done."""
        self.calm, self.rumours = True, False
        goal = int(BASE_S + self.t)
        end = self.t + 3 * (goal - self.due) + 100 * TTL_S  # each takes some steps
        while self.due <= goal:
            self.step()
            if self.t > end:
                raise Violated(f"the tick {self.due} is never done")
        return self.check_ticks()

    @property
    def due(self) -> int:
        assert isinstance(self.record, TickRecord)
        return self.record.due

    def check_ticks(self) -> int:
        done, skipped = dict[int, str](), set[int]()
        history: list[LeaderRecord] = self.history
        first = before = history[0]
        assert isinstance(first, TickRecord)
        assert isinstance(before, TickRecord)
        for record in history[1:]:
            assert isinstance(record, TickRecord)
            if record.due < before.due:
                raise Violated(f"tick {record.due} comes again after {before.due}")
            if record.due > before.due:
                ended = before.holder and not record.holder
                skipped |= {*range(before.due + PERIOD_S * bool(ended), record.due, PERIOD_S)}
                if ended:
                    done[before.due] = before.nonce
            before = record
        if skipped and not self.skips:
            raise Violated(f"{len(skipped)} ticks were skipped under catch_up=all")
        if {*done} | skipped != {*range(first.due, before.due, PERIOD_S)} or {*done} & skipped:
            raise Violated("a tick is neither done nor skipped, or both")
        self._check_effects(done)
        if len(self.begun) != len({*self.begun}):
            raise Violated("an attempt has begun twice")
        return len(done)

    def _check_effects(self, done: dict[int, str]) -> None:
        partition = self.partition
        for number, nonce in done.items():
            if any(partition.counts[number, str(i)] != 1 for i in range(FANOUT)):
                raise Violated(f"an effect of tick {number}, which is done, is not there once")
            if partition.last[number] != nonce:
                raise Violated(f"tick {number}: an attempt that was replaced wrote last")
        underway = {self.due}
        if {number for number, _ in partition.counts} - {*done} - underway:
            raise Violated("a tick that is not done has effects")
        if partition.order != sorted(partition.order):
            raise Violated("effects of an older tick after those of a newer one")
