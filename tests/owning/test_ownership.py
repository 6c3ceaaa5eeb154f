"""`ringpop_py.owning`: partitions that come and go, step by step, with a store that is a table."""

from __future__ import annotations

from itertools import count
from typing import Any

from ringpop_py.config.settings import StateConfig
from ringpop_py.journal import effects as fx
from ringpop_py.journal.desk import Presence
from ringpop_py.journal.records import Claim, Record, Seal
from ringpop_py.keyed.aggregations import Aggregations
from ringpop_py.keyed.keyed import KeyedState
from ringpop_py.owning.local import LocalPartition, LookDropped, Perform
from ringpop_py.owning.ownership import Ownership
from ringpop_py.placing import duties as do
from tests.durable.benches import BenchSteward, add, anybody, encode

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

    def _make(self, number: int) -> LocalPartition:
        state = KeyedState(encode, Aggregations())
        return LocalPartition(number, state, self.ownership.journal, self.ownership.failed)

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
                    ownership.answered(task, self.store(task.request), self.now)
                elif isinstance(task, LookDropped):
                    ownership.arrivals.looked(task.part, self.now, dropped=False)

    def step(self) -> None:
        self.end_step(self.ownership.desk.begin())

    def end_step(self, request: fx.Request | None) -> None:
        while request is not None:
            request = self.ownership.step_answered(request, self.store(request))
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
