"""What may be taken in a second, by instants that the tests choose; and how many newcomers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ringpop_py.net.security import permits
from ringpop_py.net.security.permits import BURST_S, NEWCOMERS_MAX, Allowance, Newcomers

if TYPE_CHECKING:
    from collections.abc import Iterable


def test_a_burst_may_be_taken_and_then_what_a_second_permits() -> None:
    allowance, taken = Allowance(10), []
    for tenth in range(100):  # one try each 10 ms, for a second
        now = tenth / 100
        if allowance.wait_s("a", now) == 0:
            allowance.take("a", 1, now)
            taken.append(now)

    assert len(taken) == pytest.approx(10 * (BURST_S + 1), abs=1)
    assert allowance.wait_s("a", 0.995) == pytest.approx(0.1, abs=0.1)
    assert allowance.wait_s("b", 0.995) == 0  # each has its own


def test_what_is_too_large_is_taken_and_waited_for() -> None:
    allowance = Allowance(100)
    allowance.take("a", 1_000, 5.0)

    assert allowance.wait_s("a", 5.0) == pytest.approx(10 - BURST_S + 0.01)
    assert allowance.wait_s("a", 13.1) == 0


def test_who_may_take_a_whole_burst_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits, "WHO_MAX", 3)
    allowance = Allowance(1)
    for who, now in (("a", 0.0), ("b", 0.0), ("c", 5.0), ("d", 5.5)):
        allowance.take(who, 1, now)

    assert allowance._whole_at == {"c": 6.0, "d": 6.5}


def admitted(hosts: Iterable[str], newcomers: Newcomers) -> Counter[str]:
    """Who of these got a place, one after the other; nobody leaves."""
    counts: Counter[str] = Counter()
    for number, host in enumerate(hosts):
        if newcomers.have_place_for(host):
            newcomers.add((number, host), host)
            counts[host] += 1
    return counts


def test_newcomers_of_many_hosts_are_as_many_as_may_be() -> None:
    newcomers = Newcomers()
    counts = admitted((f"host-{number}" for number in range(200)), newcomers)

    assert counts.total() == len(newcomers) == NEWCOMERS_MAX


def test_a_host_leaves_as_many_places_as_it_takes() -> None:
    newcomers = Newcomers()
    counts = admitted([*["a"] * 200, *["b"] * 200, "c"], newcomers)

    assert counts == {"a": NEWCOMERS_MAX // 2, "b": NEWCOMERS_MAX // 4, "c": 1}


def test_the_place_of_a_newcomer_that_is_gone_is_free() -> None:
    newcomers = Newcomers()
    admitted(["a"] * 200, newcomers)
    for _ in range(2):
        newcomers.discard((0, "a"))

    assert newcomers.have_place_for("a")
    assert len(newcomers) == NEWCOMERS_MAX // 2 - 1
    newcomers.add("again", "a")
    assert not newcomers.have_place_for("a")
    for number in range(200):
        newcomers.discard((number, "a"))
    newcomers.discard("again")
    assert not newcomers._count_of
