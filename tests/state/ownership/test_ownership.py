"""`state.ownership`: partitions that come and go, step by step, with a store that is a table."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.errors import StoreFull, StoreRefused
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import REPEAT_US_MAX
from ringpop_py.state.journal.desk import Presence
from ringpop_py.state.journal.records import Claim, Record, Seal
from ringpop_py.state.ownership.local import LocalPartition, LookDropped, Perform
from ringpop_py.state.ownership.ownership import Ownership
from ringpop_py.state.placement import duties as do
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from tests.state.durable.benches import BenchSteward, add, anybody, encode

SECOND = 1_000_000


class Place:
    """A node whose driver does what a test says; its store answers at once."""

    def __init__(self) -> None:
        self.slots: dict[tuple[str, int], Record] = {}
        self.claims: dict[tuple[int, int], Claim] = {}
        self.steward = BenchSteward([])
        self.steward.may_take = anybody
        names = map("journal {}".format, count())
        self.ownership: Ownership[LocalPartition] = Ownership(
            "a",
            lambda: next(names),
            StateConfig(group_writes_max=1),
            self.steward,  # type: ignore[arg-type]
            self._make,
        )
        self.now = 0
        self.refusal: StoreRefused | None = None

    def _make(self, number: int) -> LocalPartition:
        state = KeyedState(encode, Aggregations())
        return LocalPartition(number, state, self.ownership.journal, self.ownership.failed)

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

    def carry_out(self) -> None:
        ownership = self.ownership
        while ownership.out or ownership.ended:
            for task in ownership.take(self.now):
                if isinstance(task, Perform):
                    reply = self.reply(task.request)
                    ownership.answered(task, reply, self.now, self.refusal)
                elif isinstance(task, LookDropped):
                    ownership.arrivals.looked(task.part, self.now, dropped=False)

    def step(self) -> None:
        self.end_step(self.ownership.desk.begin())

    def end_step(self, request: fx.Request | None) -> None:
        while request is not None:
            reply = self.reply(request)
            request = self.ownership.step_answered(request, reply, self.refusal)
        self.carry_out()

    def gains(self, number: int) -> LocalPartition:
        self.ownership.carry_out([do.Acquire(number)], self.now)
        self.carry_out()
        return self.ownership.parts[number]


def test_a_release_that_takes_long_is_not_queued_again_and_does_not_end_the_next_epoch() -> None:
    place = Place()
    unwanted, busy = place.gains(0), place.gains(1)
    ownership, journal = place.ownership, place.ownership.journal
    ownership.give_up(unwanted, place.now)
    place.carry_out()
    place.slots[journal.name, journal.next_slot] = Seal("b")
    place.step()  # its release meets a fence; both are claimed again, and it is to be released
    under_way = ownership.desk.begin()
    for sequence in range(1, 30):
        ownership.write(busy, [add(sequence)])

    place.now = 2 * SECOND
    ownership.advance(place.now)
    place.end_step(under_way)
    again = place.gains(0)
    while not ownership.desk.empty:
        place.step()

    assert unwanted.presence is Presence.LOST
    assert (again.presence, 0 in journal.held) == (Presence.OWNED, True)
    assert len(busy.state) == 1


def test_a_partition_that_is_given_up_while_it_is_released_is_released_once() -> None:
    place = Place()
    part = place.gains(0)
    said: list[do.ReleaseSaid] = []
    place.ownership.releases.begin(do.ReleaseTo(0, "b"), part, "b", place.now, said.append)

    place.ownership.give_up(part, place.now)
    assert place.ownership.desk.jobs_count == 1
    place.step()

    assert said == [do.ReleaseSaid.RELEASED]
    assert part.presence is Presence.LOST
    assert not place.ownership.journal.held


def test_after_a_release_that_the_store_refused_what_is_given_up_is_released() -> None:
    place = Place()
    part = place.gains(0)
    place.refusal = StoreRefused("read-only")
    said: list[do.ReleaseSaid] = []
    place.ownership.releases.begin(do.ReleaseTo(0, "b"), part, "b", place.now, said.append)
    place.step()
    assert said == [do.ReleaseSaid.NOT_MINE]

    place.refusal = None
    place.ownership.give_up(part, place.now)
    place.step()

    assert part.presence is Presence.LOST
    assert not place.ownership.journal.held


def test_what_was_given_up_is_released_however_often_the_store_refuses_that() -> None:
    place = Place()
    part = place.gains(0)
    place.refusal = StoreRefused("read-only")
    place.ownership.give_up(part, place.now)
    for _ in range(3):
        place.step()
        assert place.ownership.journal.held
        place.now += REPEAT_US_MAX
        place.ownership.advance(place.now)

    place.refusal = None
    place.step()

    assert part.presence is Presence.LOST
    assert not place.ownership.journal.held


def test_while_a_claim_of_what_was_given_up_is_open_nobody_is_told_that_it_is_not_here() -> None:
    place = Place()
    ownership = place.ownership
    ownership.carry_out([do.Acquire(0)], place.now)
    claim = None
    while claim is None:
        for task in ownership.take(place.now):
            if isinstance(task, Perform) and isinstance(task.request, fx.PutClaim):
                claim = task
            elif isinstance(task, Perform):
                ownership.answered(task, place.store(task.request), place.now)
    part = ownership.arrivals.pending[0]

    ownership.give_up(part, place.now)

    assert not ownership.is_settled(0, ownership.journal.name)
    ownership.answered(claim, place.store(claim.request), place.now)
    place.carry_out()
    place.step()
    assert ownership.is_settled(0, ownership.journal.name)
    assert part.presence is Presence.LOST


@pytest.mark.parametrize("refusal", [StoreFull("no room"), StoreRefused("read-only")])
def test_a_store_that_takes_a_write_or_a_claim_again_is_no_longer_full(
    refusal: StoreRefused,
) -> None:
    place = Place()
    ownership, part = place.ownership, place.gains(0)

    def refused() -> list[StoreRefused | None]:
        place.refusal = refusal
        ownership.write(part, [add(1)])
        place.step()
        place.refusal = None
        return [ownership.full or ownership.refusal]

    first = refused()
    ownership.write(part, [add(2)])
    place.step()
    assert (ownership.full, ownership.refusal) == (None, None)
    second = refused()
    place.gains(1)
    assert (ownership.full, ownership.refusal) == (None, None)
    assert [str(each) for each in first + second] == [str(refusal)] * 2


@pytest.mark.parametrize("refusal", [StoreFull("no room"), StoreRefused("read-only")])
def test_partitions_whose_new_claim_the_store_refuses_are_given_up_immediately(
    refusal: StoreRefused,
) -> None:
    place = Place()
    ownership = place.ownership
    parts = [place.gains(number) for number in range(3)]
    journal = ownership.journal
    place.slots[journal.name, journal.next_slot] = Seal("b")
    place.refusal = refusal
    waiting = ownership.read(parts[0])

    place.step()
    place.step()

    assert [part.presence for part in parts] == [Presence.LOST] * 3
    assert not ownership.journal.held
    assert all(ownership.is_settled(number, ownership.journal.name) for number in range(3))
    assert waiting.ended
    assert str(ownership.full or ownership.refusal) == str(refusal)
    place.refusal = None
    assert place.gains(0).presence is Presence.OWNED


def test_a_claim_that_the_store_refuses_ends_the_try_and_the_next_one_may_win() -> None:
    place = Place()
    ownership = place.ownership
    place.refusal = StoreRefused("read-only")

    ownership.carry_out([do.Acquire(0)], place.now)
    place.carry_out()

    assert isinstance(place.steward.results[do.Acquire(0)], do.Trouble)
    assert str(ownership.refusal) == "read-only"
    place.refusal = None
    assert place.gains(0).presence is Presence.OWNED
