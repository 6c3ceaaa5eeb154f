"""A task's side of route, against real owners and without Spark."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ringpop_py.base.address import Address
from ringpop_py.base.errors import ApplicationError, BadRequest, ConfigError, MaxRetriesExceeded
from ringpop_py.base.values.packed import decode_value
from ringpop_py.client.sync.client import Client
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.route.proxy.request import Request
from ringpop_py.spark import ring_snapshot, sender
from ringpop_py.spark.sender import HASH, Message, RouteCounts, RoutePlan, Sender, Through, probe
from ringpop_py.state.rows.batches import BatchSource

if TYPE_CHECKING:
    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


def plan_for(cluster: Cluster, **changes: Any) -> RoutePlan:  # noqa: ANN401 - fields of a Plan
    plan = RoutePlan(
        job=uuid.uuid4().hex,
        key="tailnum",
        endpoint="/flights",
        peers=tuple(cluster.addresses),
        snapshot=ring_snapshot(cluster.addresses),
        through="owners",
        in_flight=2,
        max_retries=3,
        schedule_s=(0.0, 0.1),
        timeout_s=5.0,
    )
    return replace(plan, **changes)


def flights(count: int) -> pa.RecordBatch:
    keys = [f"{uuid.uuid4().hex}" for _ in range(count)]
    hashes = HashRing(["any"]).hashes_of(keys).view(np.int64)
    return pa.record_batch(
        {
            "tailnum": keys,
            "arr_delay": pa.array([1.0] * count),
            "distance": pa.array([10] * count),
            HASH: pa.array(hashes),
        }
    )


def send(plan: RoutePlan, *batches: pa.RecordBatch, attempt: int = 0) -> RouteCounts:
    with Sender(plan, partition=0, attempt=attempt) as sending:
        for sequence, batch in enumerate(batches):
            sending.send(sequence, batch)
        sending.finish()
        return sending.counts


def totals(cluster: Cluster) -> dict[str, list[int]]:
    held: dict[str, list[int]] = {}
    for node in cluster.running:
        with Client(node.address) as client:
            part = decode_value("msgpack", client.invoke(Request("/totals")))
        assert not held.keys() & part.keys()
        held |= part
    return held


@pytest.mark.parametrize("through", ["owners", "daemon"])
def test_each_row_reaches_its_owner_once(cluster: Cluster, through: Through) -> None:
    batches = [flights(500), flights(300)]

    counts = send(plan_for(cluster, through=through), *batches)

    held = totals(cluster)
    keys = [key for batch in batches for key in batch.column("tailnum").to_pylist()]
    assert [held[key] for key in keys] == [[1, 1, 10]] * 800
    assert sum(counts.owners.values()) == 800
    assert (counts.moved_rows, counts.repeated_rows, counts.retries) == (0, 0, 0)


def test_a_second_attempt_of_a_task_changes_nothing(cluster: Cluster) -> None:
    plan, batch = plan_for(cluster), flights(200)
    send(plan, batch)

    counts = send(plan, batch, attempt=1)

    assert counts.repeated_rows == sum(counts.owners.values()) == 200
    held = totals(cluster)
    assert all(held[key] == [1, 1, 10] for key in batch.column("tailnum").to_pylist())


def test_rows_that_moved_are_sent_again_by_a_fresh_ring(cluster: Cluster) -> None:
    plan, batch = plan_for(cluster), flights(300)
    ring = plan.snapshot.ring
    stale = replace(plan.snapshot, ring=ring.with_changes(removed=[ring.owners[0]]))

    counts = send(replace(plan, snapshot=stale), batch)

    expected = ring.weights_of(batch.column("tailnum").to_pylist())
    assert counts.owners == expected
    assert counts.moved_rows == expected[ring.owners[0]] > 0
    assert counts.retries > 0


def test_an_owner_that_leaves_the_ring_while_a_batch_is_sent_is_no_longer_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "MESSAGE_BYTES_MAX", 4_000)  # some messages an owner
    plan, batch = plan_for(cluster, in_flight=1), flights(1_000)
    ring = plan.snapshot.ring.with_changes(added=["gone"])
    addresses = plan.snapshot.addresses | {"gone": Address("127.0.0.1", 1)}
    stale = replace(plan.snapshot, ring=ring, addresses=addresses)

    counts = send(replace(plan, snapshot=stale), batch)

    keys = batch.column("tailnum").to_pylist()
    assert ring.weights_of(keys)["gone"] > 0
    assert counts.owners == plan.snapshot.ring.weights_of(keys)


def test_rows_without_a_key_are_counted_and_not_sent(cluster: Cluster) -> None:
    batch = flights(4)
    keys = pa.array(["", None, "x" + uuid.uuid4().hex, None])
    batch = batch.set_column(0, "tailnum", keys)
    hashes = HashRing(["any"]).hashes_of([key or "" for key in keys.to_pylist()])
    batch = batch.set_column(3, HASH, pa.array(hashes.view(np.int64)))

    counts = send(plan_for(cluster), batch)

    assert counts.null_keys == 2
    assert sum(counts.owners.values()) == 2


def test_large_rows_travel_in_several_messages(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "MESSAGE_BYTES_MAX", 4_000)

    counts = send(plan_for(cluster), flights(1_000))

    assert sum(counts.owners.values()) == 1_000
    assert counts.batches > 12


@pytest.mark.parametrize("through", ["owners", "daemon"])
def test_an_unknown_endpoint_is_found_out_at_once(cluster: Cluster, through: Through) -> None:
    plan = plan_for(cluster, endpoint="/nowhere", through=through)

    with pytest.raises(BadRequest, match="/nowhere"):
        probe(plan)
    with pytest.raises(BadRequest, match="/nowhere"):
        send(plan, flights(10))


def test_the_handlers_own_error_is_raised_and_not_retried(cluster: Cluster) -> None:
    batch = flights(10).drop_columns(["distance"])

    with pytest.raises(ApplicationError, match="not-flights"):
        send(plan_for(cluster), batch)


def test_an_owner_that_is_gone_is_named_with_the_history(mortal_cluster: Cluster) -> None:
    plan = plan_for(mortal_cluster, max_retries=0)  # another try may find that it is known
    mortal_cluster.kill(mortal_cluster.nodes[1])

    with pytest.raises(MaxRetriesExceeded, match="node-2 did not accept") as caught:
        send(plan, flights(100))

    (line,) = caught.value.history
    assert "attempt 1 to node-2: ConnectRefused" in line


# Questions.

LENGTHS = pa.schema([("key", pa.string()), ("length", pa.int64())])
PADDINGS = pa.schema([("key", pa.string()), ("padding", pa.binary())])


def question(keys: list[str], **columns: list[int]) -> pa.RecordBatch:
    hashes = HashRing(["any"]).hashes_of(keys).view(np.int64)
    return pa.record_batch({"key": pa.array(keys), **columns, HASH: pa.array(hashes)})


def asked(plan: RoutePlan, *batches: pa.RecordBatch) -> tuple[pa.Table, RouteCounts]:
    assert plan.answers is not None
    with Sender(plan, partition=0, attempt=0) as sending:
        for sequence, batch in enumerate(batches):
            sending.send(sequence, batch)
        sending.finish()
        return pa.Table.from_batches(sending.take_answers(), plan.answers), sending.counts


@pytest.mark.parametrize("through", ["owners", "daemon"])
def test_answers_of_all_owners_come_with_the_columns_that_were_asked_for(
    cluster: Cluster, through: Through
) -> None:
    plan = plan_for(cluster, key="key", endpoint="/lengths", answers=LENGTHS, through=through)
    keys = [f"{'x' * (index % 9)}{index}" for index in range(500)]

    answers, counts = asked(plan, question(keys), question(["", "é"]))

    rows = sorted(answers.to_pylist(), key=lambda row: row["key"])
    expected = sorted(2 * [*keys, "", "é"])
    assert rows == [{"key": key, "length": len(key.encode())} for key in expected]
    assert set(counts.owners) == {"node-1", "node-2", "node-3"}


def test_rows_that_moved_are_asked_about_again_by_a_fresh_ring(cluster: Cluster) -> None:
    plan = plan_for(cluster, key="key", endpoint="/lengths", answers=LENGTHS)
    ring = plan.snapshot.ring
    stale = replace(plan.snapshot, ring=ring.with_changes(removed=[ring.owners[0]]))
    keys = [str(index) for index in range(300)]

    answers, counts = asked(replace(plan, snapshot=stale), question(keys))

    assert sorted(answers.column("key").to_pylist()) == sorted(2 * keys)
    assert counts.moved_rows > 0


def test_answers_that_are_too_large_together_come_in_parts(cluster: Cluster) -> None:
    plan = plan_for(cluster, key="key", endpoint="/paddings", answers=PADDINGS)
    keys, sizes = [str(index) for index in range(300)], [100_000] * 300

    answers, counts = asked(plan, question(keys, size=sizes))

    assert sorted(answers.column("key").to_pylist()) == sorted(keys)
    assert counts.batches > 30_000_000 / (4 << 20)


def test_an_answer_to_one_row_that_is_too_large_is_an_error(cluster: Cluster) -> None:
    plan = plan_for(cluster, key="key", endpoint="/paddings", answers=PADDINGS)

    with pytest.raises(BadRequest, match="an answer to one row that no message can carry"):
        asked(plan, question(["a", "b"], size=[1, 5 << 20]))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([("weight", pa.int64())], "weight"),
        ([("key", pa.int64())], "Failed to parse"),
    ],
)
def test_answers_that_do_not_fit_are_an_error(
    cluster: Cluster, schema: list[tuple[str, pa.DataType]], message: str
) -> None:
    plan = plan_for(cluster, key="key", endpoint="/lengths", answers=pa.schema(schema))

    with pytest.raises(ConfigError, match=f"answers of /lengths do not fit.*{message}"):
        asked(plan, question(["a"]))


def test_an_endpoint_that_answers_nothing_is_found_out_immediately(cluster: Cluster) -> None:
    plan = plan_for(cluster, key="key", endpoint="/rows", answers=LENGTHS)

    with pytest.raises(BadRequest, match="/rows accepts batches, but does not answer them"):
        probe(plan)


# Owners that end.


def test_a_message_keeps_the_history_of_its_attempts() -> None:
    rows = flights(1)
    message = Message("node-2", BatchSource("job", 0, 0), rows, np.zeros(1, np.uint64))

    failed = message.failed("no answer").failed("moved")

    assert failed.history == ("attempt 1 to node-2: no answer", "attempt 2 to node-2: moved")
    assert failed.attempts == 2


@pytest.mark.parametrize("through", ["owners", "daemon"])
def test_the_rows_of_an_owner_that_is_gone_reach_its_successors(
    mortal_cluster: Cluster, through: Through
) -> None:
    victim, *others = mortal_cluster.nodes
    plan = plan_for(mortal_cluster, max_retries=30, schedule_s=(0.0, 0.25), through=through)
    mortal_cluster.kill(victim)

    counts = send(plan, flights(300))

    assert sum(counts.owners.values()) == 300
    assert set(counts.owners) == {node.name for node in others}
