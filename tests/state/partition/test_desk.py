"""What a node does next: jobs of many partitions, step by step."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.errors import (
    BadOperation,
    KeyspaceError,
    OutcomeUnknown,
    PartitionUnavailable,
    StoreFull,
    StoreUnavailable,
)
from ringpop_py.base.values.operations import Change, Outcome, PackedWrite, Write, WriteRun
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.effects import StoreAnswer
from ringpop_py.state.journal.records import Mark, Release, Seal
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.partition.desk import CHANGE_BYTES, Desk, Job, ReleaseJob, WriteJob
from ringpop_py.state.table.due import DueTimes
from tests.state.journal.journals import Node, Store, group, only

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED = "refuse"
"""The operation of a write that is refused."""


class Sequences:
    """A state in which a write does nothing but leave its sequence."""

    due = DueTimes()

    def expired(self, body: object) -> object:
        raise AssertionError(body)

    def stage(
        self, writes: Sequence[Write | PackedWrite | WriteRun]
    ) -> tuple[object, list[Outcome | KeyspaceError]]:
        outcomes: list[Outcome | KeyspaceError] = []
        done = []
        each = [tuple(item) if isinstance(item, WriteRun) else (item,) for item in writes]
        for write in chain.from_iterable(each):
            if isinstance(write, Write) and write.changes[0].aggregation == REFUSED:
                outcomes.append(BadOperation("no"))
            else:
                done.append(write.sequence)
                outcomes.append(Outcome((write.sequence,)))
        return (done or None), outcomes


class Place:
    """A partition without a state."""

    def __init__(self, number: int, presence: Presence = Presence.OWNED) -> None:
        self.number = number
        self.presence = presence
        self.state = Sequences()
        self.waiting: list[Job] = []
        self.writes_count = 0
        self.release: ReleaseJob | None = None

    def release_ended(self) -> None:
        """As the machine has it."""
        assert self.release is not None
        error, self.release = self.release.error, None
        if self.presence is Presence.RELEASING:
            self.presence = Presence.GONE if error is None else Presence.OWNED


def add(sequence: int, operation: str = "add", argument: object = 1) -> Write:
    return Write("s", sequence, (Change("k", operation, argument),))  # type: ignore[arg-type]


class Office:
    """A desk of node a, with the partitions that its journal holds."""

    def __init__(self, count: int = 3, **settings: int) -> None:
        self.store = Store()
        self.node = Node("a", self.store)
        self.node.acquires(*range(count))
        self.desk = Desk(self.node.journal, StateConfig(**settings))
        self.places = [Place(number) for number in range(count)]

    def write(self, number: int, *writes: Write) -> WriteJob:
        return self.add(number, writes)

    def add(self, number: int, writes: Sequence[Write]) -> WriteJob:
        place = self.places[number]
        presence, place.presence = place.presence, Presence.OWNED  # it was, when the job came
        try:
            return self.desk.write(place, writes)
        finally:
            place.presence = presence

    def read(self, number: int) -> Job:
        place = self.places[number]
        presence, place.presence = place.presence, Presence.OWNED
        job = self.desk.read(place)
        place.presence = presence
        return job

    def release(self, number: int, to: str = "b") -> ReleaseJob:
        place = self.places[number]
        job = place.release = ReleaseJob(place, to)
        job.wake = place.release_ended
        self.desk.add_release(job)
        if place.presence is Presence.OWNED:
            place.presence = Presence.RELEASING
        return job

    def claimed_again(self, place: Place) -> None:
        """As the machine does with what the journal holds again."""
        place.presence = Presence.RELEASING if place.release else Presence.OWNED
        self.desk.claimed_again(place)

    def lost(self, place: Place) -> None:
        """As the machine does with what the journal has lost."""
        place.presence = Presence.GONE
        self.desk.lost(place)

    def begin(self) -> list[fx.Effect]:
        """Begin a step: its first request, if there is anything to do."""
        request = self.desk.begin()
        return [] if request is None else [request]

    def step(self) -> list[fx.Effect]:
        """Do a step, and return how it ended: a fact, and the claims after a fence."""
        return self.end(self.begin())

    def end(self, effects: list[fx.Effect]) -> list[fx.Effect]:
        while effects and isinstance(request := effects[0], fx.Request):
            assert len(effects) == 1
            reply = self.store.answer(request)
            effects = self.node.journal.answered(request.id, reply)
        if not effects:
            return []
        fact, *_ = effects
        if isinstance(fact, fx.Fenced):
            for place in self.places:
                if self.node.journal.reclaims(place.number):
                    place.presence = Presence.RECLAIMING
        assert not isinstance(fact, fx.Request)
        self.desk.ended(fact)
        return effects

    def seal(self, *, is_lie: bool = False) -> None:
        journal = self.node.journal
        self.store.slots[journal.name, journal.next_slot] = Seal("z")
        if is_lie:
            self.store.marks[journal.name, journal.next_slot + 1] = Mark({})

    def slots(self) -> list[object]:
        return [record for _, record in sorted(self.store.slots.items())]


def errors_of(*jobs: Job) -> list[type[KeyspaceError] | None]:
    assert all(job.ended for job in jobs)
    return [None if job.error is None else type(job.error) for job in jobs]


# Groups.


def test_waiting_jobs_go_in_one_group_whatever_their_partitions() -> None:
    office = Office()
    jobs = [
        office.write(2, add(1)),
        office.write(0, add(2), add(3)),
        office.write(2, add(4)),
    ]

    facts = office.step()

    assert facts == [fx.Committed(1)]
    assert office.slots() == [group((2, 1, [1, 4]), (0, 1, [2, 3]))]
    assert [job.outcomes for job in jobs] == [
        [Outcome((1,))],
        [Outcome((2,)), Outcome((3,))],
        [Outcome((4,))],
    ]
    assert errors_of(*jobs) == [None] * 3


def test_a_run_is_staged_as_such_and_each_job_has_its_own_outcomes() -> None:
    office = Office(group_bytes_max=6 * CHANGE_BYTES)
    run = WriteRun("s", 2, [Change("k", "add", 1), Change("k", REFUSED, "x" * CHANGE_BYTES)])
    jobs = [office.write(0, add(1)), office.add(0, run), office.write(0, add(4), add(5))]
    too_much = office.write(0, add(6), add(7))

    facts = office.step()

    assert facts == [fx.Committed(1)]
    assert office.slots() == [group((0, 1, [1, 2, 4, 5]))]
    assert [[type(each) for each in job.outcomes] for job in jobs] == [
        [Outcome],
        [Outcome, BadOperation],
        [Outcome, Outcome],
    ]
    assert not too_much.ended


def test_jobs_of_a_group_that_a_bug_keeps_from_being_staged_end_with_the_desk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office = Office()
    job = office.write(0, add(1))
    monkeypatch.setattr(Sequences, "stage", lambda _self, _writes: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        office.desk.begin()
    office.desk.stop()

    assert job.error is not None


def test_a_group_takes_so_many_writes_and_nobody_is_overtaken() -> None:
    office = Office(group_writes_max=3)
    for number, count in ((0, 2), (1, 2), (2, 1)):
        office.write(number, *(add(10 * number + n) for n in range(count)))

    office.step()
    office.step()

    assert office.slots() == [group((0, 1, [0, 1])), group((1, 1, [10, 11]), (2, 1, [20]))]


def test_a_group_takes_so_many_bytes_and_the_first_job_whatever_its_size() -> None:
    office = Office(group_bytes_max=2 * CHANGE_BYTES + 100)
    office.write(0, add(1, argument="x" * 1_000))
    office.write(1, add(2, argument=b"x" * 100))
    office.write(2, add(3))
    office.write(0, add(4))

    office.step()
    office.step()

    assert office.slots() == [
        group((0, 1, [1]), (1, 1, [2]), (2, 1, [3])),
        group((0, 1, [4])),
    ]


def test_each_argument_of_a_packed_write_has_its_size() -> None:
    office = Office(group_bytes_max=2 * CHANGE_BYTES + 10)
    packed = PackedWrite("job", 0, "put", ("a", "b"), (b"12345", b"123456"))
    office.write(0, add(1))
    job = office.desk.write(office.places[1], [packed])

    office.step()

    assert office.slots() == [group((0, 1, [1]))]
    assert not job.ended


def test_each_partition_has_its_own_limit_of_what_waits() -> None:
    office = Office(queue_writes_max=2)
    office.write(0, add(1), add(2))

    with pytest.raises(PartitionUnavailable, match="2 writes wait for partition 0"):
        office.write(0, add(3))
    office.write(1, add(4), add(5))
    effects = office.begin()
    office.write(0, add(6), add(7))  # what is on its way does not wait any more

    assert [place.writes_count for place in office.places] == [2, 0, 0]
    assert office.end(effects) == [fx.Committed(1)]


def test_writes_that_do_nothing_are_answered_as_reads_are() -> None:
    """A refusal says what is true now, and so does a repetition."""
    office = Office()
    job = office.write(0, add(1, REFUSED))

    facts = office.step()

    assert facts == [fx.MayRead()]
    assert office.slots() == []
    assert isinstance(job.outcomes[0], BadOperation)
    assert errors_of(job) == [None]


# Reads.


def test_reads_ride_on_the_commit_that_begins_after_they_came() -> None:
    office = Office()
    first = office.read(1)
    office.write(0, add(1))
    effects = office.begin()
    late = office.read(1)

    put = only(effects, fx.PutSlot)
    office.end([put])

    assert errors_of(first) == [None]
    assert not late.ended
    assert office.step() == [fx.MayRead()]
    assert errors_of(late) == [None]


def test_all_reads_that_wait_are_answered_by_one_look() -> None:
    office = Office()
    reads = [office.read(number % 3) for number in range(30)]
    office.node.kinds()

    look = only(office.begin(), fx.GetSlot)
    office.end([look])

    assert errors_of(*reads) == [None] * 30
    assert office.desk.empty


def test_reads_fail_together_where_the_store_does_not_answer() -> None:
    office = Office()
    reads = [office.read(0), office.read(1)]
    look = only(office.begin(), fx.GetSlot)

    office.end(office.node.journal.answered(look.id, StoreAnswer.FAILED))

    assert errors_of(*reads) == [StoreUnavailable] * 2


# Presence.


@pytest.mark.parametrize("presence", [Presence.UNWANTED, Presence.GONE])
def test_jobs_of_a_partition_that_the_journal_does_not_hold_are_refused(
    presence: Presence,
) -> None:
    office = Office(2)
    office.places.append(Place(2, presence))
    jobs = [office.write(2, add(1)), office.read(2), office.release(2)]
    other = office.write(0, add(2))

    office.step()

    assert errors_of(*jobs) == [PartitionUnavailable] * 3
    assert errors_of(other) == [None]
    assert office.slots() == [group((0, 1, [2]))]


def test_jobs_of_a_partition_that_is_coming_wait_in_their_order() -> None:
    office = Office(2)
    office.places.append(Place(2, Presence.RECLAIMING))
    jobs = [office.write(2, add(1)), office.release(2), office.read(2)]

    assert office.step() == []

    assert set(office.places[2].waiting) == set(jobs)
    assert office.places[2].waiting[-2:] == jobs[:2]
    assert not any(job.ended for job in jobs)
    assert office.places[2].writes_count == 1


def test_jobs_that_wait_for_a_lost_partition_are_refused() -> None:
    office = Office(2)
    office.places.append(Place(2, Presence.RECLAIMING))
    jobs = [office.write(2, add(1)), office.read(2)]
    office.step()

    office.lost(office.places[2])

    assert errors_of(*jobs) == [PartitionUnavailable] * 2
    assert (office.places[2].writes_count, office.places[2].waiting) == (0, [])


# Releases.


def test_the_release_of_a_partition_that_was_lost_does_not_end_the_next_one_of_its_number() -> None:
    office = Office()
    lost = Place(0, Presence.GONE)
    job = ReleaseJob(lost, "b")
    office.desk.add_release(job)

    office.step()

    assert errors_of(job) == [PartitionUnavailable]
    assert 0 in office.node.journal.held


def test_no_write_takes_the_place_of_a_release_that_was_queued_when_its_claim_came() -> None:
    office = Office()
    release = office.release(0)
    office.places[0].presence = Presence.RECLAIMING
    write = WriteJob(office.places[0], [add(1)])
    office.places[0].waiting.append(write)

    office.claimed_again(office.places[0])
    office.step()
    office.step()

    assert errors_of(write, release) == [None, None]
    assert office.slots() == [group((0, 1, [1])), group((0, 1, Release("b")))]


def test_the_release_of_a_partition_that_is_unwanted_is_done_for_the_journal_holds_it() -> None:
    office = Office()
    office.places[0].presence = Presence.UNWANTED
    release, write = office.release(0, ""), office.write(0, add(1))

    office.step()
    office.step()

    assert errors_of(release, write) == [None, PartitionUnavailable]
    assert office.slots() == [group((0, 1, Release("")))]


def test_a_release_for_which_there_is_no_room_leaves_the_partition_online() -> None:
    office = Office()
    release, write, read = office.release(0), office.write(1, add(1)), office.read(2)
    put = only(office.begin(), fx.PutSlot)

    office.end(office.node.journal.answered(put.id, StoreAnswer.NO_ROOM))

    assert errors_of(release, write) == [StoreFull] * 2
    assert office.places[0].presence is Presence.OWNED
    assert not read.ended
    assert office.step() == [fx.MayRead()]  # this node is still the owner
    assert errors_of(read) == [None]


# Fences.


def test_jobs_that_met_a_true_seal_wait_and_are_done_after_the_next_claim() -> None:
    office = Office()
    jobs = [office.write(0, add(1)), office.write(1, add(2)), office.release(1)]
    read = office.read(0)
    office.seal()

    fenced, *claims = office.step()
    assert isinstance(fenced, fx.Fenced)
    assert office.step() == []  # nothing can be done now
    waits = [len(place.waiting) for place in office.places]
    office.node.run(office.node.journal, claims)
    for place in office.places:
        office.claimed_again(place)
    office.step()
    office.step()

    assert waits == [2, 2, 0]
    assert errors_of(*jobs, read) == [None] * 4
    assert office.slots()[1:] == [group((0, 2, [1]), (1, 2, [2])), group((1, 2, Release("b")))]
    assert [place.presence for place in office.places] == [
        Presence.OWNED,
        Presence.GONE,
        Presence.OWNED,
    ]


def test_writes_that_wait_after_a_fence_count_as_waiting_and_have_no_outcome() -> None:
    office = Office(queue_writes_max=3)
    job = office.write(0, add(1), add(2))
    effects = office.begin()
    behind = office.write(0, add(3))
    office.seal()

    office.end(effects)
    assert office.places[0].writes_count == 3
    with pytest.raises(PartitionUnavailable, match="3 writes wait"):
        office.write(0, add(4))
    office.step()

    assert (job.outcomes, job.ended) == ([], False)
    assert office.places[0].waiting == [job, behind]
    assert office.places[0].writes_count == 3


def test_of_what_met_a_lie_the_outcome_is_open_and_reads_are_refused() -> None:
    office = Office()
    jobs = [office.write(0, add(1)), office.release(1)]
    read = office.read(2)
    effects = office.begin()
    behind = office.write(0, add(2))
    office.seal(is_lie=True)

    office.end(effects)
    for place in office.places:
        office.lost(place)
    office.step()

    assert errors_of(*jobs) == [OutcomeUnknown] * 2
    assert "z has taken over partition 0" in str(jobs[0].error)
    assert errors_of(read, behind) == [PartitionUnavailable] * 2


def test_at_the_end_only_the_step_under_way_has_an_open_outcome() -> None:
    office = Office(group_writes_max=1)
    in_hand, riding = office.write(0, add(1)), office.read(1)
    office.begin()
    queued, waiting = office.write(0, add(2)), office.read(1)

    office.desk.stop()

    assert errors_of(in_hand) == [OutcomeUnknown]
    assert errors_of(riding, queued, waiting) == [PartitionUnavailable] * 3
    assert office.desk.empty


def test_a_job_ends_once_and_says_so() -> None:
    job = Job(Place(0))
    woken: list[bool] = []
    job.wake = lambda: woken.append(job.ended)

    job.finish()
    job.finish(PartitionUnavailable("too late"))

    assert woken == [True]
    assert job.error is None


# Any course.

actions = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "read", "release", "step", "step", "seal", "take"]),
        st.integers(0, 2),
    ),
    max_size=30,
)


class Course(Office):
    """What was done at a desk, whose fenced partitions are claimed again at once."""

    def __init__(self) -> None:
        super().__init__(3, group_writes_max=3)
        self.jobs: list[Job] = []
        self.written: dict[int, list[tuple[int, WriteJob]]] = {0: [], 1: [], 2: []}

    def go_on(self) -> None:
        journal = self.node.journal
        for request in self.step()[1:]:
            (fact,) = self.node.run(journal, [request])
            if isinstance(fact, fx.Reclaimed):
                self.claimed_again(self.places[fact.partition])
            else:
                assert isinstance(fact, fx.Lost)
                self.lost(self.places[fact.partition])

    def do(self, action: str, number: int, sequence: int) -> None:
        journal = self.node.journal
        if action == "step":
            self.go_on()
        elif action == "seal":
            self.store.slots.setdefault((journal.name, journal.next_slot), Seal("z"))
        elif action == "take":
            Node(f"other {sequence}", self.store).acquires(number, take=True)
        elif self.places[number].presence is Presence.OWNED:
            self.jobs.append(self.ask(action, number, sequence))

    def ask(self, action: str, number: int, sequence: int) -> Job:
        if action == "write":
            job = self.write(number, add(sequence))
            self.written[number].append((sequence, job))
            return job
        return self.read(number) if action == "read" else self.release(number)


@given(actions)
def test_in_any_course_what_is_acknowledged_is_there_once_and_in_order(
    actions: list[tuple[str, int]],
) -> None:
    """Fences included: no job is lost, none is done twice, and none overtakes another."""
    course = Course()
    for sequence, (action, number) in enumerate(actions):
        course.do(action, number, sequence)
    while not course.desk.empty:
        course.go_on()

    assert all(job.ended for job in course.jobs)
    for number, written in course.written.items():
        last = Node(f"last {number}", course.store)
        last.acquires(number, take=True)
        found = [sequence for body in last.bodies(number) for sequence in body]  # type: ignore[attr-defined]
        assert found == [sequence for sequence, job in written if job.error is None]
