"""Jobs for tests: rows as stage files, and what a task does with them at a node."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import trio

from ringpop_py.base.errors import PartitionUnavailable, StoreUnavailable
from ringpop_py.base.values.declared import encode
from ringpop_py.base.values.packed import encode_value
from ringpop_py.state.jobs.messages import (
    AttemptManifest,
    DecideRequest,
    Decision,
    FinishRequest,
    JobId,
    StagedFile,
    StageHead,
)
from ringpop_py.state.placement.keys import partition_of
from ringpop_py.state.rows.stagefile import Chunk, encode_stage, index_of
from ringpop_py.state.table.due import stamped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.base.values.operations import Value
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.jobs.jobs import Jobs

NAME = "k"
JOB = "job 1"
PARTITIONS = 8
DRIVER = "the driver"


def a_file(
    rows: Mapping[str, Value],
    *,
    operation: str = "put",
    chunk_rows: int = 3,
    at_ms: int | None = None,
) -> bytes:
    """*rows* as a file, in chunks of a few rows; their keys expire *at_ms*."""
    parts: dict[int, list[tuple[str, bytes]]] = {}
    for key, value in rows.items():
        packed = stamped(encode_value("msgpack", value), at_ms)
        parts.setdefault(partition_of(key, PARTITIONS), []).append((key, packed))
    chunks = []
    for number, several in parts.items():
        for first in range(0, len(several), chunk_rows):
            keys, values = zip(*several[first : first + chunk_rows], strict=True)
            chunks.append(Chunk(number, pa.array(keys), pa.array(values, pa.binary())))
    return encode_stage(operation, chunks)


def jobs_of(node: Ringpop) -> Jobs:
    return node.keyspaces.durable_host(NAME).jobs


def id_at(jobs: Jobs, job: str = JOB) -> JobId:
    return JobId(NAME, jobs.store.keys.generation, job)


def head_at(jobs: Jobs, attempt: str, number: int, staged_ms: int, job: str = JOB) -> StageHead:
    return StageHead(*id_at(jobs, job).head, attempt, number, staged_ms)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def staged(jobs: Jobs, attempt: str, *files: bytes, job: str = JOB) -> AttemptManifest:
    """Have an attempt stage *files*, and finish."""
    staged_ms = now_ms()
    found = []
    for number, file in enumerate(files):
        head = head_at(jobs, attempt, number, staged_ms, job)
        await jobs.stage(head, file)
        index = index_of(file)
        counts = tuple(index.chunk_counts().items())
        found.append(StagedFile(number, staged_ms, index.rows_count, len(file), counts))
    manifest = AttemptManifest(tuple(found), staged_ms)
    request = FinishRequest(*id_at(jobs, job).head, attempt, encode(manifest))
    await jobs.worker.run(jobs.store.finish, request)
    return manifest


async def settled(jobs: Jobs, job: str = JOB) -> None:
    """Have it applied, whatever gets in the way, unless the node ends."""
    with trio.fail_after(300):
        while True:
            with suppress(PartitionUnavailable, StoreUnavailable):
                if (await jobs.settle(job)).applied:
                    return
            await trio.sleep(0.1)


async def decided(
    jobs: Jobs, *attempts: str, job: str = JOB, by: str = DRIVER, aborted: bool = False
) -> Decision:
    wanted = Decision(None if aborted else attempts, by)
    return await jobs.decide(DecideRequest(*id_at(jobs, job).head, wanted))


async def committed(jobs: Jobs, *files: bytes) -> None:
    """Have one attempt stage *files*, and commit it."""
    await staged(jobs, "t0", *files)
    await decided(jobs, "t0")
