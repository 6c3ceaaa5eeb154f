"""`membership.probe`: the verdict of one round."""

from __future__ import annotations

import itertools

import pytest

from ringpop_py.address import Address
from ringpop_py.membership.member import Member
from ringpop_py.membership.probe import Probe, Verdict

TARGET = Member("t", Address("10.0.0.9", 3000), 1)


def probe_through(*helpers: str) -> Probe:
    probe = Probe(TARGET, 0)
    probe.ping_failed("timeout", list(helpers))
    return probe


def test_a_target_that_answers_is_reachable() -> None:
    probe = Probe(TARGET, 0)

    probe.answered()

    assert probe.verdict is Verdict.REACHABLE


def test_without_helpers_silence_is_suspect() -> None:
    assert probe_through().verdict is Verdict.SUSPECT


def test_the_verdict_waits_for_all_helpers() -> None:
    probe = probe_through("a", "b")

    probe.helper_done("a", nacked=True)

    assert probe.verdict is Verdict.OPEN


@pytest.mark.parametrize("nacks", list(itertools.product([True, False], repeat=3)))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_nack_makes_a_suspect_and_errors_alone_prove_nothing(
    nacks: tuple[bool, ...], count: int
) -> None:
    helpers = "abc"[:count]
    probe = probe_through(*helpers)

    for helper, nacked in zip(helpers, nacks, strict=False):
        probe.helper_done(helper, nacked=nacked)

    expected = Verdict.SUSPECT if any(nacks[:count]) else Verdict.INCONCLUSIVE
    assert probe.verdict is expected


def test_an_answer_through_one_helper_outweighs_what_others_say() -> None:
    probe = probe_through("a", "b")
    probe.helper_done("a", nacked=True)

    probe.answered()
    probe.helper_done("b", nacked=True)

    assert probe.verdict is Verdict.REACHABLE


def test_a_probe_remembers_who_said_what() -> None:
    probe = probe_through("a", "b")

    probe.helper_done("a", nacked=True)
    probe.helper_done("b", nacked=False)

    assert (probe.ping_failure, probe.nacks, probe.silent) == ("timeout", ["a"], ["b"])
