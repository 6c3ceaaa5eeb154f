"""One process without a cluster: a keyspace where a dict would do."""

from __future__ import annotations

import json
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.state.keyspaces.local import open_local_keyspaces
from tests.bench.report import smaller_is_better

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from tests.bench.report import Row

RECORDS: Final = 100_000
KEYS: Final = 4_043
BATCH: Final = 1_000
ROUNDS: Final = 7
TARGET: Final = 0.6


def local(_folder: Path) -> Iterator[Row]:
    """Records as lines of JSON are parsed and added up by key, a thousand at a time."""
    batches = [_lines(first) for first in range(0, RECORDS, BATCH)]
    ours_s, dict_s = trio.run(_local, batches)
    title = f"state.local.pipeline.{RECORDS}_records"
    yield smaller_is_better(title, ours_s * 1000, "ms", "a dict", dict_s * 1000, TARGET)


def _lines(first: int) -> list[str]:
    records = (
        {"tail": f"N{i * 7919 % KEYS}", "delay": i % 60} for i in range(first, first + BATCH)
    )
    return [json.dumps(record) for record in records]


async def _local(batches: list[list[str]]) -> tuple[float, float]:
    """In turns."""
    ours: list[float] = []
    plain: list[float] = []
    async with open_local_keyspaces() as keyspaces:
        for turn in range(ROUNDS):
            keyspace = await keyspaces.open_keyspace(f"delays-{turn}", partitions=256)
            began_at = perf_counter()
            expected = _with_a_dict(batches)
            between = perf_counter()
            await _with_a_keyspace(keyspace, batches)
            ours.append(perf_counter() - between)
            plain.append(between - began_at)
            assert {key: total async for key, total in keyspace.scan()} == expected
    return median(ours), median(plain)


def _with_a_dict(batches: list[list[str]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for lines in batches:
        for line in lines:
            record = json.loads(line)
            totals[record["tail"]] = totals.get(record["tail"], 0) + record["delay"]
    return totals


async def _with_a_keyspace(keyspace: Keyspace, batches: list[list[str]]) -> None:
    for lines in batches:
        records = [json.loads(line) for line in lines]
        await keyspace.update_many([(one["tail"], "add", one["delay"]) for one in records])
