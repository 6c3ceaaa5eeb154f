"""Jobs in a world without tasks or threads: the store fails, and everybody dies in the middle.

Tasks, drivers and nodes make moves at random, on the real `JobStore` and by the real `JobRecord`.
Before a call of the store, others may move: so calls of several nodes are mixed. A partition is how
many chunks it has of each job.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from ringpop_py.base.errors import BadOperation, JobAborted, StateDamaged, StoreUnavailable
from ringpop_py.base.values.checksum import wrap_message
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.jobs.messages import AttemptManifest, Decision, StagedFile
from ringpop_py.state.jobs.names import names_behind
from ringpop_py.state.jobs.plan import plan_of
from ringpop_py.state.jobs.record import DAY_US, JobRecord, JobStep
from ringpop_py.state.jobs.store import JobStore
from ringpop_py.state.placement.keys import Placing
from ringpop_py.state.stores.memory import MemoryStore, StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PARTITIONS = 4
NAMES = ("load", "load~1", "night")
MINUTE_US = 60_000_000
BEGIN_US = 20_000 * DAY_US
KEYS = KeyspaceKeys("c", "k", 1)
ROUNDS = 3
"""How often an owner is asked before a driver or a sweep gives up."""


class MixedStore(MemoryStore):
    """A store whose calls let others move before, and which tells what was decided."""

    def __init__(self, world: JobWorld) -> None:
        super().__init__()
        self._world = world

    def get(self, key: str) -> bytes | None:
        self._world.let_others_move()
        return super().get(key)

    def list(self, prefix: str) -> list[str]:
        self._world.let_others_move()
        return super().list(prefix)

    def put_if_absent(self, key: str, value: bytes) -> bool:
        self._world.let_others_move()
        return super().put_if_absent(key, value)

    def delete(self, keys: Sequence[str]) -> None:
        # One by one, so that it can end between two.
        for key in keys:
            self._world.let_others_move()
            self._world.check_deleted(key)
            super().delete([key])

    def _put(self, key: str, value: bytes) -> bool:
        was_put = super()._put(key, value)
        if was_put:
            self._world.note_put(key)
        return was_put


class JobWorld:
    """See the module.

    Attributes:
        decisions: all that were put, by their tokens.
        finished: the last attempts of each job that were finished.
        rows: for each token, the chunks that partitions have applied.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_us = BEGIN_US
        self.store = MixedStore(self)
        self.jobs = JobStore(self.store, KEYS, Placing(PARTITIONS), lambda: self.now_us)
        self.decisions: dict[str, tuple[str, Decision]] = {}
        self.rows: defaultdict[str, Counter[tuple[str, int, int]]] = defaultdict(Counter)
        self._series: Counter[tuple[int, str]] = Counter()
        self._manifests: dict[tuple[str, str], AttemptManifest] = {}
        self.finished: dict[str, list[str]] = {name: [] for name in NAMES}
        self._signs_us = dict.fromkeys(NAMES, 0)
        self._count = 0
        self._is_mixed = self._is_within = False
        self._retiring = False

    # What is always true.

    def note_put(self, key: str) -> None:
        """See who has decided."""
        for name in NAMES:
            if key == KEYS.job(name).decision:
                decision = self._decision_at(name)
                self.decisions[decision.token] = name, decision
                quiet_us = self.now_us - self._signs_us[name]
                by_sweep = not decision.committed and not decision.token.startswith("driver")
                # A sign of the last minutes may have come too late for a slow node.
                if by_sweep and 30 * MINUTE_US < quiet_us < DAY_US:
                    raise AssertionError(f"{name} was aborted, though its tasks are alive")

    def check_deleted(self, key: str) -> None:
        """See that no decision is deleted too early."""
        for name in NAMES:
            value = self.store._values.get(key)
            if key != KEYS.job(name).decision or value is None:
                continue
            decision = self._decision_at(name)
            age_us = self.now_us - decision.decided_us
            kept_days = 7 if decision.committed else 30
            if age_us < kept_days * DAY_US:
                raise AssertionError(f"{name} was forgotten after {age_us / DAY_US:.1f} days")
            behind = [KEYS.job(each).decision for each in names_behind(name)]
            if not decision.committed and any(each in self.store._values for each in behind):
                raise AssertionError(f"{name} was forgotten before its successor")

    def _decision_at(self, name: str) -> Decision:
        value = self.store._values[KEYS.job(name).decision]
        other = MemoryStore()
        other.put_if_absent(KEYS.job(name).decision, value)
        decision = JobStore(other, KEYS, Placing(PARTITIONS)).decision(name)
        assert decision is not None
        return decision

    # Moves.

    def let_others_move(self) -> None:
        """Make a move in the middle of somebody's."""
        if self._is_mixed and not self._is_within and self.rng.random() < 0.1:
            self._move_within(self.rng.choice([self._task, self._drive, self._settle, self.sweep]))

    def _move_within(self, move: Callable[[], None]) -> None:
        if self._retiring:  # see docs/guarantees.md about names that are used again
            move = self._retire
        self._is_within = True
        self.now_us += self.rng.randrange(MINUTE_US // 4)
        try:
            self._try(move)
        finally:
            self._is_within = False

    def trouble(self, moves_count: int) -> None:
        """Have everybody move, while the store fails and nodes die."""
        self._is_mixed = True
        moves = [self._task, self._task, self._drive, self._settle, self.sweep, self._fail]
        for _ in range(moves_count):
            self._try(self.rng.choice(moves))
            minutes = self.rng.choice([1, 1, 10, 400, 1_500])
            days = self.rng.randrange(12) if self.rng.random() < 0.05 else 0
            if minutes > 1 or days:  # no put is late by hours
                self.store.land_late()
            self.now_us += minutes * MINUTE_US + days * DAY_US
            if days:  # and no fault lasts for days
                self.store.heal()
                self._try(self.sweep)

    def _try(self, move: Callable[[], None]) -> None:
        with suppress(StoreUnavailable, StateDamaged, BadOperation, JobAborted):
            move()

    def calm(self) -> None:
        """Have the sweeps do what is left to do; nobody else does anything."""
        self.store.heal()
        self.store.land_late()
        self._is_mixed = False
        for _ in range(10):
            self.now_us += MINUTE_US
            self._try(self.sweep)
        self.now_us += 2 * DAY_US
        for _ in range(10):
            self.now_us += MINUTE_US
            self.sweep()

    def _fail(self) -> None:
        verb = self.rng.choice(["put_if_absent", "put_if_absent", "get", "list", "delete"])
        faults = [StoreFault.FAILS, StoreFault.LOSES_REPLY]
        faults += [StoreFault.LATE, StoreFault.FULL] if verb == "put_if_absent" else []
        self.store.inject(self.rng.choice(faults), verb=verb)

    def _task(self) -> None:
        """Stage an attempt; it may be the second of a task, or late."""
        name = self.rng.choice(NAMES)
        self._count += 1
        attempt, keys = f"attempt {self._count}", KEYS.job(name)
        files = []
        for number in range(self.rng.randint(0, 3)):
            numbers = self.rng.sample(range(PARTITIONS), self.rng.randint(1, PARTITIONS))
            counts = tuple((each, self.rng.randint(1, 3)) for each in sorted(numbers))
            now_ms = self.now_us // 1_000
            self._put_twice(keys.file(attempt, number, now_ms), b"rows")
            self._signs_us[name] = self.now_us
            files.append(StagedFile(number, now_ms, 1, 4, counts))
        if self.rng.random() < 0.1:
            return  # it dies
        manifest = AttemptManifest(tuple(files), self.now_us // 1_000)
        self._manifests[name, attempt] = manifest
        key = keys.manifest(attempt)
        self._put_twice(key, wrap_message(manifest, key))
        self._signs_us[name] = self.now_us
        self.finished[name].append(attempt)

    def _put_twice(self, key: str, value: bytes) -> None:
        """As a client does: again, if the outcome is unknown."""
        with suppress(StoreUnavailable):
            self.store.put_if_absent(key, value)
            return
        self.store.put_if_absent(key, value)

    def _drive(self) -> None:
        """Decide a job, perhaps after another driver has; see it through, or die."""
        name = self.rng.choice(NAMES)
        some = [each for each in self.finished[name][-4:] if self.rng.random() < 0.7]
        self._count += 1
        attempts = None if self.rng.random() < 0.15 else tuple(some)
        wanted = Decision(attempts, f"driver {self._count}", self.now_us)
        decided = self.jobs.commit_or_abort(name, wanted)
        if decided.committed and self.rng.random() < 0.5:
            self._follow(JobRecord(name, asked=True))

    def _settle(self) -> None:
        record = self.jobs.read(JobRecord(self.rng.choice(NAMES), asked=True))
        if record.decision is not None and record.decision.committed:
            self._follow(record)

    def sweep(self) -> None:
        """As `Jobs.sweep` does."""
        staged = self.jobs.staged()
        for name, staged_ms in staged.items():
            self._try(lambda name=name, ms=staged_ms: self._follow(JobRecord(name, ms)))  # type: ignore[misc]
        if not self._is_within:
            self._retiring = True
            try:
                self._retire()
            finally:
                self._retiring = False

    def _retire(self) -> None:
        staged, today = self.jobs.staged(), self.now_us // DAY_US
        for day in range(today - 67, today - 6):
            self.jobs.retire(day, staged)

    def _follow(self, record: JobRecord) -> None:
        """As `Jobs.follow` does, of several nodes in turn."""
        self.jobs.read(record)
        for _ in range(ROUNDS):
            if self.jobs.follow(record)[-1] is not JobStep.APPLY:
                break
            try:
                self._apply(record)
            except StateDamaged:
                record.result = self.jobs.applied(record.name)
                if record.result is None:
                    raise
        if record.asked and record.result is not None:
            self.jobs.follow(self.jobs.read(JobRecord(record.name, staged_ms=0)))

    # Partitions.

    def _apply(self, record: JobRecord) -> None:
        assert record.decision is not None
        record.plan = self.jobs.plan(record.name, record.decision.token)
        goes_on = bool(record.left)
        while goes_on:
            goes_on = record.heard({each: self._chunks_of(record, each) for each in record.left})
        damaged = [each for each in record.found.values() if isinstance(each, StateDamaged)]
        if damaged:
            raise damaged[0]

    def _chunks_of(self, record: JobRecord, number: int) -> object:
        """Apply some chunks at the owner, and return how many it has; or why that is not known."""
        assert record.plan is not None
        token = record.plan.decision.token
        for file in record.plan.files:
            first, count = file.places.get(number, (0, 0))
            if self._series[number, token] >= first + count:
                continue
            try:
                if self.store.get(file.key) is None:
                    return StateDamaged(f"{file.key} is gone")
            except StoreUnavailable as error:
                return error
            for sequence in range(first, first + count):
                if self.rng.random() < 0.1:
                    return self._series[number, token]
                if sequence == self._series[number, token]:  # in turn, and each once
                    self._series[number, token] += 1
                    self.rows[token][file.key, number, sequence] += 1
        return self._series[number, token]

    # The end.

    def wanted(self, name: str, decision: Decision) -> Mapping[tuple[str, int, int], int]:
        """Return the chunks that partitions should have of a job, by what its tasks have staged."""
        manifests = [self._manifests[name, each] for each in decision.attempts or ()]
        plan = plan_of(KEYS.job(name), decision, manifests)
        return {
            (file.key, number, sequence): 1
            for file in plan.files
            for number, (first, count) in file.places.items()
            for sequence in range(first, first + count)
        }

    def check(self) -> None:
        """See that each job was applied wholly and once, or not at all, and has no files."""
        for token, (name, decision) in self.decisions.items():
            assert self.rows[token] == self.wanted(name, decision), f"{name}, by {token}"
        assert set(self.rows) <= set(self.decisions)
        assert self.store.list(KEYS.staged_jobs) == []

    def check_forgotten(self) -> None:
        """See that weeks later nothing is known of any job."""
        for _ in range(50):
            self.now_us += DAY_US
            self.sweep()
        assert self.store.list(f"{KEYS.root}jobs/") == []
