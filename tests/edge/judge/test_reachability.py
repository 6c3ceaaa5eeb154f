"""Members that are lost, paths that are cut or lossy, and nodes that lack processor time."""

from __future__ import annotations

from typing import Any

import pytest

from ringpop_py.edge.judge.judge import problems_in
from ringpop_py.edge.judge.problems import CRITICAL, WARNING, Problem, Seen

NAMES = ("a", "b", "c", "d", "e")


def ping(name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - of any field
    usual = {"name": name, "failure": "", "failing_since": 0.0, "words": "", "tcp": ""}
    return {**usual, "last_10_s": [10, 0, 0], **changes}


def failing(name: str, tcp: str = "", **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - as `ping`
    usual: dict[str, Any] = {"failure": "timeout", "failing_since": 100.0, "last_10_s": [0, 0, 9]}
    return ping(name, **{**usual, "tcp": tcp, **changes})


def cluster(of_pairs: dict[str, dict[str, Any]], lost: str = "") -> Seen:
    """Return what members say, without those in *lost*; a pair "ab" is a's ping to b."""
    seen = Seen([])
    for name in NAMES:
        status = "faulty" if name in lost else "alive"
        row = {"name": name, "address": f"{name}:1", "status": status, "in_ring": name not in lost}
        seen.rows.append({**row, "damped": False, "draining": False})
        if name in lost:
            continue
        said = {"checksum": 7, "ready": True, "silent_hosts": {}, "version": "1", "store": None}
        seen.nodes[name] = said
        seen.checkups[name] = {"log_lines_lost": 0, "disks": []}
        pings = [of_pairs.get(name + to, ping(to)) for to in NAMES if to != name]
        seen.reach[name] = {"at": 200.0, "pings": pings}
    return seen


def only(seen: Seen) -> Problem:
    [problem] = problems_in(seen)
    return problem


def test_where_all_reach_each_other_nothing_is_said() -> None:
    assert problems_in(cluster({})) == []


@pytest.mark.parametrize(
    ("knocks", "cause", "words"),
    [
        (["refused"] * 4, "killed", "d is gone: its machine answers, and no process listens"),
        (["accepted"] * 4, "paused", "d stands still: the system accepts connections"),
        (["silent"] * 4, "cut", "d is out of reach of a, b, c, e: nothing answers there"),
        (["silent", "silent", "accepted", ""], "paused", "d stands still"),
        (["", "", "", ""], "cut", "d is out of reach"),
    ],
)
def test_what_became_of_a_member_is_told_by_its_machine(
    knocks: list[str], cause: str, words: str
) -> None:
    pairs = {f"{by}d": failing("d", tcp) for by, tcp in zip("abce", knocks, strict=True)}
    problem = only(cluster(pairs, "d"))
    assert problem[:2] == (WARNING, cause)
    assert problem.text.startswith(words)
    assert problem.members == ("d",)
    assert problem.since == 100.0
    assert problem.evidence[0].startswith("a: pings to d fail (timeout)")


def test_a_member_that_is_not_faulty_yet_is_lost_if_it_answers_nobody() -> None:
    seen = cluster({f"{by}d": failing("d", "accepted") for by in "abce"})
    seen.silent["d"] = "it has not answered within 3 s"
    del seen.nodes["d"], seen.reach["d"], seen.checkups["d"]
    assert only(seen).cause == "paused"


def test_members_that_a_split_took_are_one_problem_on_either_side() -> None:
    pairs = {by + to: failing(to, "silent") for by in "abc" for to in "de"}
    problem = only(cluster(pairs, "de"))
    assert problem[:2] == (WARNING, "cut")
    assert problem.text.startswith("d, e are out of reach of a, b, c")
    pairs = {by + to: failing(to, "silent") for by in "de" for to in "abc"}
    problem = only(cluster(pairs, "abc"))
    assert problem[:2] == (CRITICAL, "cut")  # most are on the other side
    assert problem.text.startswith("a, b, c are out of reach of d, e")


def test_a_certificate_that_has_expired_is_told_from_a_cut() -> None:
    words = "its certificate has expired: compare the clocks"
    pairs = {f"{by}d": failing("d", "accepted", words=words) for by in "abce"}
    problem = only(cluster(pairs, "d"))
    assert problem.cause == "certificate"
    assert problem.text == f"d and others do not trust each other's certificates: {words}"


def test_a_path_that_is_cut_though_others_reach_both_ends() -> None:
    problem = only(cluster({"ad": failing("d", "silent")}))
    assert problem[:2] == (CRITICAL, "path")
    assert problem.text == "1 of 20 paths are cut, though others reach both ends: a to d"
    assert problem.next == "ringpopctl rtt a d"
    # One ping that is lost is no cut.
    assert problems_in(cluster({"ad": failing("d", last_10_s=[9, 0, 1])})) == []
    just_now = failing("d", failing_since=199.0, last_10_s=[0, 0, 1])
    assert problems_in(cluster({"ad": just_now})) == []


def test_lost_packets_name_the_member_that_all_bad_paths_share() -> None:
    pairs = {f"{by}d": ping("d", last_10_s=[7, 2, 1]) for by in "abce"}
    pairs |= {f"d{to}": ping(to, last_10_s=[8, 2, 0]) for to in "abce"}
    problem = only(cluster(pairs))
    assert problem[:2] == (WARNING, "lossy")
    assert problem.text == (
        "25% of the pings to and from d are late or lost (20 of 80 in 10 s, with a, b, c, e): "
        "the network loses packets"
    )


def test_a_few_late_pings_are_no_lost_packets() -> None:
    assert problems_in(cluster({"ad": ping("d", last_10_s=[8, 2, 0])})) == []


STRAIN = {"woken": 40, "late": 0, "stalled_s": 0.0, "waiting": 0.9, "stolen": 0.0}


@pytest.mark.parametrize(
    ("strain", "lag_s"),
    [({"late": 8}, 0.0), ({"stalled_s": 1.5}, 0.0), ({"stolen": 0.3}, 0.0), ({}, 0.3)],
)
def test_a_node_that_lacks_processor_time_is_slow_and_not_cut_off(
    strain: dict[str, Any], lag_s: float
) -> None:
    pairs = {f"{by}d": ping("d", last_10_s=[2, 4, 4]) for by in "abce"}
    seen = cluster(pairs)
    seen.checkups["d"]["strain"] = {**STRAIN, **strain}
    seen.reach["d"]["lag_s"] = lag_s
    problem = only(seen)
    assert problem[:2] == (WARNING, "starved")
    assert problem.text.startswith("d is starved")
    assert "processes of its machine wait 90% of the time" in problem.evidence


def test_a_machine_that_is_busy_is_no_problem_while_the_node_is_in_time() -> None:
    seen = cluster({})
    seen.checkups["d"]["strain"] = {**STRAIN, "late": 7}
    seen.reach["d"]["lag_s"] = 0.2
    assert problems_in(seen) == []
