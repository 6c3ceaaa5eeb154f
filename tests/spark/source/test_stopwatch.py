"""What the time of a task goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.spark.source.reports import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Goes on by one second each time that something takes so long."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self) -> float:
        return self.at_s


def test_each_moment_is_counted_for_one_thing() -> None:
    clock = Clock()
    watch = Stopwatch("make", clock)

    for _ in watch.timed("wait", [1, 2]):
        clock.at_s += 0.5  # of the one who has asked
        assert watch.turn("send") == "make"
        clock.at_s += 0.25
        watch.turn("make")
    clock.at_s += 1

    assert watch.counts() == {"make": 2_000_000, "wait": 0, "send": 500_000}


def test_the_time_until_an_item_is_there_is_that_of_its_source() -> None:
    clock = Clock()
    watch = Stopwatch("make", clock)

    def slow() -> Iterator[int]:
        for number in range(3):
            clock.at_s += 1
            yield number
        clock.at_s += 1  # until it is over

    assert list(watch.timed("wait", slow())) == [0, 1, 2]
    assert watch.counts() == {"make": 0, "wait": 4_000_000}


def test_work_that_takes_less_than_a_millisecond_counts_too() -> None:
    clock = Clock()
    watch = Stopwatch("make", clock)
    clock.at_s += 0.0004
    assert watch.counts() == {"make": 400}
