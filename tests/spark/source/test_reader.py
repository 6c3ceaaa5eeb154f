"""Keyspaces in bulk, from real daemons in this process, without Spark."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import trio

pa = pytest.importorskip("pyarrow", reason="pyarrow is an extra: pip install 'ringpop_py[spark]'")
pytest.importorskip("pyspark", reason="pyspark is an extra: pip install 'ringpop_py[spark]'")

from ringpop_py import Config, KeyspaceUnknown, PartitionUnavailable, open_ringpop  # noqa: E402
from ringpop_py.base.errors import ConfigError  # noqa: E402
from ringpop_py.base.values.packed import decode_value  # noqa: E402
from ringpop_py.spark.options import Target  # noqa: E402
from ringpop_py.spark.source import reader as reading  # noqa: E402
from ringpop_py.spark.source.reader import KeyspaceReader, Packed  # noqa: E402
from ringpop_py.state.placement.keys import partition_of  # noqa: E402
from ringpop_py.state.rows import pages as columnar  # noqa: E402
from ringpop_py.state.stores.memory import MemoryStore  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from ringpop_py.node.ringpop import Ringpop

T = TypeVar("T")
ROWS: dict[str, Any] = {
    f"key-{number}": {"n": number, "t": "ü" * (number % 50)} for number in range(500)
}


@asynccontextmanager
async def nodes(*names: str) -> AsyncIterator[list[Ringpop]]:
    """Members of one cluster, which all serve some of the keyspace "k" with `ROWS` in it."""
    store = MemoryStore()
    found: list[Ringpop] = []
    async with AsyncExitStack() as stack:
        for name in names:
            hosts = tuple(node.address for node in found)
            node = open_ringpop(Config(name=name, hosts=hosts, store="memory:"), store=store)
            found.append(await stack.enter_async_context(node))
        keyspace = await found[0].open_keyspace("k", partitions=8)
        with trio.fail_after(20):
            while set(keyspace.table.counts()) != set(names) or keyspace.table.moving:
                await trio.sleep(0.01)
        await keyspace.update_many([(key, "put", value) for key, value in ROWS.items()])
        yield found


async def reading_of(
    cluster: Iterable[Ringpop], work: Callable[[KeyspaceReader], T], *, direct: bool = True
) -> T:
    """What *work* does with a reader, in a thread."""
    peers = tuple(str(node.address) for node in cluster)

    def run() -> T:
        with KeyspaceReader(Target("k", peers, direct, timeout_s=10)) as reader:
            return work(reader)

    return await trio.to_thread.run_sync(run)


def rows_of(packed: Packed) -> list[tuple[str, object]]:
    values = [None if v is None else decode_value("msgpack", v) for v in packed.values.to_pylist()]
    return list(zip(packed.keys.to_pylist(), values, strict=True))


def scanned(reader: KeyspaceReader) -> list[tuple[str, object]]:
    return [row for packed in reader.scan() for row in rows_of(packed)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers have room for a few rows only."""
    monkeypatch.setattr(reading, "PART_BYTES", 500)
    monkeypatch.setattr(reading, "ROUND_PARTS", 3)
    monkeypatch.setattr(columnar, "ROWS_MAX", 9)
    monkeypatch.setattr(columnar.fitting, "__defaults__", (700,))
    monkeypatch.setattr(columnar.Room.__init__, "__defaults__", (900,))


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through the daemon"])
async def test_a_scan_has_each_row_once(direct: bool) -> None:  # noqa: FBT001
    async with nodes("a", "b") as cluster:
        rows = await reading_of(cluster, scanned, direct=direct)

    assert sorted(rows) == sorted(ROWS.items())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through the daemon"])
async def test_a_scan_in_many_pages_has_each_row_once(direct: bool) -> None:  # noqa: FBT001
    async with nodes("a", "b") as cluster:
        rows = await reading_of(cluster, scanned, direct=direct)

    assert sorted(rows) == sorted(ROWS.items())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through the daemon"])
async def test_partitions_that_move_in_the_middle_of_a_scan_lose_and_double_nothing(
    direct: bool,  # noqa: FBT001
) -> None:
    async with nodes("a") as (a,):
        stored = a.keyspaces._stored
        assert stored is not None
        target = Target("k", (str(a.address),), direct, timeout_s=10)
        make = partial(KeyspaceReader, target)
        with await trio.to_thread.run_sync(make) as reader:
            pages = reader.scan()
            rows = rows_of(await trio.to_thread.run_sync(next, pages))
            config = Config(name="b", hosts=(a.address,), store="memory:")
            async with open_ringpop(config, store=stored.opened.store) as b:
                table = (await b.open_keyspace("k")).table
                with trio.fail_after(20):
                    while table.counts() != {"a": 4, "b": 4} or table.moving:
                        await trio.sleep(0.01)
                rest = await trio.to_thread.run_sync(list, pages)

    rows += [row for page in rest for row in rows_of(page)]
    assert sorted(rows) == sorted(ROWS.items())


async def test_a_scan_of_some_partitions_has_their_rows() -> None:
    async with nodes("a", "b") as cluster:
        (packed,) = await reading_of(cluster, lambda reader: list(reader.scan([5, 2])))

    expected = {key: value for key, value in ROWS.items() if partition_of(key, 8) in (2, 5)}
    assert dict(rows_of(packed)) == expected


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through the daemon"])
async def test_keys_are_read_in_the_order_in_which_they_were_named(direct: bool) -> None:  # noqa: FBT001
    keys = pa.array(["none", *reversed(ROWS), "", "x" * 1_025], pa.large_string())
    async with nodes("a", "b") as cluster:
        values = await reading_of(cluster, lambda reader: reader.read(keys), direct=direct)

    assert rows_of(Packed(keys, values)) == [(key, ROWS.get(key)) for key in keys.to_pylist()]


@pytest.mark.usefixtures("small")
async def test_keys_are_read_in_as_many_rounds_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ROUND_KEYS", 300)
    keys = pa.array([*ROWS, "none"])
    async with nodes("a", "b") as cluster:
        values = await reading_of(cluster, lambda reader: reader.read(keys))

    assert rows_of(Packed(keys, values)) == [*ROWS.items(), ("none", None)]


async def test_there_is_nothing_where_no_key_is_named() -> None:
    async with nodes("a") as cluster:
        values = await reading_of(cluster, lambda reader: reader.read(pa.array([], pa.string())))

    assert values.to_pylist() == []


async def test_a_sample_has_about_as_many_rows_as_asked_for_or_all() -> None:
    async with nodes("a") as cluster:
        some = await reading_of(cluster, lambda reader: reader.sample(10))
        everything = await reading_of(cluster, lambda reader: reader.sample(10_000))

    assert 10 <= len(some.keys) < 20
    assert sorted(rows_of(everything)) == sorted(ROWS.items())


async def test_the_first_peer_that_answers_serves() -> None:
    async with nodes("a") as (node,):
        peers = ("127.0.0.1:1", str(node.address))

        def count() -> int:
            with KeyspaceReader(Target("k", peers)) as reader:
                return sum(len(packed.keys) for packed in reader.scan())

        assert await trio.to_thread.run_sync(count) == len(ROWS)


async def test_a_keyspace_that_is_not_there_is_said_to_be_unknown() -> None:
    async with nodes("a") as (node,):
        target = Target("other", (str(node.address),))
        with pytest.raises(KeyspaceUnknown):
            await trio.to_thread.run_sync(KeyspaceReader, target)


def test_peers_that_do_not_answer_are_named() -> None:
    with pytest.raises(
        PartitionUnavailable, match=r"no peer describes the keyspace:\n  127.0.0.1:1"
    ):
        KeyspaceReader(Target("k", ("127.0.0.1:1",), timeout_s=0.2))
    with pytest.raises(ConfigError, match="at least one peer"):
        KeyspaceReader(Target("k", ()))
