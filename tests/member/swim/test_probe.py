"""`membership.probe`: the verdict of one round."""

from __future__ import annotations

import itertools

import pytest

from ringpop_py.base.address import Address
from ringpop_py.member.swim.effects import ProbeReport
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.probe import Probe, Verdict

TARGET = Member("t", *Address("10.0.0.9", 3000), 1)


def probe_through(*helpers: str) -> Probe:
    probe = Probe(TARGET, 0)
    probe.ping_failed("timeout", list(helpers))
    return probe


def weighed(ping: str, *helpers: str) -> Probe:
    """A probe that weighs evidence, and whose own ping failed like that."""
    probe = Probe(TARGET, 0, weighs_evidence=True)
    probe.ping_failed(ping, list(helpers))
    return probe


def test_a_target_that_answers_is_reachable() -> None:
    probe = Probe(TARGET, 0)

    probe.answered()

    assert probe.verdict is Verdict.REACHABLE


def test_without_helpers_silence_is_suspect() -> None:
    assert probe_through().verdict is Verdict.SUSPECT


def test_the_verdict_waits_for_all_helpers() -> None:
    probe = probe_through("a", "b")

    probe.nacked("a", "timeout")

    assert probe.verdict is Verdict.OPEN


@pytest.mark.parametrize("nacks", list(itertools.product([True, False], repeat=3)))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_nack_makes_a_suspect_and_errors_alone_prove_nothing(
    nacks: tuple[bool, ...], count: int
) -> None:
    helpers = "abc"[:count]
    probe = probe_through(*helpers)

    for helper, nacked in zip(helpers, nacks, strict=False):
        if nacked:
            probe.nacked(helper, "timeout")
        else:
            probe.unheard(helper, silent=True)

    expected = Verdict.SUSPECT if any(nacks[:count]) else Verdict.INCONCLUSIVE
    assert probe.verdict is expected


def test_an_answer_through_one_helper_outweighs_what_others_say() -> None:
    probe = probe_through("a", "b")
    probe.nacked("a", "timeout")

    probe.answered()
    probe.nacked("b", "timeout")

    assert probe.verdict is Verdict.REACHABLE


def test_a_probe_reports_who_said_what() -> None:
    probe = probe_through("a", "b", "c")

    probe.nacked("a", "lost")
    probe.unheard("b", silent=False)
    probe.unheard("c", silent=True)

    helpers = (("a", "lost"), ("b", "unreachable"), ("c", "silent"))
    assert probe.report(7) == ProbeReport("timeout", helpers, strong=False, duration_us=7, nacks=1)


# Evidence.


@pytest.mark.parametrize("reason", ["refused", "lost"])
@pytest.mark.parametrize(("helpers", "needed"), [("a", 1), ("ab", 2), ("abc", 2)])
def test_two_helpers_or_all_there_are_prove_what_we_saw_and_nobody_waits_for_more(
    reason: str, helpers: str, needed: int
) -> None:
    probe = weighed(reason, *helpers)

    verdicts = []
    for helper in helpers[:needed]:
        verdicts.append(probe.verdict)
        probe.nacked(helper, "refused")

    assert verdicts == [Verdict.OPEN] * needed
    assert (probe.verdict, probe.strong) == (Verdict.SUSPECT, True)


@pytest.mark.parametrize(
    ("ping", "nacks"),
    [
        ("timeout", ["refused", "refused", "refused"]),
        ("declined", ["refused", "refused", "refused"]),
        ("failed", ["lost", "refused", "refused"]),
        ("refused", ["refused", "timeout", "timeout"]),
        ("refused", ["timeout", "failed", "declined"]),
    ],
)
def test_where_one_side_has_seen_only_silence_there_is_no_evidence(
    ping: str, nacks: list[str]
) -> None:
    probe = weighed(ping, "a", "b", "c")

    for helper, failure in zip("abc", nacks, strict=True):
        probe.nacked(helper, failure)

    assert (probe.verdict, probe.strong) == (Verdict.SUSPECT, False)


def test_a_refusal_that_only_we_see_does_not_even_suspect() -> None:
    probe = weighed("refused", "a", "b")

    probe.nacked("a", "refused")
    probe.answered()

    assert (probe.verdict, probe.strong) == (Verdict.REACHABLE, False)


def test_evidence_counts_only_where_it_is_weighed() -> None:
    probe = Probe(TARGET, 0)
    probe.ping_failed("refused", ["a"])

    probe.nacked("a", "refused")

    assert (probe.verdict, probe.strong) == (Verdict.SUSPECT, False)


@pytest.mark.parametrize(("second", "strong"), [("refused", True), ("timeout", False)])
def test_with_nobody_to_ask_a_second_ping_decides(second: str, strong: bool) -> None:  # noqa: FBT001
    probe = weighed("refused")
    wanted = probe.wants_second_ping

    probe.ping_failed_again(second)

    assert wanted
    assert (probe.verdict, probe.strong) == (Verdict.SUSPECT, strong)
    assert not probe.wants_second_ping


def test_silence_with_nobody_to_ask_wants_no_second_ping() -> None:
    probe = weighed("timeout")

    assert not probe.wants_second_ping
    assert probe.verdict is Verdict.SUSPECT


# Whose fault it is.


def test_nacks_testify_that_the_targets_silence_is_not_our_slowness() -> None:
    probe = probe_through("a", "b", "c")

    for helper in "abc":
        probe.nacked(helper, "timeout")

    assert probe.slow_count == 0


def test_each_nack_that_does_not_come_is_a_sign_that_we_are_slow() -> None:
    probe = probe_through("a", "b", "c")

    probe.nacked("a", "timeout")
    probe.unheard("b", silent=True)
    probe.unheard("c", silent=False)

    assert probe.slow_count == 1


@pytest.mark.parametrize(("reason", "count"), [("timeout", 1), ("refused", 0)])
def test_without_helpers_silence_may_be_our_slowness_and_a_refusal_is_not(
    reason: str, count: int
) -> None:
    probe = Probe(TARGET, 0)

    probe.ping_failed(reason, [])

    assert probe.slow_count == count
