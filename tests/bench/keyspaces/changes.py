"""Changes of a job at their owner: the numbers of a chunk together, beside row by row."""

from __future__ import annotations

import random
from time import perf_counter
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pyarrow as pa

from ringpop_py.base.values.packed import encode_value, make_packer
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.jobs import applier
from ringpop_py.state.jobs.messages import Decision
from ringpop_py.state.jobs.plan import JobPlan, PlannedFile
from ringpop_py.state.jobs.store import JobStore
from ringpop_py.state.placement.keys import Placing
from ringpop_py.state.rows.stagefile import FILE_BYTES_MAX, Chunk, encode_stage
from ringpop_py.state.rows.vectors import ROWS_MIN
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from tests.bench.report import Row, smaller_is_better

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK_ROWS: Final = (195, 1_000, 4_000)
FILE_ROWS: Final = 48_000
FILES: Final = 4
SEED: Final = 7
TARGET: Final = 4.0
TARGET_ROWS: Final = 1_000


def changes(_folder: Path) -> Iterator[Row]:
    """Two added fields a row, of new keys and of those that are there: microseconds a row.

    Files are decoded, evaluated, packed for the log, and applied to states in memory.
    """
    for rows in CHUNK_ROWS:
        files = [_file(rows, number) for number in range(FILES)]
        alone, left_alone = _applied(files, rows, rows_min=1 << 30)
        together, left = _applied(files, rows, rows_min=ROWS_MIN)
        assert left == left_alone, "both ways come to the same values"
        for name, value, peer in zip(("new", "there"), together, alone, strict=True):
            target = TARGET if rows >= TARGET_ROWS else None
            title = f"state.changes.{name}.{rows}"
            yield smaller_is_better(title, value, "us", "row by row", peer, target)


def _file(rows: int, number: int) -> bytes:
    rng = random.Random(SEED + number)
    chunks = []
    for partition in range(FILE_ROWS // rows):
        keys = [f"N{number}-{partition}-{place}" for place in range(rows)]
        values = [
            {"minutes": ["add", rng.randrange(-50, 300)], "miles": ["add", rng.randrange(3_000)]}
            for _ in range(rows)
        ]
        packed = [encode_value("msgpack", value) for value in values]
        chunks.append(Chunk(partition, pa.array(keys), pa.array(packed, pa.binary())))
    file = encode_stage("fields", chunks)
    assert len(file) <= FILE_BYTES_MAX
    return file


def _applied(
    files: list[bytes], rows: int, *, rows_min: int
) -> tuple[tuple[float, float], list[tuple[list[str], list[bytes]] | None]]:
    """Apply *files* twice; return microseconds a row of each time, and what is there then."""
    partitions = FILE_ROWS // rows
    states = [KeyedState(make_packer(), Aggregations()) for _ in range(partitions)]
    jobs = JobStore(MemoryStore(), KeyspaceKeys("bench", "k", 1), Placing(partitions))
    pack, found = make_packer(), []
    with patch.object(applier, "ROWS_MIN", rows_min):
        for turn in range(2):
            seconds = 0.0
            for number, file in enumerate(files):
                jobs.store.put_if_absent(f"{turn}-{number}", file)
                planned = PlannedFile(
                    f"{turn}-{number}", len(file), dict.fromkeys(range(partitions), (number, 1))
                )
                plan = JobPlan(Decision(("a",), f"{turn}"), (planned,), {}, 0)
                begun_at = perf_counter()
                wanted = dict.fromkeys(range(partitions), number)
                loaded = applier.loaded_from(jobs, plan.decision.source, planned, wanted)
                for partition, several in loaded.items():
                    body, outcomes = states[partition].stage([each.write for each in several])
                    assert not any(isinstance(each, Exception) for each in outcomes), outcomes
                    pack(list(body or ()))
                    states[partition].apply(body)
                seconds += perf_counter() - begun_at
            found.append(1e6 * seconds / (FILES * partitions * rows))
    return (found[0], found[1]), [state.all_packed(1 << 30) for state in states]
