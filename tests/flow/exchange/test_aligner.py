"""Barriers: all interleavings of three channels and two epochs, against a model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import BadElement
from ringpop_py.flow.exchange.elements import Barrier
from ringpop_py.flow.exchange.run import BarrierAligner

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCHS = 2
CHANNELS = "abc"
SCRIPTS: dict[str, list[str | Barrier]] = {
    "a": ["a1", Barrier(1), "a2", Barrier(2), "a3"],
    "b": [Barrier(1), "b2", "b2", Barrier(2)],
    "c": ["c1", Barrier(1), Barrier(2), "c3"],
}
"""What comes on each channel: a record ends with the epoch to which it belongs."""

Place = tuple[int, ...]
START: Place = (0, 0, 0)


def epochs_before(place: Place) -> list[int]:
    """How many barriers each channel has brought, at these places of their scripts."""
    return [
        sum(isinstance(element, Barrier) for element in SCRIPTS[channel][:at])
        for channel, at in zip(CHANNELS, place, strict=True)
    ]


def blocked_at(place: Place) -> set[str]:
    """The model: a channel waits while it has brought more barriers than another."""
    brought = epochs_before(place)
    return {
        channel for channel, count in zip(CHANNELS, brought, strict=True) if count > min(brought)
    }


def paths() -> Iterator[list[int]]:
    """All orders in which elements can be taken: which channel gives its next one."""

    def go_on(place: Place, path: list[int]) -> Iterator[list[int]]:
        steps = [
            at
            for at, channel in enumerate(CHANNELS)
            if place[at] < len(SCRIPTS[channel]) and channel not in blocked_at(place)
        ]
        if not steps:
            yield path
        for at in steps:
            yield from go_on((*place[:at], place[at] + 1, *place[at + 1 :]), [*path, at])

    yield from go_on(START, [])


def test_all_interleavings_of_three_channels_and_two_epochs() -> None:
    counts: Counter[str] = Counter()
    for path in paths():
        aligner, place, passed = BarrierAligner(CHANNELS, 0), START, 0
        for at in path:
            channel = CHANNELS[at]
            element = SCRIPTS[channel][place[at]]
            place = (*place[:at], place[at] + 1, *place[at + 1 :])
            if isinstance(element, Barrier):
                aligned = aligner.receive(channel, element)
                assert (aligned is not None) == (min(epochs_before(place)) > passed)
                passed = min(epochs_before(place))
                assert aligned in (None, Barrier(passed))
            else:
                aligner.check(channel)
                assert int(element[1]) == passed + 1  # no record is in another epoch
            assert aligner.blocked == blocked_at(place)
        assert passed == EPOCHS
        assert place == tuple(len(SCRIPTS[channel]) for channel in CHANNELS)
        counts["paths"] += 1
    assert counts["paths"] > 1_000


def test_elements_that_may_not_come_are_refused() -> None:
    aligner = BarrierAligner("ab", 4)
    with pytest.raises(BadElement, match="no channel 'x'"):
        aligner.check("x")
    with pytest.raises(BadElement, match="epoch=7"):
        aligner.receive("a", Barrier(7))
    aligner.receive("a", Barrier(5))
    with pytest.raises(BadElement, match="goes on behind a barrier"):
        aligner.check("a")
    with pytest.raises(BadElement, match="goes on behind a barrier"):
        aligner.receive("a", Barrier(5))
    assert aligner.receive("b", Barrier(5)) == Barrier(5)


def test_a_channel_that_is_lost_is_not_waited_for() -> None:
    aligner = BarrierAligner("abc", 0)
    assert aligner.receive("a", Barrier(1)) is None
    assert aligner.lose("c") is None
    assert aligner.lose("b") == Barrier(1)
    assert aligner.receive("a", Barrier(2)) == Barrier(2)
    assert aligner.lose("a") is None
