"""`cli.keyspaces`: what nodes answer, as people read it (the commands run in tests/e2e)."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from ringpop_py.edge.cli.commands import ExitCode
from ringpop_py.edge.ctl import keyspaces
from ringpop_py.edge.ctl.keyspaces import (
    checkpoints_text,
    exit_code_of,
    partitions_text,
    say_damaged,
    settings_from,
    show_text,
)

ONLINE: dict[str, Any] = {
    "partition": 0,
    "status": "online",
    "owner": "a",
    "desired": "a",
    "previous": "",
    "epoch": 1,
    "checkpoint": None,
    "served": True,
    "settled": True,
    "keys": 7,
}
MOVING = {
    **ONLINE,
    "partition": 1,
    "status": "migrating",
    "desired": "b",
    "epoch": 12,
    "checkpoint": [11, 300],
    "served": False,
    "settled": False,
    "keys": None,
}
ORPHAN = {**ONLINE, "partition": 2, "owner": "c", "served": False, "settled": False, "keys": None}
HERE: dict[str, Any] = {
    "name": "a",
    "partitions": 1,
    "keys": 7,
    "gaining": 2,
    "handoffs": {"count": 3, "pause_s_p50": 0.004, "pause_s_max": 0.0123},
    "checkpoints": {"whole": 5, "incremental": 9, "failed": 1, "bytes": 12_345_678},
    "troubles_count": 2,
    "troubles": [{"partition": 2, "text": "folder store: no space"}, {"partition": 3, "text": "x"}],
}
FOUND: dict[str, Any] = {
    "name": "counts",
    "mode": "durable",
    "strategy": "balanced",
    "generation": 2,
    "partitions": 3,
    "epoch": 12,
    "assignment_version": 3,
    "statuses": {"unassigned": 0, "assigned": 0, "online": 2, "migrating": 1, "offline": 0},
    "served": 1,
    "settled": 1,
    "moving": 1,
    "members": [
        {"name": "a", "partitions": 1, "desired": 2},
        {"name": "b", "partitions": 0, "desired": 1},
    ],
    "busiest_over_mean": 2.0,
    "waits_for": None,
    "failed": [],
    "definition": {"name": "counts", "automatic": True, "max_keys_per_partition": None},
    "here": {"a": HERE},
    "silent": {"b": "cannot reach it"},
    "rows": [MOVING, ORPHAN],
}


def test_partitions_shows_members_and_what_is_not_where_it_should_be() -> None:
    assert partitions_text(FOUND, rows_shown=False).splitlines() == [
        "counts: durable, balanced, generation 2, assignment 3, epoch 12",
        "3 partitions: 1 online, 1 migrating, 1 owner gone",
        "MEMBER  PARTITIONS  DESIRED  KEYS  COMING  TROUBLE",
        "a                1        2  7     2       2",
        "b                0        1  ?     ?       ?",
        "1 of 2 members serve, busiest over mean 2.00, 1 moving, 2 unserved",
        "PARTITION  STATUS      OWNER  DESIRED  PREVIOUS  EPOCH  CHECKPOINT  KEYS",
        "        1  migrating   a      b        -            12  11/300      -",
        "        2  owner gone  c      a        -             1  -           -",
        "store trouble at a, partition 2 (and 1 more): folder store: no space",
        "b does not answer: cannot reach it",
    ]


def test_a_share_that_has_failed_is_told_in_its_own_words_if_it_can_be_asked() -> None:
    failure = "this node's share of keyspace 'counts' has failed: IndexError"
    found = {**FOUND, "failed": ["a", "b"], "here": {"a": {**HERE, "failure": failure}}}

    lines = partitions_text(found, rows_shown=False).splitlines()

    assert f"a: {failure}" in lines
    assert "b: it cannot serve partitions; `ringpopctl check` says why" in lines


def test_a_partition_that_cannot_be_read_stands_as_damaged_unless_somebody_serves_it() -> None:
    rows = [dict(row) for row in (ONLINE, MOVING, {**ORPHAN, "status": "assigned"})]
    statuses = {"online": 1, "migrating": 1, "assigned": 1}
    found = {**FOUND, "rows": rows, "statuses": statuses}

    say_damaged(found, [0, 2])
    say_damaged(found, [2])  # another member says so, too

    lines = partitions_text(found, rows_shown=True).splitlines()
    assert lines[1] == "3 partitions: 1 online, 1 migrating, 1 damaged"
    assert [row["status"] for row in rows] == ["online", "migrating", "damaged"]


class OneAnswer:
    """A client whose node has the partition of each key in the row *row*."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row

    def admin(self, *_: object, **__: object) -> dict[str, Any]:
        return {"key": "k", **self.row}


def test_a_key_that_nobody_serves_is_looked_up_at_those_who_know_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damaged = {**ORPHAN, "status": "damaged"}
    found = {**FOUND, "rows": [ONLINE, MOVING, damaged]}
    monkeypatch.setattr(keyspaces, "_gather", lambda _client, _name: found)

    unserved, served = (
        keyspaces.look_up(OneAnswer(row), "k", "counts")  # type: ignore[arg-type]
        for row in (ORPHAN, ONLINE)
    )

    assert unserved.exit_code == ExitCode.DIVERGED
    assert "damaged" in unserved.text
    assert "store trouble at a, partition 2 (and 1 more): folder store: no space" in unserved.text
    assert (served.exit_code, "store trouble" in served.text) == (ExitCode.OK, False)


def test_of_many_partitions_that_are_elsewhere_some_are_shown() -> None:
    rows = [{**MOVING, "partition": number} for number in range(25)]

    some = partitions_text({**FOUND, "rows": rows}, rows_shown=False)
    all_of_them = partitions_text({**FOUND, "rows": rows}, rows_shown=True)

    assert some.count("migrating   ") + some.count("migrating  ") >= 20
    assert "… and 5 more; --all shows them" in some
    assert "more; --all" not in all_of_them


def test_why_nothing_is_assigned_is_shown() -> None:
    text = partitions_text({**FOUND, "waits_for": "1 of the 3 members"}, rows_shown=False)

    assert "waits: 1 of the 3 members" in text
    assert "CHECKPOINT" not in text


def test_show_has_the_settings_and_what_each_member_has_done() -> None:
    assert show_text(FOUND).splitlines()[:8] == [
        "SETTING                 VALUE",
        "name                    counts",
        "automatic               yes",
        "max_keys_per_partition  -",
        "",
        "MEMBER  HANDOFFS  PAUSE P50  MAX      CHECKPOINTS  PARTIAL  FAILED    MB",
        "a              3  4.0 ms     12.3 ms            5        9       1  12.3",
        "",
    ]


def test_flags_override_what_a_preset_has() -> None:
    flags = dict.fromkeys(("partitions", "mode", "min_cluster_size", "merge", "virtual_nodes"))
    flags |= dict.fromkeys(("strategy", "max_keys_per_partition", "checkpoint_interval_s"))
    flags |= dict.fromkeys(("copies", "copies_min"))
    options = argparse.Namespace(name="x", preset="ripple", manual=True, hash_tags=True, **flags)
    options.partitions = 64

    assert settings_from(options) == {
        "name": "x",
        "strategy": "ring",
        "partitions": 64,
        "checkpoint_interval_s": 10,
        "max_keys_per_partition": 2000,
        "virtual_nodes": 128,
        "automatic": False,
        "hash_tags": True,
    }


WELL: dict[str, Any] = {"partitions": 3, "settled": 3, "here": {}, "silent": {}}


@pytest.mark.parametrize(
    ("differently", "exit_code"),
    [
        ({}, 0),
        ({"silent": {"b": "cannot reach it"}}, 4),
        ({"settled": 2}, 3),
        ({"here": {"a": HERE}}, 3),
        ({"failed": ["a"]}, 3),
        ({"settled": 2, "silent": {"b": "cannot reach it"}}, 3),
    ],
)
def test_the_exit_code_tells_how_well_a_keyspace_is(
    differently: dict[str, Any], exit_code: int
) -> None:
    assert exit_code_of([WELL, {**WELL, **differently}]) == exit_code


def test_checkpoints_are_listed_with_when_and_of_how_much() -> None:
    made = {
        "name": "epoch-7",
        "made_at": 1795262842.5,
        "made_by": "a",
        "generation": 2,
        "partitions": 16,
        "keys": 1000,
        "bytes": 2_600_000,
    }

    assert checkpoints_text({"name": "counts", "checkpoints": [made]}).splitlines() == [
        "CHECKPOINT  MADE AT (UTC)        BY  GENERATION  PARTITIONS  KEYS   MB",
        "epoch-7     2026-11-21 12:07:22  a            2          16  1000  2.6",
    ]
    assert "no checkpoint" in checkpoints_text({"name": "counts", "checkpoints": []})
