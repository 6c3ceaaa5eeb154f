"""The last changes at owners: what random schedules promise, and wrong rules that break it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.errors import StateDamaged
from ringpop_py.base.values.declared import convert, decode, encode, replace
from ringpop_py.base.values.packed import make_packer
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from ringpop_py.state.watch import recent
from ringpop_py.state.watch.messages import Watched
from ringpop_py.state.watch.recent import RecentChanges, WatchCounts
from tests.state.watch.schedules import Schedule, broken_in, small

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.state.table.bodies import Body
    from ringpop_py.state.watch.messages import WatchPart
    from tests.state.watch.schedules import Owner

SCHEDULES = 200
pytestmark = pytest.mark.usefixtures(small.__name__)


def test_random_schedules_keep_what_is_promised() -> None:
    counts = Counter[str]()
    for seed in range(SCHEDULES):
        counts.update(Schedule(seed).run())

    least = {"rows": 30, "gaps": 1, "moves": 5, "ends": 1}
    assert all(counts[name] > count * SCHEDULES for name, count in least.items())


def test_what_is_no_saved_changes_is_damage() -> None:
    for saved in (b"\xc1", encode([-1, []]), encode([1, [["k", 1]]]), encode([0, [["k", None]]])):
        with pytest.raises(StateDamaged, match="checkpoint"):
            RecentChanges(WatchCounts()).restore(saved)


def test_what_is_replayed_is_kept_for_those_who_watched_where_it_was_written() -> None:
    changes = RecentChanges(WatchCounts())
    state = KeyedState(make_packer(), Aggregations(), changes=changes)

    for number in range(3 * recent.KEPT_MAX):
        state.apply([{f"k{number}": encode(number)}, [], {}, {}])

    assert changes.newest - changes.oldest == recent.KEPT_MAX


class NotesBeforeCommit(RecentChanges):
    ahead: object = None

    def note(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        if changed is not self.ahead:
            super().note(changed, deleted)


class CommitsLater(Schedule):
    def staged(self, owner: Owner, body: Body) -> None:
        owner.recent.note(body.changed, body.deleted)
        owner.recent.ahead = body.changed  # type: ignore[attr-defined]


class CountsFromTheCheckpoint(RecentChanges):
    def restore(self, saved: bytes) -> None:
        super().restore(saved)
        self.newest = 0
        self._kept.clear()


class DoesNotTravel(RecentChanges):
    def restore(self, saved: bytes) -> None:
        super().restore(saved)
        self._kept.clear()
        self._size_bytes = 0


class TravelsInAnotherOrder(RecentChanges):
    def restore(self, saved: bytes) -> None:
        newest, kept = convert(tuple[int, list[Any]], decode(object, saved or encode([0, []])))
        super().restore(encode([newest, kept[::-1]]))


class TakesOneTooOld(RecentChanges):
    @property
    def oldest(self) -> int:
        return max(0, super().oldest - 1)


class RefusesTheOldest(RecentChanges):
    @property
    def oldest(self) -> int:
        return min(self.newest, super().oldest + 1)


class SaysNothingNew(RecentChanges):
    def look(self, request: Any, part: WatchPart, state: Any, room: Any) -> Watched:  # noqa: ANN401
        if part.after is not None and part.after > self.newest:
            return Watched((), self.newest)
        return super().look(request, part, state, room)


class AnswersAsOwner(Schedule):
    def answers(self, owner: Owner, part: WatchPart) -> bool:  # noqa: ARG002
        return True


class GoesPastWhatWasSent(RecentChanges):
    def look(self, request: Any, part: WatchPart, state: Any, room: Any) -> Watched:  # noqa: ANN401
        found = super().look(request, part, state, room)
        return found if part.after is None else replace(found, upto=self.newest)


class LeavesOutExpiries(RecentChanges):
    def note(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        if changed:
            super().note(changed, deleted)
        else:
            self.newest += len(deleted)


@pytest.mark.parametrize(
    ("changes", "schedule"),
    [
        (NotesBeforeCommit, CommitsLater),
        (CountsFromTheCheckpoint, Schedule),
        (DoesNotTravel, Schedule),
        (TravelsInAnotherOrder, Schedule),
        (TakesOneTooOld, Schedule),
        (RefusesTheOldest, Schedule),
        (SaysNothingNew, AnswersAsOwner),
        (GoesPastWhatWasSent, Schedule),
        (LeavesOutExpiries, Schedule),
    ],
)
def test_a_wrong_rule_is_caught(changes: type[RecentChanges], schedule: type[Schedule]) -> None:
    assert broken_in(SCHEDULES, lambda seed: schedule(seed, changes=changes))
