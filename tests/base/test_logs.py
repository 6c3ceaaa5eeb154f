"""`base.logs`: what is kept for those who ask for it later."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base import logs
from ringpop_py.base.logs import KEPT_MAX, WATCHED_S, LogSink

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_000.0 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(logs, "time", clock)
    return clock


@pytest.fixture
def sink(clock: Clock) -> Iterator[LogSink]:
    del clock
    logger = logging.getLogger("ringpop-test-of-logs")
    logger.propagate = False
    logger.handlers = [logging.NullHandler()]
    logger.setLevel(logging.WARNING)
    yield LogSink(logger)
    logger.handlers = []


def names(sink: LogSink) -> list[str]:
    return [row[3] for row in sink.kept]


def test_what_is_not_written_is_kept_nevertheless_but_debugging(sink: LogSink) -> None:
    sink.debug("one")
    sink.info("two", peer="n2")
    sink.warning("three")

    assert list(sink.kept) == [
        (1, 1_100.0, logging.INFO, "two", {"peer": "n2"}, ""),
        (2, 1_100.0, logging.WARNING, "three", {}, ""),
    ]
    assert sink.counts == {("three", logging.WARNING): 1}


def test_debugging_is_kept_while_somebody_asks_for_it_and_written_no_more_than_before(
    sink: LogSink, clock: Clock
) -> None:
    sink.watch()
    sink.debug("asked for")
    clock.now += WATCHED_S - 1
    sink.watch()
    clock.now += WATCHED_S - 1
    sink.debug("asked for again")
    clock.now += 2
    sink.debug("too late")
    sink.info("as ever")
    clock.now -= 2  # nothing brings it back but another request
    sink.debug("too late")

    assert names(sink) == ["asked for", "asked for again", "as ever"]
    assert not sink.counts


def test_the_oldest_is_forgotten_and_numbers_go_on(sink: LogSink) -> None:
    for _ in range(KEPT_MAX + 5):
        sink.info("line")

    assert [sink.kept[0][0], sink.kept[-1][0], len(sink.kept)] == [6, KEPT_MAX + 5, KEPT_MAX]


def test_the_end_of_a_traceback_is_kept_and_not_the_error(sink: LogSink) -> None:
    def fail() -> None:
        raise ValueError("x" * logs.TRACEBACK_CHARACTERS_MAX + " that was it")

    try:
        fail()
    except ValueError:
        sink.exception("failed")

    (row,) = sink.kept
    assert row[5].endswith(" that was it\n")
    assert len(row[5]) == logs.TRACEBACK_CHARACTERS_MAX
