"""Kafka as a source, against the brokers that librdkafka itself brings for tests."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import trio

from ringpop_py import PRESETS
from ringpop_py.base.errors import ConfigError, SourceFailed
from ringpop_py.streams import BadRecord, Kafka, Record, start_stream
from tests.state.keyspaces.clusters import a_cluster

confluent_kafka = pytest.importorskip("confluent_kafka")

PARTITIONS = 4  # as many as these brokers make of a topic


class Brokers:
    """Brokers on loopback that live as long as the producer that has them."""

    def __init__(self) -> None:
        settings = {"test.mock.num.brokers": 2, "log_level": 0}
        self._producer = confluent_kafka.Producer(settings)
        listed = self._producer.list_topics(timeout=10).brokers.values()
        self.addresses = ",".join(f"{each.host}:{each.port}" for each in listed)

    def send(self, key: str | None, value: bytes | None, partition: int = 0) -> None:
        self._producer.produce("clicks", value, key=key, partition=partition)

    def flush(self) -> None:
        assert self._producer.flush(10) == 0


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def a_source(brokers: Brokers, key: str | None = None) -> Kafka:
    return Kafka("clicks", brokers=brokers.addresses, key=key, settings={"log_level": 0})


def read_all(source: Kafka, split: str, after: int, count: int) -> list[Record | BadRecord]:
    """Read until there are so many; a broker takes a while to be found."""
    found: list[Record | BadRecord] = []
    for _ in range(100):
        at = found[-1].position if found else after
        found += source.read(split, at, count - len(found))
        if len(found) >= count:
            break
        time.sleep(0.02)
    return found


def test_a_partition_is_a_split_and_is_read_from_any_position(brokers: Brokers) -> None:
    for number in range(10):
        brokers.send(f"user-{number}", json.dumps({"n": number}).encode())
    brokers.flush()
    source = a_source(brokers)

    assert source.splits() == [f"clicks-{number}" for number in range(PARTITIONS)]
    first = read_all(source, "clicks-0", 0, 4)
    assert [record.position for record in first] == [1, 2, 3, 4]
    assert first[0] == Record(1, "user-0", {"n": 0}, 8)
    rest = read_all(source, "clicks-0", 4, 6)
    assert [record.position for record in rest] == [5, 6, 7, 8, 9, 10]
    assert read_all(source, "clicks-0", 2, 3) == [*first[2:], rest[0]]  # back again
    assert list(source.read("clicks-1", 0, 5)) == []


def test_unusable_records_come_with_the_reason(brokers: Brokers) -> None:
    for key, value in (("u", b"rubbish"), (None, b"1"), ("u", None), ("u", b'{"v": 2}')):
        brokers.send(key, value)
    brokers.flush()

    found = read_all(a_source(brokers), "clicks-0", 0, 4)
    why = [record.why for record in found if isinstance(record, BadRecord)]
    assert why == ["not a json value: JSONDecodeError", "it has no key", "it has no value"]
    assert found[3] == Record(4, "u", {"v": 2}, 8)
    by_field = read_all(a_source(brokers, key="v"), "clicks-0", 3, 1)
    assert by_field == [Record(4, "2", {"v": 2}, 8)]


def test_a_topic_that_is_not_there_or_brokers_that_are_gone(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringpop_py.flow.streams.kafka.ASK_S", 0.3)
    nobody = Kafka("clicks", brokers="127.0.0.1:1", settings={"log_level": 0})
    with pytest.raises(SourceFailed, match="topic clicks"):
        nobody.splits()
    brokers.send("u", b"1")
    brokers.flush()
    source = a_source(brokers)
    with pytest.raises(SourceFailed, match="clicks-0"):
        read_all(source, "clicks-0", 1_000, 5)  # behind all that there is


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"settings": {"group.id": "mine"}}, "sets group.id itself"),
        ({"lines": "xml"}, "json or text"),
        ({"brokers": ""}, "brokers"),
    ],
    ids=["settings", "lines", "brokers"],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Kafka("clicks", **{"brokers": "127.0.0.1:1", **options})


async def test_messages_count_once_in_a_keyspace(brokers: Brokers) -> None:
    for number in range(400):
        brokers.send(f"user-{number % 7}", b"2", number % PARTITIONS)
    await trio.to_thread.run_sync(brokers.flush)
    with trio.fail_after(60):
        async with a_cluster(gossip=PRESETS["local"]) as cluster:
            nodes = [await cluster.start(name) for name in "ab"]
            keyspaces = [await node.open_keyspace("clicks", partitions=4) for node in nodes]
            streams = [
                start_stream(keyspace, a_source(brokers), "add", name="s") for keyspace in keyspaces
            ]
            wanted = {f"user-{n}": 2 * len(range(n, 400, 7)) for n in range(7)}
            while {key: value async for key, value in keyspaces[0].scan()} != wanted:
                await trio.sleep(0.05)
            await cluster.stop("b")
            for number in range(70):
                brokers.send(f"user-{number % 7}", b"1", 0)
            await trio.to_thread.run_sync(brokers.flush)
            wanted = {key: total + 10 for key, total in wanted.items()}
            while {key: value async for key, value in keyspaces[0].scan()} != wanted:
                await trio.sleep(0.05)
            assert {row["trouble"] for row in streams[0].rows()} == {""}
