"""Durable puts and gets: one by one, by many callers, in groups, and through another node."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgpack
import trio

from ringpop_py.base.config.settings import StateConfig
from tests.bench.keyspaces.nodes import (
    KEYSPACE,
    a_keyspace,
    a_node,
    keys_of,
    processes,
    stores_in,
    whole,
)
from tests.bench.report import Row, larger_is_better, smaller_is_better

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from ringpop_py.state.keyspaces.keyspace import Keyspace

PARTITIONS: Final = 64
SINGLES_COUNT: Final = 300
SINGLE_TARGET: Final = 0.5
GROUP: Final = 100
GROUP_TARGET: Final = 0.4
GROUP_CALLERS: Final = 4
"""Of one partition: while one group is committed, the next ones wait."""
SPREADS: Final = (1, 4, 16)
ROUNDS: Final = 7
ROUND_S: Final = 0.4
CALLERS: Final = (1, 64)
BATCHES: Final = (100, 1_000)
VALUE: Final = "x" * 64
BARE: Final = "write, fsync, link, fsync folder"
JOURNAL: Final = "bare journal"

Rate = tuple[str, float, str]
"""The name of a row, its value and its unit."""


def singles(folder: Path) -> Iterator[Row]:
    """One put after the other, beside what a file system takes at least to put a file once."""
    ours_s, bare_s = trio.run(_singles, folder)
    yield smaller_is_better(
        "state.put.single", ours_s * 1e6, "us", BARE, bare_s * 1e6, SINGLE_TARGET
    )


async def _singles(folder: Path) -> tuple[float, float]:
    """In turns, one by one: what else runs slows both."""
    ours: list[float] = []
    bare: list[float] = []
    async with a_keyspace(folder / "store", PARTITIONS) as keyspace:
        with bare_puts(folder / "bare") as put:
            for index in range(SINGLES_COUNT):
                started = perf_counter()
                put(index)
                between = perf_counter()
                await keyspace.put(f"key-{index}", VALUE)
                ours.append(perf_counter() - between)
                bare.append(between - started)
    return median(ours), median(bare)


@contextmanager
def bare_puts(folder: Path) -> Iterator[Callable[[int], None]]:
    """The least that puts a durable file if it is not there, and is seen whole or not at all."""
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    data = msgpack.packb(["key", VALUE])

    def put(index: int) -> None:
        new = f"{folder}/new-{index}"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(file, data)
        os.fsync(file)
        os.close(file)
        os.link(new, f"{folder}/{index:010}")
        os.fsync(descriptor)
        os.unlink(new)  # noqa: PTH108 - no objects here

    try:
        yield put
    finally:
        os.close(descriptor)


def groups(folder: Path) -> Iterator[Row]:
    """Puts in groups of 100, of callers that all write to 1, 4 or 16 partitions."""
    for kind, url in stores_in(folder).items():
        with journal(folder / f"journal-{kind}") as append:
            found = trio.run(_groups, url, append)
        for spread, (ours, bare) in found.items():
            name = f"state.puts.{kind}.groups_of_{GROUP}.{spread}_partitions"
            target = GROUP_TARGET if spread == 1 else None
            yield larger_is_better(name, ours, "1/s", JOURNAL, bare, target)


async def _groups(url: str, append: Callable[[], None]) -> dict[int, tuple[float, float]]:
    state = StateConfig(group_writes_max=GROUP)
    found: dict[int, tuple[float, float]] = {}
    async with a_keyspace(url, PARTITIONS, state=state) as keyspace:
        for spread in SPREADS:
            rates = []
            for _ in range(ROUNDS):
                ours = await _rate_of_groups(keyspace, spread)
                rates.append((ours, _rate_of_journal(append)))
            ours, bare = (median(column) for column in zip(*rates, strict=True))
            found[spread] = ours, bare
    return found


async def _rate_of_groups(keyspace: Keyspace, spread: int) -> float:
    calls = []
    for number in range(spread):
        keys = keys_of(keyspace, number, GROUP)
        changes = [(key, "put", VALUE) for key in keys]
        calls += [lambda changes=changes: keyspace.update_many(changes)] * GROUP_CALLERS
    return GROUP * await rate(calls)


@contextmanager
def journal(path: Path) -> Iterator[Callable[[], None]]:
    """What appends a group of 100 records to a file and syncs it: no store is simpler."""
    records = [[f"key-{index}", "put", VALUE] for index in range(GROUP)]
    pack = msgpack.Packer().pack
    with path.open("ab", buffering=0) as file:

        def append() -> None:
            file.write(b"".join([pack(record) for record in records]))
            os.fsync(file.fileno())

        yield append


def _rate_of_journal(append: Callable[[], None]) -> float:
    started, done = perf_counter(), 0
    while perf_counter() - started < ROUND_S:
        append()
        done += 1
    return GROUP * done / (perf_counter() - started)


async def rate(calls: Sequence[Callable[[], Awaitable[Any]]], for_s: float = ROUND_S) -> float:
    """How many of *calls* are done a second, if a caller each repeats them for a while."""
    done = 0
    started = perf_counter()

    async def repeat(call: Callable[[], Awaitable[Any]]) -> None:
        nonlocal done
        while perf_counter() - started < for_s:
            await call()
            done += 1

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(repeat, call)
    return done / (perf_counter() - started)


def rates(folder: Path) -> Iterator[Row]:
    """Puts and gets a second at the owner, and through another node."""
    for name, value, unit in trio.run(_rates_at_owner, folder / "one"):
        yield Row(name, value, unit)
    for name, value, unit in trio.run(_rates_elsewhere, folder / "two"):
        yield Row(name, value, unit)


async def _rates_at_owner(folder: Path) -> list[Rate]:
    async with a_keyspace(folder, PARTITIONS) as keyspace:
        return await _rates_of(keyspace, [f"key-{index}" for index in range(10_000)], "owner")


async def _rates_elsewhere(folder: Path) -> list[Rate]:
    """The keys are those of another process; both have half of all."""
    with processes(folder, ["b"], partitions=PARTITIONS) as (other,):
        other.next_said()
        async with a_node(folder, "a", hosts=[other.address]) as node:
            keyspace = await node.open_keyspace(KEYSPACE, partitions=PARTITIONS)
            await whole(keyspace, ["a", "b"])
            keys = (f"key-{index}" for index in range(100_000))
            theirs = [key for key in keys if keyspace.owner_of(key) == "b"]
            return await _rates_of(keyspace, theirs[:10_000], "other_node")


async def _rates_of(keyspace: Keyspace, keys: Sequence[str], where: str) -> list[Rate]:
    turns = cycle(keys)
    return [
        *await _rates_one_by_one(keyspace, turns, where),
        *await _rates_in_batches(keyspace, turns, where),
    ]


async def _rates_one_by_one(keyspace: Keyspace, turns: Iterator[str], where: str) -> list[Rate]:
    async def put() -> None:
        await keyspace.put(next(turns), VALUE)

    async def get() -> None:
        await keyspace.get(next(turns))

    async def get_stale() -> None:
        await keyspace.get(next(turns), stale=True)

    found = []
    for name, call in (("puts", put), ("gets", get), ("stale_gets", get_stale)):
        for callers in CALLERS:
            value = median([await rate([call] * callers) for _ in range(ROUNDS)])
            found.append((f"state.{name}.{where}.{callers}_callers", value, "1/s"))
    return found


async def _rates_in_batches(keyspace: Keyspace, turns: Iterator[str], where: str) -> list[Rate]:
    async def put(size: int) -> None:
        await keyspace.update_many([(key, "put", VALUE) for key in islice(turns, size)])

    async def get(size: int) -> None:
        await keyspace.get_many(islice(turns, size))

    found = []
    for name, call in (("puts", put), ("gets", get)):
        for size in BATCHES:
            value = size * median([await rate([partial(call, size)]) for _ in range(ROUNDS)])
            found.append((f"state.{name}.{where}.batches_of_{size}", value, "1/s"))
    return found
