"""Checkpoints, whole and incremental, what restoring takes, and a million keys."""

from __future__ import annotations

import gc
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import trio

from tests.bench.keyspaces.nodes import (
    KEYSPACE,
    a_keyspace,
    a_node,
    resident_bytes,
    whole,
)
from tests.bench.report import Row, smaller_is_better

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringpop_py.state.keyspaces.keyspace import Keyspace

MEGABYTE: Final = 1 << 20
KEYS: Final = 100_000
VALUE: Final = "x" * 100
CHANGED: Final = 0.05
INCREMENT_TARGET: Final = 10.0
ROUNDS: Final = 5
BATCH: Final = 10_000
MILLION: Final = 1_000_000
MILLION_PARTITIONS: Final = 64


def checkpoints(folder: Path) -> Iterator[Row]:
    """Of one partition: what it takes until the file is in the store, and until it is read."""
    whole_s, increment_s, restore_s = trio.run(_checkpoints, folder)
    title = f"state.checkpoint.{KEYS}_keys"
    yield Row(f"{title}.whole", whole_s * 1000, "ms")
    yield smaller_is_better(
        f"{title}.incremental_5_percent",
        increment_s * 1000,
        "ms",
        "whole",
        whole_s * 1000,
        INCREMENT_TARGET,
    )
    yield Row(f"{title}.restore", restore_s * 1000, "ms")


async def _checkpoints(folder: Path) -> tuple[float, float, float]:
    whole_s, increment_s, restore_s = [], [], []
    for index in range(ROUNDS):
        async with a_keyspace(folder / str(index), 1) as keyspace:
            await put_keys(keyspace, KEYS)
            whole_s.append(await checkpoint_all(keyspace))
            await put_keys(keyspace, int(KEYS * CHANGED))
            increment_s.append(await checkpoint_all(keyspace))
        restore_s.append(await _restart(folder / str(index), KEYS))
    return median(whole_s), median(increment_s), median(restore_s)


async def put_keys(keyspace: Keyspace, count: int) -> None:
    """Put the first *count* keys."""
    for first in range(0, count, BATCH):
        keys = (f"key-{index}" for index in range(first, min(first + BATCH, count)))
        await keyspace.update_many([(key, "put", VALUE) for key in keys], timeout_s=300)


async def checkpoint_all(keyspace: Keyspace) -> float:
    """How long it takes to write a checkpoint of each partition."""
    host = host_of(keyspace)
    began_at = perf_counter()
    for partition in host.driver.online():
        assert await host.checkpointer.write(partition) is not None
    return perf_counter() - began_at


def host_of(keyspace: Keyspace) -> Any:  # noqa: ANN401 - benchmarks look behind the doors
    """What serves *keyspace* at this node."""
    return keyspace._host


async def _restart(folder: Path, keys_count: int) -> float:
    """From the start of a node until its partitions are served, with all that was in them."""
    async with a_node(folder) as node:
        began_at = perf_counter()
        keyspace = await node.open_keyspace(KEYSPACE)
        await whole(keyspace, [node.name])
        taken_s = perf_counter() - began_at
        found = sum(len(p.state) for p in host_of(keyspace).driver.online())
        assert found == keys_count
        return taken_s


def million(folder: Path) -> Iterator[Row]:
    """A million keys in 64 partitions: to put them, to keep them, to get them back."""
    load_s, taken_bytes, checkpoint_s = trio.run(_fill_million, folder)
    yield Row("state.million.load", MILLION / load_s, "1/s")
    yield Row("state.million.memory", taken_bytes / MEGABYTE, "MB")
    yield Row("state.million.checkpoint", checkpoint_s, "s")
    restart_s = trio.run(_restart, folder, MILLION)
    yield Row("state.million.restore", restart_s, "s")


async def _fill_million(folder: Path) -> tuple[float, float, float]:
    async with a_keyspace(folder, MILLION_PARTITIONS) as keyspace:
        gc.collect()
        before = resident_bytes()
        began_at = perf_counter()
        await put_keys(keyspace, MILLION)
        load_s = perf_counter() - began_at
        gc.collect()
        taken_bytes = resident_bytes() - before
        return load_s, taken_bytes, await checkpoint_all(keyspace)
