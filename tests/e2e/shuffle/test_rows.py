"""Rows on real processes: they are put, and read in order, each once, whoever is killed."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from ringpop_py.base.errors import (
    ShuffleConflict,
    ShuffleDeleted,
    ShuffleEnded,
    ShuffleIncomplete,
    ShuffleRefused,
    ShuffleUnknown,
)
from ringpop_py.flow.shuffle.client.client import ShuffleClient, list_shuffles
from ringpop_py.flow.shuffle.client.cluster import Cluster
from ringpop_py.flow.shuffle.client.lines import Line
from ringpop_py.flow.shuffle.protocol import calls as c
from tests.e2e.shuffle.cluster import ShuffleCluster, until

if TYPE_CHECKING:
    from ringpop_py.flow.shuffle.client.puts import Receipt

ROWS = 60_000
SCHEMA = pa.schema([("key", pa.int64()), ("text", pa.string())])


def rows(seed: int, count: int = ROWS) -> pa.Table:
    keys = np.random.default_rng(seed).integers(0, 5_000, count)
    return pa.table({"key": keys, "text": [f"{seed} {key}" for key in keys]}, schema=SCHEMA)


def put(client: ShuffleClient, table: pa.Table, parts: int = 6) -> Receipt:
    with client.attempt() as attempt:
        for number in range(parts):
            size = table.num_rows // parts
            attempt.put(table.slice(number * size, size))
    return attempt.receipt


def keys_of(*tables: pa.Table) -> list[int]:
    return sorted(key for table in tables for key in table.column("key").to_pylist())


def test_the_receipt_of_another_shuffle_is_refused(cluster: ShuffleCluster) -> None:
    """Each shuffle numbers its attempts from 0 on, and equal tasks have equal counts."""
    with ShuffleClient(cluster.addresses, "again") as client:
        client.create(SCHEMA, ["key"], intervals=4)
        former = put(client, rows(1))
        client.delete()
    with ShuffleClient(cluster.addresses, "again") as client:
        client.create(SCHEMA, ["key"], intervals=4)
        ours = put(client, rows(1))
        assert ours[:3] == former[:3]
        with pytest.raises(ShuffleConflict, match="the receipt of attempt 0 is of another shuffle"):
            client.end([former])
        with pytest.raises(ShuffleConflict, match="the receipt of attempt 0 is of another shuffle"):
            client.commit([former], stream="s", batch=0)
        client.end([ours])
        client.delete()


def test_rows_come_out_in_order_each_once_without_those_of_losers(cluster: ShuffleCluster) -> None:
    tables = [rows(seed) for seed in range(3)]
    with ShuffleClient(cluster.addresses, "sorted") as client:
        client.create(SCHEMA, ["key"], intervals=24)
        client.create(SCHEMA, ["key"], intervals=24)
        receipts = [put(client, table) for table in tables]
        loser = put(client, tables[0])
        client.end(receipts)
        client.end(receipts)

        with pytest.raises(ShuffleEnded):
            client.attempt()
        with pytest.raises(ShuffleConflict, match="with other attempts"):
            client.end([loser])
        sizes = [interval.rows for interval in client.intervals]
        out = client.reader().read_all()

    assert sum(sizes) == 3 * ROWS
    assert max(sizes) < 1.05 * sum(sizes) / len(sizes)
    assert out.schema == SCHEMA
    assert out.column("key").to_pylist() == keys_of(*tables)
    assert sorted(out.column("text").to_pylist()) == sorted(
        text for table in tables for text in table.column("text").to_pylist()
    )
    with ShuffleClient.open(cluster.addresses, "sorted") as reader:
        parts = [reader.reader(rank, 5).read_all() for rank in range(5)]
        assert pa.concat_tables(parts).equals(out)
        found = pa.Table.from_batches(reader.scan((100,), (200,), columns=["key"]))
        assert found.column("key").to_pylist() == [
            key for key in keys_of(*tables) if 100 <= key < 200
        ]
        assert [each.name for each in list_shuffles(cluster.addresses)] == ["sorted"]
        reader.delete()
        with pytest.raises(ShuffleDeleted):
            reader.interval(0)
    assert list_shuffles(cluster.addresses) == []


def test_a_client_is_told_what_was_wrong(cluster: ShuffleCluster) -> None:
    with ShuffleClient(cluster.addresses, "wrong", timeout_s=10) as client:
        with pytest.raises(ShuffleUnknown, match="there is no shuffle 'wrong'"):
            client.refresh()
        with pytest.raises(ShuffleRefused, match="there is no column 'user' to sort by"):
            client.create(SCHEMA, ["user"])
        client.create(SCHEMA, ["key"], intervals=4)
        with pytest.raises(ShuffleConflict, match="exists with another schema, other keys"):
            client.create(SCHEMA, ["text"], intervals=4)
        with client.attempt() as attempt:
            with pytest.raises(
                ShuffleRefused, match="column 0 of the rows is 'key', of type string"
            ):
                attempt.put(pa.table({"key": ["a"], "text": ["b"]}))
            attempt.put(rows(1))
        number, frames, count, *_ = attempt.receipt
        with pytest.raises(
            ShuffleIncomplete, match="it has 1 frames with 60000 rows, not 2 "
        ) as caught:
            client.end([(number, frames + 1, count)])
        assert caught.value.attempts == (number,)
        with pytest.raises(ShuffleRefused, match="begin attempts of a stream with"):
            client.commit([attempt.receipt], stream="s", batch=0)
        for seed in (1, 1, 2):
            with client.attempt(for_commit=True) as again:
                for part in rows(seed).to_batches(7_000)[:: -1 if seed == 1 else 1]:
                    again.put(part)
            if seed == 1:
                client.commit([again.receipt], stream="s", batch=0)
        with pytest.raises(ShuffleConflict, match="committed before with 60,000 other rows"):
            client.commit([again.receipt], stream="s", batch=0)
        with pytest.raises(ShuffleIncomplete, match="1 of 1 frames are missing"):
            client.end([(number + 1000, 1, 1)])
        client.end([attempt.receipt])
        with pytest.raises(ShuffleRefused, match="there are 4 intervals"):
            client.interval(4)
        client.delete()


def test_a_node_is_killed_while_rows_are_put_and_comes_back(cluster: ShuffleCluster) -> None:
    tables = [rows(seed) for seed in range(4)]
    with ShuffleClient(cluster.addresses, "killed in put") as client:
        client.create(SCHEMA, ["key"], intervals=12)
        receipts = [put(client, tables[0]), put(client, tables[1])]
        cluster[1].kill()
        receipts.append(put(client, tables[2]))
        cluster[1].start()
        receipts.append(put(client, tables[3]))
        client.end(receipts)

        assert client.reader().read_all().column("key").to_pylist() == keys_of(*tables)
        client.delete()
    cluster.wait_ready(3)


def test_a_node_is_killed_at_the_end_and_while_rows_are_read(cluster: ShuffleCluster) -> None:
    tables = [rows(seed, 4 * ROWS) for seed in range(3)]
    with ShuffleClient(cluster.addresses, "killed at the end") as client:
        client.create(SCHEMA, ["key"], intervals=12)
        receipts = [put(client, table) for table in tables]
        client.end(receipts, wait=False)
        cluster[2].kill()
        client.wait(60)

        assert client.reader().read_all().column("key").to_pylist() == keys_of(*tables)
        cluster[2].start()
        cluster.wait_ready(3)
        # It joins, and has its share of the intervals soon.
        until(lambda: len({each.owner for each in refreshed(client)}) == 3, cluster.logs)
        until(lambda: all(each.replica for each in refreshed(client)), cluster.logs)
        cluster[0].kill()
        assert client.reader().read_all().column("key").to_pylist() == keys_of(*tables)
        cluster[0].start()
        until(lambda: all(each.replica for each in refreshed(client)), cluster.logs)
        client.delete()
    cluster.wait_ready(3)


def refreshed(client: ShuffleClient) -> list:  # type: ignore[type-arg]
    client.refresh()
    return client.intervals


@pytest.mark.parametrize("name", ["a/../../b", "\u6d41" * 200])
def test_a_shuffle_may_have_any_name(cluster: ShuffleCluster, name: str) -> None:
    with ShuffleClient(cluster.addresses, "bystander") as bystander:
        bystander.create(SCHEMA, ["key"], intervals=2)
        bystander.end([put(bystander, rows(1))])
        with ShuffleClient(cluster.addresses, name) as client:
            client.create(SCHEMA, ["key"], intervals=2)
            client.end([put(client, rows(2))])
            assert client.reader().read_all().num_rows == ROWS
            client.delete()
        assert bystander.reader().read_all().num_rows == ROWS
        bystander.delete()


def test_a_call_that_a_client_should_not_send_is_refused(cluster: ShuffleCluster) -> None:
    schema = bytes(SCHEMA.serialize())
    calls: list[tuple[c.Call, str]] = [
        (c.Create("bad", c.Definition(b"no schema", ("key",)), 4), "cannot be read here"),
        (c.Create("bad", c.Definition(schema, ()), 4), "1 to 16 different columns"),
        (c.Create("bad", c.Definition(schema, ("key",)), 0), "1 to 4096 intervals"),
        (c.Create("b\n", c.Definition(schema, ("key",)), 4), "printable characters"),
    ]
    with closing(Line(addresses_of(cluster)[0], 5.0, None)) as line:
        for call, said in calls:
            with pytest.raises(ShuffleRefused, match=said):
                line.call(call, timeout_s=10)
    with ShuffleClient(cluster.addresses, "counted", timeout_s=20) as client:
        client.create(SCHEMA, ["key"], intervals=2)
        with pytest.raises(ShuffleIncomplete, match="1000000000 of 1000000000 frames are missing"):
            client.end([(3, 10**9, 5)])
        client.delete()


def addresses_of(cluster: ShuffleCluster) -> list[str]:
    found = Cluster(cluster.addresses, 5.0)
    found.look()
    return list(found.addresses.values())


def test_a_bound_that_is_none_of_the_keys_is_refused(cluster: ShuffleCluster) -> None:
    with ShuffleClient(cluster.addresses, "bounds") as client:
        client.create(SCHEMA, ["key"], intervals=2)
        client.end([put(client, rows(1))])
        for start in ("12", (1, 2), ("a",), {1: 2}):
            with pytest.raises(ShuffleRefused, match="start"):
                list(client.scan(start=start))  # type: ignore[arg-type]
        with pytest.raises(ShuffleRefused, match="there is no column 'what'"):
            list(client.scan(columns=["what"]))
        client.delete()


def test_an_attempt_that_has_failed_takes_no_more(cluster: ShuffleCluster) -> None:
    with ShuffleClient(cluster.addresses, "failed attempt", timeout_s=20) as client:
        client.create(SCHEMA, ["key"], intervals=2)
        attempt = client.attempt()
        client.end([])
        with pytest.raises(ShuffleEnded):
            attempt.put(rows(1))
        with pytest.raises(ShuffleRefused, match="has failed before: begin another one"):
            attempt.put(rows(2))
        with pytest.raises(ShuffleRefused, match="has failed before"):
            attempt.finish()
        client.delete()


def test_of_a_deleted_shuffle_no_file_is_left(cluster: ShuffleCluster) -> None:
    def left() -> int:
        return sum(len(list((folder / "data").iterdir())) for folder in cluster.folders)

    with ShuffleClient(cluster.addresses, "short-lived") as client:
        client.create(SCHEMA, ["key"], intervals=2)
        client.end([put(client, rows(1))])
        assert left() > 0
        client.delete()
    until(lambda: left() == 0, cluster.logs)


def test_a_connection_that_stops_in_a_message_does_not_keep_others_out(
    cluster: ShuffleCluster,
) -> None:
    head = c.packed_head(1, c.Put("anything", 1), 60 << 20)
    sockets = [
        socket.create_connection(tuple(address.rsplit(":", 1)))  # type: ignore[arg-type]
        for address in addresses_of(cluster)
        for _ in range(4)
    ]
    for one in sockets:
        one.sendall(head + b"some")
    with ShuffleClient(cluster.addresses, "kept out", timeout_s=60) as client:
        client.create(SCHEMA, ["key"], intervals=2)
        receipt = put(client, rows(1))
        client.end([receipt])
        assert client.reader().read_all().num_rows == ROWS
        client.delete()
    for one in sockets:
        one.close()
