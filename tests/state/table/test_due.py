"""Keys that expire: what is stored, what is due, and what the entries of the log do."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from ringpop_py.base.errors import BadOperation, ConditionFailed, ConfigError, KeyspaceError
from ringpop_py.base.values.operations import Change, PackedWrite, Value, Write
from ringpop_py.state.memory.direct import DirectState
from ringpop_py.state.memory.mergeable import MergeableState, content_of
from ringpop_py.state.memory.versioned import HybridClock
from ringpop_py.state.requests import expiring
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.conditions import conditional, register_conditions
from ringpop_py.state.table.due import (
    MARK,
    PIECE_KEYS,
    DueTimes,
    at_ms_of,
    register_expiry,
    stamped,
)
from ringpop_py.state.table.joins import LAST_WRITER_WINS
from ringpop_py.state.table.keyed import KeyedState

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Outcome

pack = msgpack.packb


class Hand:
    """A clock that is set by hand."""

    def __init__(self, ms: int = 1_000_000) -> None:
        self.ms = ms

    def set_ms(self) -> int:
        return self.ms

    def due_ms(self) -> int:
        return self.ms


class Bench:
    """A state whose entries are kept, as a log does."""

    def __init__(self, clock: Hand | None = None) -> None:
        self.clock = clock or Hand()
        self.aggregations = Aggregations()
        register_conditions(self.aggregations)
        register_expiry(self.aggregations, self.clock)
        self.state = KeyedState(pack, self.aggregations, due=DueTimes(self.clock))
        self.log: list[object] = []
        self.count = 0

    def write(self, *changes: Change, write_id: int | None = None) -> Outcome | KeyspaceError:
        if write_id is None:
            self.count += 1
            write_id = self.count
        body, (outcome,) = self.state.stage([Write("w", write_id, changes)])
        self.commit(body)
        return outcome

    def commit(self, body: object) -> None:
        if self.state.due.used:
            body = self.state.expired(body)
        if body is not None:
            self.state.apply(body)
            self.log.append(msgpack.unpackb(msgpack.packb(body), strict_map_key=False))

    def put(self, key: str, value: Value, **times: Any) -> Outcome | KeyspaceError:  # noqa: ANN401
        return self.write(Change(key, *expiring("put", value, **times)))

    def sweep(self) -> None:
        self.commit(None)

    def keys(self) -> list[str]:
        return [key for key, _ in self.state.scan_packed("", None, None, 1_000)]

    def get(self, key: str) -> Value:
        (packed,) = self.state.packed([key])
        return None if packed is None else msgpack.unpackb(packed)

    def at_ms(self, key: str) -> int | None:
        (stored,) = self.state.packed([key], stored=True)
        return None if stored is None else at_ms_of(stored)

    def replayed(self) -> KeyedState:
        state = KeyedState(pack, Aggregations(), due=DueTimes(self.clock))
        for body in self.log:
            state.apply(body)
        return state


def test_a_key_expires_by_an_entry_and_not_before_its_instant() -> None:
    bench = Bench()
    bench.put("a", 1, expires_in=2)
    bench.put("b", 2)
    bench.clock.ms += 1_999
    bench.sweep()
    assert bench.get("a") == 1
    assert len(bench.log) == 2, "nothing was due, so nothing was logged"
    bench.clock.ms += 1
    assert bench.get("a") == 1, "readers do not go by a clock"
    bench.sweep()
    assert bench.keys() == ["b"]
    assert bench.replayed().packed(["a", "b"]) == [None, pack(2)]


def test_a_put_ends_an_instant_and_other_operations_keep_it() -> None:
    bench = Bench()
    bench.put("n", 1, expires_in=5)
    bench.write(Change("n", "add", 2))
    assert (bench.get("n"), bench.at_ms("n")) == (3, 1_005_000)
    bench.write(Change("n", *conditional("put", 9, if_none_match=["x"])))
    assert (bench.get("n"), bench.at_ms("n")) == (9, None)
    bench.write(Change("n", *expiring("add", 1, expires_in=1)))
    assert (bench.get("n"), bench.at_ms("n")) == (10, 1_001_000)
    bench.write(Change("n", "persist"))
    assert (bench.get("n"), bench.at_ms("n")) == (10, None)
    bench.clock.ms += 10_000
    bench.sweep()
    assert bench.get("n") == 10


def test_a_key_that_is_deleted_and_put_again_does_not_expire_by_its_first_instant() -> None:
    bench = Bench()
    bench.put("a", 1, expires_in=1)
    bench.write(Change("a", "delete"))
    bench.put("a", 2, expires_in=5)
    bench.clock.ms += 1_000
    bench.sweep()
    assert bench.get("a") == 2
    bench.clock.ms += 4_000
    bench.sweep()
    assert bench.keys() == []


def test_a_write_of_the_same_group_counts_before_what_is_due() -> None:
    bench = Bench()
    bench.put("a", 1, expires_in=1)
    bench.put("b", 1, expires_in=1)
    bench.clock.ms += 1_000
    bench.put("a", 2, expires_in=1)
    assert bench.keys() == ["a"], "b was due, and a was renewed by the same group"


def test_a_repeated_put_does_not_bring_an_expired_key_back() -> None:
    bench = Bench()
    change = Change("a", *expiring("put", 1, expires_in=1))
    bench.write(change, write_id=7)
    bench.clock.ms += 1_000
    bench.sweep()
    outcome = bench.write(change, write_id=7)
    assert not isinstance(outcome, KeyspaceError)
    assert outcome.repeated
    assert bench.keys() == []


def test_many_keys_expire_in_pieces() -> None:
    bench = Bench()
    for number in range(2 * PIECE_KEYS + 1):
        bench.put(f"k{number}", number, expires_in=1)
    bench.clock.ms += 1_000
    sizes = []
    while bench.state.due.first_ms <= bench.clock.ms:
        bench.sweep()
        body = bench.log[-1]
        assert isinstance(body, list)
        sizes.append(len(body[1]))
    assert sizes == [PIECE_KEYS, PIECE_KEYS, 1]


def test_renewals_cost_no_room_in_the_index() -> None:
    bench = Bench()
    for _ in range(10_000):
        bench.put("a", 1, expires_in=60)
        bench.clock.ms += 1
    assert len(bench.state.due._heap) == 1


def test_deleted_keys_leave_the_index() -> None:
    bench = Bench()
    for number in range(5 * PIECE_KEYS):
        bench.put(f"k{number}", 1, expires_in=60)
        bench.write(Change(f"k{number}", "delete"))
    assert len(bench.state.due) == 0
    assert len(bench.state.due._heap) <= PIECE_KEYS + 1


def test_a_clock_that_is_set_back_delays_and_loses_nothing() -> None:
    bench = Bench()
    bench.put("a", 1, expires_in=1)
    bench.clock.ms += 1_000
    assert bench.state.due.due() == ["a"]
    bench.clock.ms -= 500
    bench.sweep()
    assert bench.keys() == ["a"]
    bench.clock.ms += 500
    bench.sweep()
    assert bench.keys() == []


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ({"expires_in": 0}, "expires_in is seconds above 0"),
        ({"expires_in": -1}, "expires_in"),
        ({"expires_in": True}, "expires_in"),
        ({"expires_in": float("nan")}, "expires_in"),
        ({"expires_in": 1e12}, "100 years"),
        ({"expires_in": "60"}, "expires_in"),
        ({"expires_at": dt.datetime(2030, 1, 1)}, "with a time zone"),  # noqa: DTZ001
        ({"expires_at": "2030-01-01"}, "expires_at"),
        ({"expires_in": 1, "expires_at": 2}, "exclude each other"),
    ],
)
def test_times_that_are_none_are_refused(times: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        expiring("put", 1, **times)


def test_a_delete_has_no_instant() -> None:
    with pytest.raises(ConfigError, match="not for a delete"):
        expiring("delete", expires_in=1)


def test_a_moment_can_be_a_datetime() -> None:
    moment = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    assert expiring("put", 1, expires_at=moment) == expiring(
        "put", 1, expires_at=moment.timestamp()
    )


def test_an_instant_in_the_past_is_refused_by_the_owner() -> None:
    bench = Bench()
    outcome = bench.put("a", 1, expires_at=999)
    assert isinstance(outcome, BadOperation)
    assert "1.000 s in the past" in str(outcome)
    assert bench.keys() == []


@pytest.mark.parametrize(
    "argument",
    [
        None,
        {"operation": "put"},
        ["put", 1],
        ["put", 1, None, None],
        ["expiring", [], 1, None],
        ["put", 1, 0, None],
        ["put", 1, 1.5, None],
        ["put", 1, 1, 1],
        ["put", 1, None, 1 << 63],
        ["put", 1, 1, None, 1],
        [1, 1, 1, None],
        ["nothing", 1, 1, None],
    ],
)
def test_malformed_operations_are_refused(argument: Value) -> None:
    bench = Bench()
    assert isinstance(bench.write(Change("a", "expiring", argument)), BadOperation)
    assert bench.keys() == []


def test_a_field_does_not_expire() -> None:
    bench = Bench()
    argument = {"x": list(expiring("put", 1, expires_in=1))}
    assert isinstance(bench.write(Change("a", "fields", argument)), BadOperation)


def test_a_condition_guards_an_expiring_write() -> None:
    bench = Bench()
    guarded = conditional("put", 1, if_none_match="*")
    bench.write(Change("a", *expiring(*guarded, expires_in=5)))
    outcome = bench.write(Change("a", *expiring(*guarded, expires_in=50)))
    assert isinstance(outcome, ConditionFailed)
    assert bench.at_ms("a") == 1_005_000


def test_instants_are_in_checkpoints_and_increments() -> None:
    bench = Bench()
    for key in "abcd":
        bench.put(key, key, expires_in=1)
    whole = bench.state.snapshot()
    bench.write(Change("a", "persist"))
    bench.write(Change("b", "delete"))
    bench.put("c", "later", expires_in=9)
    increment = bench.state.snapshot(since=whole.mark)
    restored = Bench(bench.clock)
    restored.state.restore([whole, increment])
    bench.clock.ms += 1_000
    restored.sweep()
    assert restored.keys() == ["a", "c"]
    assert restored.at_ms("c") == 1_009_000


def test_rows_of_a_job_can_have_instants() -> None:
    bench = Bench()
    rows = [stamped(pack(1), 1_000_500), pack(2)]
    body, _ = bench.state.stage([PackedWrite("job", 0, "put", ["a", "b"], rows)])
    bench.commit(body)
    assert (bench.get("a"), bench.get("b")) == (1, 2)
    bench.clock.ms += 500
    bench.sweep()
    assert bench.keys() == ["b"]


def test_a_value_that_only_begins_like_one_with_an_instant_stays() -> None:
    bench = Bench()
    body, _ = bench.state.stage([PackedWrite("job", 0, "put", ["a"], [MARK + b"short"])])
    bench.commit(body)
    bench.clock.ms += 1 << 50
    bench.sweep()
    assert bench.keys() == ["a"]


def test_replay_and_the_owner_agree_after_random_courses() -> None:
    for seed in range(40):
        rng, bench = random.Random(seed), Bench()
        for _ in range(150):
            key = rng.choice("abcdef")
            match rng.randrange(6):
                case 0:
                    bench.put(key, rng.randrange(9), expires_in=rng.randrange(1, 9) / 4)
                case 1:
                    bench.put(key, rng.randrange(9))
                case 2:
                    bench.write(Change(key, "add", 1))
                case 3:
                    bench.write(Change(key, rng.choice(["delete", "persist"])))
                case 4:
                    bench.clock.ms += rng.randrange(-500, 1_500)
                case _:
                    bench.sweep()
        replayed = bench.replayed()
        keys = bench.keys()
        assert replayed.packed(keys, stored=True) == bench.state.packed(keys, stored=True)
        assert [k for k, _ in replayed.scan_packed("", None, None, 99)] == keys
        at = {key: bench.at_ms(key) for key in keys}
        assert len(replayed.due) == len(bench.state.due) == sum(v is not None for v in at.values())


# Copies in memory mode.


def make_copy(name: str, clock: Hand) -> MergeableState:
    aggregations = Aggregations()
    register_expiry(aggregations, clock)
    return MergeableState(HybridClock(name), pack, aggregations, DueTimes(clock))


def put_in(state: MergeableState, number: int, key: str, value: Value, clock: Hand) -> None:
    change = Change(key, *expiring("put", value, expires_in=1))
    (outcome,) = state.write([Write("w", number, (change,))], clock.ms)
    assert not isinstance(outcome, KeyspaceError)


def merge(ours: MergeableState, theirs: MergeableState, clock: Hand) -> None:
    for part in theirs.parts(clock.ms):
        ours.merge(content_of(*part), LAST_WRITER_WINS, clock.ms, transfer="")


def test_a_copy_that_expires_a_key_does_not_undo_its_renewal_at_another() -> None:
    clock = Hand()
    a, b = make_copy("a", clock), make_copy("b", clock)
    put_in(a, 1, "k", 1, clock)
    merge(b, a, clock)
    clock.ms += 900
    put_in(b, 2, "k", 2, clock)  # cut off from a
    clock.ms += 100
    a.expire()
    assert a.keyed.packed(["k"]) == [None]
    merge(a, b, clock)
    merge(b, a, clock)
    assert a.keyed.packed(["k"]) == b.keyed.packed(["k"]) == [pack(2)]
    clock.ms += 900
    a.expire()
    merge(b, a, clock)
    assert b.keyed.packed(["k"]) == [None]
    assert len(b.keyed.due) == 0


def test_both_copies_expire_a_key_alike() -> None:
    clock = Hand()
    a, b = make_copy("a", clock), make_copy("b", clock)
    put_in(a, 1, "k", 1, clock)
    merge(b, a, clock)
    clock.ms += 1_000
    a.expire()
    b.expire()
    merge(a, b, clock)
    merge(b, a, clock)
    assert a.versions.export(clock.ms) == b.versions.export(clock.ms)


def test_where_copies_are_joined_no_key_can_expire() -> None:
    clock = Hand()
    aggregations = Aggregations()
    register_expiry(aggregations, clock)
    state = MergeableState(HybridClock("a"), pack, aggregations, DueTimes(clock, "not here"))
    change = Change("k", *expiring("put", 1, expires_in=1))
    (outcome,) = state.write([Write("w", 0, (change,))], clock.ms)
    assert isinstance(outcome, BadOperation)
    assert str(outcome) == "not here"


# One process alone.


def test_a_state_that_nobody_logs_expires_when_it_is_used() -> None:
    clock = Hand()
    aggregations = Aggregations()
    register_expiry(aggregations, clock)
    state = DirectState(pack, aggregations, DueTimes(clock), keys_max=None)
    state.change("a", *expiring("put", 1, expires_in=1))
    state.change("a", "add", 1)
    assert state.packed(["a"]) == [pack(2)]
    clock.ms += 1_000
    state.expire()
    assert state.packed(["a"]) == [None]
    state.change("a", "add", 1)
    assert state.packed(["a"]) == [pack(1)]


def test_keys_that_expire_are_counted_once_and_how_late_the_oldest_one_is_is_known() -> None:
    clock, expired = Hand(), Counter[str]()
    due = DueTimes(clock, expired=expired, name="k")
    rows = {"a": 2_000, "b": 3_000, "c": 4_000, "renewed": 1_500}
    due.note({key: stamped(b"", clock.ms + at) for key, at in rows.items()}, ())
    due.note({"renewed": stamped(b"", clock.ms + 60_000), "x": b""}, ())
    assert due.overdue_s() == 0
    clock.ms += 3_500
    assert due.overdue_s() == 1.5  # of "a": a key that was renewed is not late
    assert due.overdue_s() == 1.5
    due.note({}, ["c"])  # somebody has deleted it
    assert (expired, len(due)) == ({}, 3)
    due.note({}, due.due())
    assert (expired, len(due), due.overdue_s()) == ({"k": 2}, 1, 0)
    due.clear()
    assert due.overdue_s() == 0


def test_a_copy_for_reading_is_never_late() -> None:
    due = DueTimes()
    due.note({"a": stamped(b"", 1)}, ())
    assert (len(due), due.overdue_s()) == (1, 0)


def test_a_trial_of_rows_that_expire_refuses_none_of_them() -> None:
    bench = Bench()
    values = [stamped(pack(1), bench.clock.ms + 1), pack(2)]

    assert bench.state.refusals(PackedWrite("job", 0, "put", ["a", "b"], values)) == {}
