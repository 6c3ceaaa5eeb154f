"""The problems that are found in what members report."""

from __future__ import annotations

from typing import Any

import pytest

from ringpop_py.edge.judge.judge import problems_in
from ringpop_py.edge.judge.problems import CRITICAL, WARNING, Problem, Seen


def healthy() -> Seen:
    """Return what three healthy members report."""
    names = ("a", "b", "c")
    seen = Seen([row(name) for name in names])
    for name in names:
        seen.nodes[name] = {
            "checksum": 7,
            "ready": True,
            "silent_hosts": {},
            "version": "1.0",
            "store": "s",
        }
        seen.checkups[name] = {"log_lines_lost": 0, "disks": [disk(0.5)]}
        seen.settings[name] = {"period_s": 0.2, "proxy.retries": 3}
        seen.keyspaces[name] = [keyspace()]
        seen.clocks_s[name], seen.off_s[name] = 0.001, 0.01
    return seen


def row(name: str, **changes: object) -> dict[str, Any]:
    usual = {"name": name, "status": "alive", "damped": False, "draining": False, "in_ring": True}
    return usual | changes


def disk(share: float, **changes: object) -> dict[str, Any]:
    size = {"free_bytes": int(share * 1e12), "total_bytes": 10**12, "trouble": ""}
    return {"what": "store", "path": "/data", **size, **changes}


def keyspace(**changes: object) -> dict[str, Any]:
    usual = {"name": "k", "epoch": 1, "partitions": 16, "served": 16, "waits_for": None}
    return {**usual, "failed": [], "damaged": [], "damage": None, "refusal": None, **changes}


def told(found: list[Problem]) -> list[tuple[int, str, str]]:
    """Return the level, the cause and the text of each problem."""
    return [(each.level, each.cause, each.text) for each in found]


def only(seen: Seen, **options: Any) -> tuple[int, str, str]:  # noqa: ANN401 - as `problems_in`
    [problem] = told(problems_in(seen, **options))
    return problem


def test_where_all_is_well_nothing_is_said() -> None:
    assert problems_in(healthy(), members=3) == []


@pytest.mark.parametrize(("members", "level"), [(4, CRITICAL), (2, WARNING)])
def test_other_members_than_expected(members: int, level: int) -> None:
    found = only(healthy(), members=members)
    assert found == (level, "members", f"3 members are in the ring, not {members}")


def test_a_member_that_is_suspected() -> None:
    seen = healthy()
    seen.rows[1] = row("b", status="suspect")
    [problem] = problems_in(seen)
    assert problem[:4] == (WARNING, "members", "suspect: b", ("b",))
    assert problem.next == "ringpopctl why b"


def test_a_member_that_was_taken_out() -> None:
    seen = healthy()
    seen.rows[2] = row("c", draining=True, in_ring=False)
    assert only(seen) == (WARNING, "draining", "draining: c")


def test_an_application_that_is_away() -> None:
    seen = healthy()
    seen.checkups["b"]["application_trouble"] = "it does not listen"
    text = "the application beside b is away: it does not listen"
    assert only(seen) == (CRITICAL, "application", text)


def test_a_member_that_has_left_in_good_order_is_not_a_problem() -> None:
    seen = healthy()
    seen.rows.append(row("d", status="leave", draining=True, in_ring=False))
    assert problems_in(seen) == []


def test_members_that_do_not_answer_or_have_not_joined() -> None:
    seen = healthy()
    seen.silent["b"] = "refused"
    seen.nodes["c"]["ready"] = False
    seen.nodes["c"]["silent_hosts"] = {"h:1": "timeout"}
    assert sorted(told(problems_in(seen))) == [
        (WARNING, "hosts", "the host h:1 does not answer: timeout"),
        (CRITICAL, "members", "b does not answer: refused"),
        (CRITICAL, "members", "not joined yet: c"),
    ]


def test_views_that_differ() -> None:
    seen = healthy()
    seen.nodes["b"]["checksum"] = 8
    assert only(seen) == (CRITICAL, "views", "2 different views of the cluster: a, c | b")


def test_partitions_that_nobody_serves_as_most_say() -> None:
    seen = healthy()
    seen.keyspaces["b"] = [keyspace(served=13, waits_for="the store is full")]
    assert problems_in(seen) == []  # it is behind, or lies
    seen.keyspaces["c"] = [keyspace(served=13, waits_for="the store is full")]
    level, check, text = only(seen)
    assert (level, check) == (CRITICAL, "partitions")
    assert text.startswith("3 of 16 partitions of k are not served: the store is full")
    seen.keyspaces["a"] = [keyspace(epoch=10**15)]  # one does not hide it, either
    assert only(seen)[:2] == (CRITICAL, "partitions")


def test_partitions_that_cannot_be_read_though_others_take_them_for_served() -> None:
    seen = healthy()
    seen.keyspaces["b"] = [
        keyspace(damaged=[3, 5], damage="partition 3 cannot be read: it is gone")
    ]
    text = "2 partitions are damaged in k, met by b: partition 3 cannot be read: it is gone"
    assert only(seen) == (CRITICAL, "damaged", text)


def test_a_member_of_an_older_version_says_nothing_of_damage() -> None:
    seen = healthy()
    for name in ("damaged", "damage", "refusal"):
        del seen.keyspaces["b"][0][name]
    assert problems_in(seen) == []


def test_a_store_that_refuses_writes_is_no_bug() -> None:
    seen = healthy()
    refusal = "folder store: /s: Read-only file system"
    seen.keyspaces["a"] = [keyspace(failed=["b"])]
    seen.keyspaces["b"] = [keyspace(failed=["b"], refusal=refusal)]
    seen.keyspaces["c"] = [keyspace(failed=["b"])]
    text = f"the store refuses writes, for b: {refusal}"
    assert only(seen) == (CRITICAL, "store-read-only", text)


def test_a_share_that_has_failed() -> None:
    seen = healthy()
    seen.keyspaces["a"] = [keyspace(failed=["b"])]
    assert problems_in(seen) == []
    seen.keyspaces["c"] = [keyspace(failed=["b"])]
    assert only(seen)[:2] == (CRITICAL, "bug")
    seen.rows[1] = row("b", status="leave", in_ring=False)
    assert problems_in(seen) == []  # it has ended with its member


def test_a_ring_without_members() -> None:
    seen = healthy()
    seen.rows = [row(name, status="leave", in_ring=False) for name in ("a", "b", "c")]
    assert only(seen) == (CRITICAL, "members", "nobody is in the ring: no key has an owner")


def test_views_are_compared_that_were_asked_for_together_and_differ_for_a_while() -> None:
    seen = healthy()
    seen.nodes["b"]["checksum"] = 8
    seen.views_differ = False
    assert problems_in(seen) == []
    seen.views_differ, seen.asked = True, frozenset({"a", "c"})
    assert problems_in(seen) == []
    seen.asked = frozenset({"a", "b"})
    assert only(seen)[:2] == (CRITICAL, "views")


def test_members_that_differ_in_versions_stores_and_settings() -> None:
    seen = healthy()
    seen.nodes["c"] |= {"version": "2.0", "store": "t"}
    seen.settings["c"] = {"period_s": 0.5, "proxy.retries": 3}
    assert sorted(told(problems_in(seen))) == [
        (WARNING, "settings", "members differ in period_s (0.2, 0.5)"),
        (WARNING, "versions", "members have different versions: 1.0: a, b | 2.0: c"),
        (CRITICAL, "stores", "members have different stores: s: a, b | t: c"),
    ]


def test_members_without_a_store_are_no_trouble() -> None:
    seen = healthy()
    seen.nodes["c"]["store"] = None
    del seen.nodes["b"]["store"]  # an older version
    assert problems_in(seen) == []


def test_clocks_that_differ_for_certain() -> None:
    seen = healthy()
    seen.clocks_s["b"] = 6.0
    assert only(seen) == (
        WARNING,
        "clock",
        "the clock of b is 6.0 s ahead of that of a: correct it",
    )
    seen.off_s["b"] = 3.0  # its answer took six seconds, so it may as well be right
    assert problems_in(seen) == []


@pytest.mark.parametrize(
    ("changes", "level", "text"),
    [
        ({"free_bytes": 50 * 10**9}, WARNING, "5% is free, 50.0 GB"),
        ({"free_bytes": 10**9}, CRITICAL, "0% is free, 1.0 GB"),
        ({"free_bytes": None, "trouble": "it hangs"}, CRITICAL, "it hangs"),
    ],
)
def test_disks(changes: dict[str, object], level: int, text: str) -> None:
    seen = healthy()
    seen.checkups["a"]["disks"] = [disk(0.5, **changes)]
    assert only(seen) == (level, "disk", f"store of a (/data): {text}")


@pytest.mark.parametrize(
    ("kind", "why", "cause", "text"),
    [
        ("store-full", "/s: quota", "store-full", "the store is full, for a, b: /s: quota"),
        (
            "store-refused",
            "/s: ro",
            "store-read-only",
            "the store refuses writes, for a, b: /s: ro",
        ),
        ("store-unavailable", "no answer", "store", "the store fails, for a, b: no answer"),
        ("", "it is gone", "store-deleted", "the store is gone, for a, b: it is gone"),
    ],
)
def test_a_store_that_takes_no_writes_is_one_problem(
    kind: str, why: str, cause: str, text: str
) -> None:
    seen = healthy()
    for name in ("a", "b"):
        seen.checkups[name] |= {"store_trouble": why, "store_trouble_kind": kind}
        seen.keyspaces[name] = [keyspace(refusal=why)]
    assert only(seen) == (CRITICAL, cause, text)


def test_lines_that_were_lost() -> None:
    seen = healthy()
    seen.checkups["a"]["log_lines_lost"] = 3
    assert only(seen) == (WARNING, "log", "a could not write 3 lines of its log")
    seen.checkups["a"] |= {"at": 1_000.0, "log_lost_at": 950.0}
    assert only(seen)[1] == "log"
    seen.checkups["a"]["log_lost_at"] = 900.0
    assert problems_in(seen) == []  # it was a while ago, and is over


def test_connections_that_were_refused() -> None:
    seen = healthy()
    seen.checkups["b"]["connections_refused"] = 2
    text = "b has refused 2 connections since it began: a limit was reached"
    assert only(seen) == (WARNING, "connections", text)
    seen.checkups["b"] |= {"at": 1_000.0, "connections_refused_at": 900.0}
    assert problems_in(seen) == []


def test_keys_that_are_due_for_long_and_are_still_there() -> None:
    seen = healthy()
    seen.keyspaces["a"] = [keyspace(overdue_s=10.0)]
    assert problems_in(seen) == []
    seen.keyspaces["a"] = [keyspace(overdue_s=12.0)]
    seen.keyspaces["b"] = [keyspace(overdue_s=1_234.5)]
    text = "keys of k are still there 1,234 s after they were due, at a, b"
    assert only(seen) == (WARNING, "expiry", text)
    assert problems_in(seen)[0].next == "ringpopctl partitions --keyspace k"


def test_copies_that_are_missing() -> None:
    seen = healthy()
    seen.keyspaces["b"] = [keyspace(copies_missing=3)]
    severity, cause, text = only(seen)
    assert (severity, cause) == (WARNING, "copies")
    assert "partitions of k have fewer copies than they should have, by their owners b" in text


def test_reminders_that_are_late() -> None:
    seen = healthy()
    seen.keyspaces["a"] = [keyspace(reminders_overdue_s=60.0)]
    assert problems_in(seen) == []
    seen.keyspaces["a"] = [keyspace(reminders_overdue_s=61.0)]
    text = "reminders of k are 61 s late, at a"
    assert only(seen) == (WARNING, "reminders", text)


def test_checkpoints_that_fail() -> None:
    seen = healthy()
    seen.keyspaces["b"] = [keyspace(checkpoint_trouble="the object is too large")]
    text = "checkpoints of k fail at b: the object is too large"
    assert only(seen) == (WARNING, "checkpoints", text)


def test_a_member_may_say_how_many_there_should_be() -> None:
    seen = healthy()
    seen.nodes["a"]["expected"] = 5
    assert only(seen) == (CRITICAL, "members", "3 members are in the ring, not 5")


def test_a_process_with_another_key() -> None:
    seen = healthy()
    why = "the connection was closed: its certificate is not of a key that is trusted here"
    for name in ("a", "b"):
        seen.checkups[name]["strangers"] = [{"peer": "10.0.0.9", "why": why, "count": 7}]
    level, cause, text = only(seen)
    assert (level, cause) == (WARNING, "key")
    assert text == f"a process at 10.0.0.9 is refused by a, b: {why}"


def test_a_slow_node_is_no_reason_for_partitions_that_wait_for_something_else() -> None:
    seen = healthy()
    strain = {"woken": 10, "late": 9, "stalled_s": 0.0, "waiting": None, "stolen": None}
    seen.checkups["b"]["strain"] = strain
    for name in ("a", "b", "c"):
        seen.keyspaces[name] = [keyspace(served=10, waits_for="2 members, of 3")]
    seen.nodes["b"]["checksum"] = 8
    starved, partitions = problems_in(seen)
    assert (partitions.cause, partitions.level) == ("partitions", CRITICAL)
    assert (starved.cause, starved.level) == ("starved", CRITICAL)  # it explains the views
    assert starved.evidence[-1] == "2 different views of the cluster: a, c | b"


def test_a_lost_member_explains_what_comes_of_it() -> None:
    seen = healthy()
    seen.rows[1] = row("b", status="faulty", in_ring=False, address="h:1")
    seen.nodes["a"] |= {"silent_hosts": {"h:1": "refused"}, "expected": 3}
    del seen.nodes["b"], seen.checkups["b"], seen.keyspaces["b"]
    for name in ("a", "c"):
        seen.keyspaces[name] = [keyspace(served=10)]
    [problem] = problems_in(seen)
    assert problem.level == CRITICAL
    assert problem.members == ("b",)
    assert problem.evidence == (
        "6 of 16 partitions of k are not served",
        "2 members are in the ring, not 3",
        "the host h:1 does not answer: refused",
    )
