"""Facts as records and as lines."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from ringpop_py.base.address import Address
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.records import NAMED_MAX, record_of, record_of_burst, text_of

A = Member("a", *Address("10.0.0.1", 3000), 7)
DUTIES = (fx.CallPeer, fx.AnswerPeer, fx.HostsWanted, fx.DigestDiffers)
SUSPECT = replace(A, status=Status.SUSPECT)
REPORT = fx.ProbeReport("refused", (("c", "refused"), ("d", "silent")), strong=True)

FACTS = [
    fx.StatusChanged(None, A, "join", "b", "b"),
    fx.StatusChanged(A, SUSPECT, "probe", "b", "b", probe=REPORT),
    fx.StatusChanged(SUSPECT, None, "timer", "b", "b"),
    fx.SuspicionConfirmed(SUSPECT, "c", ("b", "c"), 1_500_000),
    fx.Refuted(SUSPECT, A, "b"),
    fx.HealthChanged(2, "a missed nack"),
    fx.Stalled(700_000),
    fx.DampVoted("a", 5_100, (("b", 5_200),), damped=True),
    fx.NameTaken(A, A, lost=True),
    fx.StrangerRefused(A.address, "other", "ours"),
    fx.PeerTrouble("10.0.0.1:3000", "/protocol/ping", "it cannot be read", "upgrade it"),
    fx.Ready(3),
    fx.JoinRejected(A.address, "this is another cluster", fatal=False),
    fx.HostSilent(A.address, "refused: nobody listens there"),
    fx.Healed((A.address,), (A.address,)),
    fx.Announced(),
    fx.Evicted(),
]


def test_there_is_an_example_of_each_fact() -> None:
    assert {type(fact) for fact in FACTS} == set(get_args(fx.Effect)) - set(DUTIES)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_each_fact_is_a_record_that_json_holds_and_one_line(fact: fx.Effect) -> None:
    record = record_of(fact)

    assert record is not None
    assert json.loads(json.dumps(record)) == record
    assert "\n" not in text_of(record)


def test_the_keys_of_records_are_the_fields_of_their_facts() -> None:
    assert [
        record_of(fact) for fact in FACTS if isinstance(fact, fx.JoinRejected | fx.Stalled)
    ] == [
        {"event": "stalled", "for_s": 0.7},
        {
            "event": "join-rejected",
            "host": "10.0.0.1:3000",
            "reason": "this is another cluster",
            "fatal": False,
        },
    ]


def test_a_text_that_a_peer_made_up_cannot_command_a_terminal() -> None:
    record = record_of(fx.StatusChanged(A, SUSPECT, "ping", "b", "\x1b[2J\n\u202eeve"))

    assert record is not None
    assert text_of(record).endswith(r"first said by \x1b[2J\n\u202eeve")
    assert text_of(record).isprintable()


def test_a_burst_of_changes_is_one_record_and_one_line() -> None:
    came = [replace(A, name=f"m{n}") for n in range(300)]
    changes = [fx.StatusChanged(None, row, "join", "b", "b") for row in came]
    changes += [fx.StatusChanged(row, None, "join", "b", "b") for row in came[:7]]

    record = record_of_burst(changes)

    assert (record["count"], record["counts"]) == (307, {"alive": 300, "evicted": 7})
    assert [len(names) for names in record["members"].values()] == [NAMED_MAX, 7]
    assert json.loads(json.dumps(record)) == record
    assert text_of(record) == (
        "307 members changed: 300 alive (m0, m1, m2, m3, m4 and 295 more), "
        "7 evicted (m0, m1, m2, m3, m4 and 2 more): by joining from b"
    )


def test_a_duty_is_no_news() -> None:
    assert record_of(fx.HostsWanted()) is None


DEAD = replace(A, status=Status.FAULTY)
MOVED = replace(A, incarnation=8, host="10.0.0.9")
TWO_OF_ONE_NAME = "the process at 10.0.0.9:3000 has the name a, too: this one, at 10.0.0.1:3000,"


def changed(after: Member, via: fx.Via = "ping", source: str = "b") -> fx.StatusChanged:
    return fx.StatusChanged(A, after, via, "d", source)


@pytest.mark.parametrize(
    ("fact", "text", "fields"),
    [
        (
            fx.StatusChanged(A, SUSPECT, "probe", "b", "b", probe=REPORT),
            "a alive -> suspect: own probe (evidence: ping refused; helpers: c refused, d silent)",
            {"helpers": {"c": "refused", "d": "silent"}},
        ),
        (
            fx.StatusChanged(SUSPECT, DEAD, "timer", "b", "b", None, ("b", "c"), 3_000_000),
            "a suspect -> faulty: its time was up after 3.00 s, accused by b, c",
            {},
        ),
        (changed(SUSPECT), "a alive -> suspect: by ping from d, first said by b", {}),
        (
            changed(MOVED, "ack", "d"),
            "a alive, new address: by the answer to a ping from d",
            {"changed": ["address"]},
        ),
        (
            changed(replace(A, damping=1), "damping", "d"),
            "a alive, damped: by flap damping from d",
            {"damped": True},
        ),
        (
            changed(replace(A, damping=2), "damping", "d"),
            "a alive, no longer damped: by flap damping from d",
            {"damped": False},
        ),
        (
            changed(replace(SUSPECT, damping=1), source="d"),
            "a alive -> suspect, damped: by ping from d",
            {},
        ),
        (
            fx.NameTaken(A, MOVED, lost=True, since_ms=5),
            f"{TWO_OF_ONE_NAME} has to stop",
            {"since_ms": 5},
        ),
        (
            fx.NameTaken(A, MOVED, lost=False),
            f"{TWO_OF_ONE_NAME} keeps it",
            {},
        ),
    ],
)
def test_a_fact_is_told_with_its_causes(
    fact: fx.Effect, text: str, fields: dict[str, object]
) -> None:
    record = record_of(fact) or {}

    assert text_of(record) == text
    assert record.items() >= fields.items()


B_AT, C_AT = Address("10.0.0.2", 3000), Address("10.0.0.3", 3000)


@pytest.mark.parametrize(
    ("run", "event", "text"),
    [
        (fx.Healed(), "heal-tried", "nothing to heal"),
        (
            fx.Healed(failed=(C_AT,)),
            "heal-tried",
            "no list came from 10.0.0.3:3000",
        ),
        (
            fx.Healed((B_AT,)),
            "heal-tried",
            "reached 10.0.0.2:3000, where members have to refute before a merge",
        ),
        (
            fx.Healed((B_AT,), (B_AT,), (C_AT,)),
            "healed",
            "merged with 10.0.0.2:3000; no list came from 10.0.0.3:3000",
        ),
    ],
)
def test_only_what_was_merged_is_called_healed(run: fx.Healed, event: str, text: str) -> None:
    record = record_of(run)

    assert record is not None
    assert record["event"] == event
    assert text_of(record) == text
