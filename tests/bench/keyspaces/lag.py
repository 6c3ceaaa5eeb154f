"""How late the loop is, on which the gossip runs, while a gigabyte goes into checkpoints."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from tests.bench.keyspaces.checkpoints import checkpoint_all, host_of
from tests.bench.keyspaces.nodes import a_keyspace
from tests.bench.report import Row, smaller_is_better

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringpop_py.state.keyspaces.keyspace import Keyspace

PARTITIONS: Final = 16
KEYS_PER_PARTITION: Final = 65_536
VALUE: Final = b"\xc5\x03\xf8" + b"x" * 1016
"""A text of a thousand bytes, packed."""
STEP_S: Final = 0.001
IDLE_S: Final = 5.0
SHARES: Final = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def lag(folder: Path) -> Iterator[Row]:
    """The lag of a task that sleeps a millisecond again and again, against an idle node."""
    idle, busy, seconds = trio.run(_lag, folder)
    yield Row("state.checkpoint.gigabyte", seconds, "s")
    for name, share in SHARES.items():
        at_rest, at_work = (_share(lags, share) * 1000 for lags in (idle, busy))
        title = f"state.checkpoint.gigabyte.loop_lag.{name}"
        yield smaller_is_better(title, at_work, "ms", "idle", at_rest)


def _share(lags: list[float], share: float) -> float:
    ordered = sorted(lags)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


async def _lag(folder: Path) -> tuple[list[float], list[float], float]:
    async with a_keyspace(folder, PARTITIONS) as keyspace:
        await _fill(keyspace)
        idle: list[float] = []
        busy: list[float] = []
        with trio.move_on_after(IDLE_S):
            await _sample(idle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_sample, busy)
            seconds = await checkpoint_all(keyspace)
            nursery.cancel_scope.cancel()
        return idle, busy, seconds


async def _fill(keyspace: Keyspace) -> None:
    """Not by way of the log: it is the checkpoint that is looked at."""
    for partition in host_of(keyspace).driver.online():
        values = {f"{partition.number}-{index}": VALUE for index in range(KEYS_PER_PARTITION)}
        partition.state.apply([values, [], {"bench": [1]}, {}])
        await trio.lowlevel.checkpoint()


async def _sample(lags: list[float]) -> None:
    while True:
        due_at = perf_counter() + STEP_S
        await trio.sleep(STEP_S)
        lags.append(max(0.0, perf_counter() - due_at))
