"""`membership.joining`: whom to ask for the member list, and when again."""

from __future__ import annotations

import random

import pytest

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.member.swim.rounds import JoinRounds
from ringpop_py.member.swim.timers import SECOND_US

LOCAL = Address("10.0.0.1", 3000)


def remote(count: int) -> list[Address]:
    return [Address(f"10.0.1.{i}", 3000) for i in range(count)]


def near(count: int) -> list[Address]:
    return [Address(LOCAL.host, 4000 + i) for i in range(count)]


def rounds_over(hosts: list[Address], config: GossipConfig | None = None) -> JoinRounds:
    rounds = JoinRounds(LOCAL, config or GossipConfig(), random.Random(0))
    rounds.set_hosts(hosts)
    return rounds


@pytest.mark.parametrize(
    ("hosts", "asked"), [(0, 0), (1, 1), (2, 2), (3, 3), (5, 5), (6, 6), (40, 6)]
)
def test_the_first_round_asks_twice_the_join_size_or_all(hosts: int, asked: int) -> None:
    assert len(rounds_over(remote(hosts)).next_group(set())) == asked


def test_ourselves_and_repetitions_are_not_asked() -> None:
    rounds = rounds_over([LOCAL, *remote(2), *remote(2)])

    assert sorted(rounds.next_group(set())) == remote(2)


@pytest.mark.parametrize("seed", range(5))
def test_hosts_on_other_machines_come_first(seed: int) -> None:
    rounds = JoinRounds(LOCAL, GossipConfig(), random.Random(seed))
    rounds.set_hosts([*near(10), *remote(4)])

    group = rounds.next_group(set())

    assert sorted(group[:4]) == remote(4)
    assert set(group[4:]) < set(near(10))


def test_no_host_is_asked_again_before_all_have_been() -> None:
    rounds = rounds_over(remote(14))

    groups = []
    for _ in range(3):
        group = rounds.next_group(set())
        for host in group:
            rounds.done(host, answered=False)
        groups.append(group)

    assert [len(group) for group in groups] == [6, 6, 2]
    assert sorted(host for group in groups for host in group) == sorted(remote(14))
    assert len(rounds.next_group(set())) == 6


@pytest.mark.parametrize(("hosts", "needed"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_enough_is_the_join_size_or_all_hosts(hosts: int, needed: int) -> None:
    rounds = rounds_over(remote(hosts))
    answers = []
    for host in rounds.next_group(set()):
        answers.append(rounds.enough)
        rounds.done(host, answered=True)

    assert answers.count(False) == needed
    assert rounds.enough


def test_a_round_is_open_until_each_of_its_hosts_is_done() -> None:
    rounds = rounds_over(remote(2))
    first, second = rounds.next_group(set())

    rounds.done(first, answered=True)
    before = rounds.round_open
    rounds.done(second, answered=False)

    assert (before, rounds.round_open) == (True, False)


def test_known_hosts_are_not_asked() -> None:
    rounds = rounds_over(remote(3))

    assert rounds.next_group(set(remote(2))) == remote(3)[2:]
    assert rounds.silent(set(remote(2))) == remote(3)[2:]


def test_delays_double_up_to_their_maximum_each_within_its_own_range() -> None:
    rounds = rounds_over(remote(1), GossipConfig(join_delay_min_s=0.1, join_delay_max_s=1.0))

    delays_s = []
    for _ in range(40):
        rounds.next_group(set())
        delays_s.append(rounds.delay_us() / SECOND_US)

    ranges = [(0, 0.1), (0.1, 0.2), (0.2, 0.4), (0.4, 0.8), (0.8, 1.0)] + [(1.0, 1.0)] * 35
    assert all(low <= d <= high for d, (low, high) in zip(delays_s, ranges, strict=True))
