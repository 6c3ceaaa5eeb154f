"""`state.partition`: partitions that come and go, step by step, with a store that is a table."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.errors import PartitionUnavailable, StoreFull, StoreRefused
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import REPEAT_US_MAX
from ringpop_py.state.journal.records import Claim, Record, Seal
from ringpop_py.state.journal.recovery import Stage
from ringpop_py.state.partition.chart import CHART, Presence
from ringpop_py.state.partition.machine import Machine
from ringpop_py.state.partition.record import LocalPartition, LookDropped, Perform
from ringpop_py.state.placement.duties import ReleaseSaid
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from tests.state.durable.benches import add, encode
from tests.state.placement.sights import SECOND, Members, assignments

if TYPE_CHECKING:
    from collections.abc import Iterable


class Place:
    """Node a, alone. Its driver does what a test says, and its store answers immediately."""

    def __init__(self, partitions: int = 1) -> None:
        self.slots: dict[tuple[str, int], Record] = {}
        self.claims: dict[tuple[int, int], Claim] = {}
        names = map("journal {}".format, count())
        self.sight = Members("a")
        self.machine: Machine[LocalPartition] = Machine(
            "k",
            1,
            assignments(partitions),
            self.sight,
            StateConfig(group_writes_max=1),
            lambda: next(names),
            self._make,
        )
        self.now = 0
        self.refusal: StoreRefused | None = None

    def _make(self, number: int) -> LocalPartition:
        state = KeyedState(encode, Aggregations())
        return LocalPartition(number, state, self.machine.journal, self.machine.failed_parts)

    def reply(self, request: fx.Request) -> fx.Reply:
        refuses = self.refusal is not None and isinstance(request, fx.PutSlot | fx.PutClaim)
        return fx.StoreAnswer.NO_ROOM if refuses else self.store(request)

    def store(self, request: fx.Request) -> fx.Reply:
        match request:
            case fx.PutSlot(_, journal, slot, record):
                return self._put(self.slots, (journal, slot), record)
            case fx.PutClaim(_, number, epoch, claim):
                return self._put(self.claims, (number, epoch), claim)
            case fx.GetSlot(_, journal, slot):
                return self._get(self.slots, (journal, slot))
            case fx.GetClaim(_, number, epoch):
                return self._get(self.claims, (number, epoch))
            case fx.ListJournal():
                return fx.JournalListed([], [])
            case fx.ListPartition(_, number):
                return fx.PartitionListed(sorted(e for n, e in self.claims if n == number), [])
            case _:
                raise AssertionError(request)

    @staticmethod
    def _put(table: dict[Any, Any], key: object, value: object) -> fx.StoreAnswer:
        return fx.StoreAnswer.WON if table.setdefault(key, value) is value else fx.StoreAnswer.TAKEN

    @staticmethod
    def _get(table: dict[Any, Any], key: object) -> fx.Reply:
        return fx.Found(table[key]) if key in table else fx.StoreAnswer.ABSENT

    def carry_out(self, tasks: Iterable[Any] = ()) -> None:
        machine, left = self.machine, deque(tasks)
        while left or machine.tasks or machine.ended:
            task = left.popleft() if left else None
            if isinstance(task, Perform):
                reply = self.reply(task.request)
                left += machine.answered(task, reply, self.now, self.refusal)
            elif isinstance(task, LookDropped):
                left += machine.looked(task.part, self.now, dropped=False)
            left += machine.take(self.now)

    def step(self) -> None:
        self.end_step(self.machine.desk.begin())

    def end_step(self, request: fx.Request | None) -> None:
        while request is not None:
            reply = self.reply(request)
            request = self.machine.step_answered(request, reply, self.refusal)
        self.carry_out()

    def advance(self, us: int = 0) -> None:
        self.now += us
        self.carry_out(self.machine.advance(self.now))

    def gains(self) -> list[LocalPartition]:
        """Have all partitions come."""
        self.advance()
        parts = list(self.machine.parts.values())
        assert [part.presence for part in parts] == [Presence.OWNED] * len(self.machine.table)
        return parts


def test_a_release_that_takes_long_is_not_queued_again_and_does_not_end_the_next_epoch() -> None:
    place = Place(2)
    unwanted, busy = place.gains()
    machine, journal = place.machine, place.machine.journal
    place.carry_out(machine.give_up(unwanted, place.now))
    place.slots[journal.name, journal.next_slot] = Seal("b")
    place.step()  # its release meets a fence; both are claimed again, and it is to be released
    under_way = machine.desk.begin()
    for sequence in range(1, 30):
        machine.desk.write(busy, [add(sequence)])

    place.advance(2 * SECOND)
    place.end_step(under_way)
    place.advance(2 * SECOND)
    while not machine.desk.empty:
        place.step()

    assert unwanted.presence is Presence.GONE
    again = machine.parts[0]
    assert (again.presence, 0 in journal.held) == (Presence.OWNED, True)
    assert len(busy.state) == 1


def test_a_partition_that_is_given_up_while_it_is_released_is_released_once() -> None:
    place = Place()
    (part,) = place.gains()
    said: list[ReleaseSaid] = []
    place.machine.releases.begin(part, "b", said.append)

    place.carry_out(place.machine.give_up(part, place.now))
    assert place.machine.desk.jobs_count == 1
    place.step()

    assert said == [ReleaseSaid.RELEASED]
    assert part.presence is Presence.GONE
    assert not place.machine.journal.held


def test_after_a_release_that_the_store_refused_what_is_given_up_is_released() -> None:
    place = Place()
    (part,) = place.gains()
    place.refusal = StoreRefused("read-only")
    said: list[ReleaseSaid] = []
    place.machine.releases.begin(part, "b", said.append)
    place.step()
    assert said == [ReleaseSaid.NOT_MINE]

    place.refusal = None
    place.carry_out(place.machine.give_up(part, place.now))
    place.step()

    assert part.presence is Presence.GONE
    assert not place.machine.journal.held


def test_what_was_given_up_is_released_however_often_the_store_refuses_that() -> None:
    place = Place()
    (part,) = place.gains()
    place.refusal = StoreRefused("read-only")
    place.carry_out(place.machine.give_up(part, place.now))
    for _ in range(3):
        place.step()
        assert place.machine.journal.held
        place.advance(REPEAT_US_MAX)

    place.refusal = None
    place.step()

    assert part.presence is Presence.GONE
    assert not place.machine.journal.held


def test_what_was_given_up_comes_again_only_after_it_was_released() -> None:
    place = Place()
    (part,) = place.gains()
    place.refusal = StoreRefused("read-only")
    place.carry_out(place.machine.give_up(part, place.now))
    place.step()
    for _ in range(5):
        place.advance(SECOND)
        assert place.machine.parts == {0: part}
        assert place.machine.is_coming(0), "requests wait for it"
        place.step()

    place.refusal = None
    place.advance(REPEAT_US_MAX)
    place.step()
    place.advance(SECOND)

    assert place.machine.parts[0] is not part
    assert place.machine.parts[0].presence is Presence.OWNED


def claiming(place: Place) -> Perform:
    """Have the only partition come, up to its claim, which is not made."""
    left = deque(place.machine.advance(place.now))
    while True:
        task = left.popleft()
        if isinstance(task, Perform):
            if isinstance(task.request, fx.PutClaim):
                return task
            left += place.machine.answered(task, place.store(task.request), place.now)


def test_while_a_claim_is_open_nobody_is_told_that_the_partition_is_not_here() -> None:
    place = Place()
    machine = place.machine
    claim = claiming(place)
    (again,) = machine.answered(claim, fx.StoreAnswer.FAILED, place.now)
    place.claims[0, 1] = Claim("a", "another journal", 1, None)  # another process of this name
    place.sight.left_out.add("a")
    (look,) = machine.answered(again, fx.StoreAnswer.TAKEN, place.now)
    part = machine.parts[0]

    place.carry_out(machine.members_changed(place.now))
    assert part.recovery.pursues
    assert not machine.is_settled(0, machine.journal.name)
    place.carry_out([look])

    assert not part.recovery.pursues
    assert place.claims[0, 2].owner == "a", "it came, and is asked for next"
    assert not machine.is_settled(0, machine.journal.name)


def test_an_open_claim_is_pursued_though_the_state_here_fails_and_nobody_wants_it() -> None:
    place = Place()
    machine = place.machine
    claim = claiming(place)
    part = machine.parts[0]
    (again,) = machine.answered(claim, fx.StoreAnswer.FAILED, place.now)
    assert isinstance(again.request, fx.PutClaim)
    place.store(again.request)  # it takes effect, and the answer is lost
    place.sight.left_out.add("a")
    machine.members_changed(place.now)
    part.recovery.stage = Stage.READING  # as if it read on, and the disk were full
    machine.arrivals._fail(part, place.now, PartitionUnavailable("no space left"))
    machine.take(place.now)

    assert machine.coming == {0}
    assert not machine.is_settled(0, machine.journal.name)
    place.advance(SECOND)

    assert part.presence is Presence.OWNED
    assert part.epoch == 1


@pytest.mark.parametrize("refusal", [StoreFull("no room"), StoreRefused("read-only")])
def test_a_store_that_takes_a_write_or_a_claim_again_is_no_longer_full(
    refusal: StoreRefused,
) -> None:
    place = Place(2)
    machine = place.machine
    part, other = place.gains()

    def refused() -> list[StoreRefused | None]:
        place.refusal = refusal
        machine.desk.write(part, [add(1)])
        place.step()
        place.refusal = None
        return [machine.full or machine.refusal]

    first = refused()
    machine.desk.write(part, [add(2)])
    place.step()
    assert (machine.full, machine.refusal) == (None, None)
    second = refused()
    machine.releases.begin(other, "b")
    place.refusal = refusal
    place.step()
    place.refusal = None
    place.slots[machine.journal.name, machine.journal.next_slot] = Seal("b")
    machine.desk.read(part)
    place.step()  # both are claimed again
    assert (machine.full, machine.refusal) == (None, None)
    assert [str(each) for each in first + second] == [str(refusal)] * 2


@pytest.mark.parametrize("refusal", [StoreFull("no room"), StoreRefused("read-only")])
def test_partitions_whose_new_claim_the_store_refuses_are_given_up_immediately(
    refusal: StoreRefused,
) -> None:
    place = Place(3)
    machine = place.machine
    parts = place.gains()
    journal = machine.journal
    place.slots[journal.name, journal.next_slot] = Seal("b")
    place.refusal = refusal
    waiting = machine.desk.read(parts[0])

    place.step()
    place.step()

    assert [part.presence for part in parts] == [Presence.GONE] * 3
    assert not machine.journal.held
    assert all(machine.is_settled(number, machine.journal.name) for number in range(3))
    assert waiting.ended
    assert str(machine.full or machine.refusal) == str(refusal)
    place.refusal = None
    place.advance(30 * SECOND)
    assert place.gains()


def test_a_claim_that_the_store_refuses_ends_the_try_and_the_next_one_may_win() -> None:
    place = Place()
    machine = place.machine
    place.refusal = StoreRefused("read-only")

    place.advance()

    assert machine.coming == {0}
    assert str(machine.refusal) == "read-only"
    place.refusal = None
    place.advance(SECOND)
    assert machine.parts[0].presence is Presence.OWNED


def test_the_answer_to_a_claim_that_comes_after_the_end_changes_nothing() -> None:
    place = Place()
    machine = place.machine
    place.gains()
    place.slots[machine.journal.name, 1] = Seal("b")
    waiting = machine.desk.write(machine.parts[0], [add(1)])
    request = machine.desk.begin()
    while request is not None:
        request = machine.step_answered(request, place.store(request))
    claims = [task for task in machine.take(0) if isinstance(task, Perform)]

    machine.stop()
    late = [machine.answered(claim, place.store(claim.request), 0) for claim in claims]

    assert late == [[]]
    assert (machine.parts, machine.holding, machine.leaving) == ({}, set(), set())
    assert isinstance(waiting.error, PartitionUnavailable)


def test_there_is_a_way_to_each_state_and_from_each_to_the_end() -> None:
    steps = set(CHART)
    for end, first in ((0, Presence.PENDING), (1, Presence.GONE)):
        reached = {first}
        while more := {step[1 - end] for step in steps if step[end] in reached} - reached:
            reached |= more
        assert reached == set(Presence)


def test_a_transition_that_the_chart_does_not_have_is_a_bug() -> None:
    (part,) = Place().gains()

    with pytest.raises(AssertionError, match="owned"):
        part.to(Presence.ASKING)
    assert part.presence is Presence.OWNED
