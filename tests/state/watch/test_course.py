"""How a watcher goes on: wrong rules break what random schedules promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.values.declared import encode
from ringpop_py.state.watch import course
from ringpop_py.state.watch.course import Course, WatchPosition
from ringpop_py.state.watch.messages import Watched
from tests.state.watch.schedules import PLACING, Schedule, broken_in, small

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.state.watch.course import KeyChange

SCHEDULES = 200


def test_a_watch_that_ends_within_the_last_page_leaves_no_row_out_when_it_goes_on() -> None:
    watch = Course("k", 1, PLACING, "", None, None, existing=True)
    rows = tuple([(5, key, encode(1)) for key in ("a", "b", "c")])

    found = watch.take({0: Watched(rows[:2], 5, "b\0"), 1: Watched((), 7)})
    last = watch.take({0: Watched((*rows[:1], rows[2]), 6)})

    assert [dict(change.position.numbers) for change in found] == [{}, {}]
    assert [dict(change.position.numbers) for change in last] == [{1: 7}, {0: 5, 1: 7}]


class BeginsAtTheNewestPage(course._Pages):
    @property
    def oldest(self) -> int:
        return self.newest


class HasNothing(course._Pages):
    def have(self, number: int, key: str) -> bool:  # noqa: ARG002
        return False


class HasAll(course._Pages):
    def have(self, number: int, key: str) -> bool:  # noqa: ARG002
        return number <= self.newest


class NamesTheWholeLastPage(Course):
    def _taken(self, number: int, watched: Watched) -> Iterable[KeyChange]:
        unread = self._numbers[number] is None
        found = super()._taken(number, watched)
        return (
            [one._replace(before=self.position, number=None) for one in found] if unread else found
        )


class NamesTheWholeAnswer(Course):
    def _taken(self, number: int, watched: Watched) -> Iterable[KeyChange]:
        found = super()._taken(number, watched)
        return [one._replace(before=self.position, number=None) for one in found]


class NamesPagesThatAreNotRead(Course):
    @property
    def position(self) -> WatchPosition:
        begun = {n: pages.oldest for n, pages in self._pages.items() if pages._numbers}
        numbers = begun | dict(super().position.numbers)
        return WatchPosition(1, tuple(sorted(numbers.items())))


class GoesOnAfterTheLastRow(Course):
    def _taken(self, number: int, watched: Watched) -> Iterable[KeyChange]:
        if self._numbers[number] is not None and not watched.rows:
            return []
        return super()._taken(number, watched)


@pytest.mark.parametrize("pages", [BeginsAtTheNewestPage, HasNothing, HasAll])
@pytest.mark.usefixtures(small.__name__)
def test_a_wrong_rule_of_pages_is_caught(
    monkeypatch: pytest.MonkeyPatch, pages: type[course._Pages]
) -> None:
    monkeypatch.setattr(course, "_Pages", pages)

    assert broken_in(SCHEDULES, Schedule)


@pytest.mark.parametrize(
    "wrong",
    [NamesTheWholeLastPage, NamesTheWholeAnswer, NamesPagesThatAreNotRead, GoesOnAfterTheLastRow],
)
@pytest.mark.usefixtures(small.__name__)
def test_a_wrong_rule_of_positions_is_caught(wrong: type[Course]) -> None:
    assert broken_in(SCHEDULES, lambda seed: Schedule(seed, wrong))
