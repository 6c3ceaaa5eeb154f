"""The longest time that a key waits while two workers become three and two again, under load.

Ours is a keyspace: a third node comes and leaves while each key is written again and again. The
peer's workers are stopped and started with another count, as its manual says: there is no other way
to change it. The peer is one process with threads as workers, which is quicker than processes are.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from tests.bench.keyspaces.nodes import KEYSPACE, a_node, hush, processes, whole
from tests.e2e.local_cluster import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.state.keyspaces.keyspace import Keyspace

KEYS: Final = tuple(f"sensor-{number}" for number in range(16))
PARTITIONS: Final = 64
BEFORE_S: Final = 1.0
"""So long all is quiet before a change, and after it."""
RECORD_S: Final = 0.001
"""The peer's source has a record of the next key so often."""
EPOCH_S: Final = 0.3
ENDS_S: Final = 30.0


class Gaps:
    """The longest time between two counts of one key."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last: dict[str, float] = {}

    def note(self, key: str, at: float) -> None:
        """Note that *key* was counted once more, at a time in seconds."""
        self.longest_s = max(self.longest_s, at - self._last.get(key, at))
        self._last[key] = at


def ours(folder: Path) -> float:
    """Return the longest time in seconds, with a keyspace."""
    hush()
    return trio.run(_ours, folder)


async def _ours(folder: Path) -> float:
    gaps = Gaps()
    async with a_node(folder, "a") as node:
        seeds = [node.address]
        with processes(folder, ["b"], partitions=PARTITIONS, hosts=seeds):
            keyspace = await node.open_keyspace(KEYSPACE, partitions=PARTITIONS)
            await whole(keyspace, ["a", "b"])
            async with trio.open_nursery() as nursery:
                for key in KEYS:
                    nursery.start_soon(_count, keyspace, key, gaps)
                await trio.sleep(BEFORE_S)
                with processes(folder, ["c"], partitions=PARTITIONS, hosts=seeds) as (third,):
                    await whole(keyspace, ["a", "b", "c"])
                    await trio.sleep(BEFORE_S)
                    third.process.terminate()
                    await whole(keyspace, ["a", "b"])
                await trio.sleep(BEFORE_S)
                nursery.cancel_scope.cancel()
    return gaps.longest_s


async def _count(keyspace: Keyspace, key: str, gaps: Gaps) -> None:
    while True:
        await keyspace.update(key, "add", 1)
        gaps.note(key, trio.current_time())


def bytewax(folder: Path) -> float:
    """Return the longest time in seconds, with bytewax; a count that it repeats is not one."""
    saving = import_module("bytewax.recovery")
    recovery, counted = folder / "recovery", folder / "counted"
    recovery.mkdir()
    saving.init_db_dir(recovery, 1)
    began = time.monotonic()
    for workers in (2, 3, 2):
        command = [sys.executable, "-m", __name__, str(folder), str(workers), str(began)]
        before = len(_lines(counted))
        counts_more = partial(_has_more_lines, counted, before)
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            wait_until(counts_more, ENDS_S, "counts")
            time.sleep(BEFORE_S)
            process.send_signal(signal.SIGINT)
            process.wait(ENDS_S)
    gaps, counts = Gaps(), Counter[str]()
    for line in _lines(counted):
        key, count, at = line.split()
        if int(count) > counts[key]:
            counts[key] = int(count)
            gaps.note(key, float(at))
    return gaps.longest_s


def _has_more_lines(path: Path, before: int) -> bool:
    return len(_lines(path)) > before


def _lines(path: Path) -> list[str]:
    whole_lines, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
    return whole_lines.splitlines()


def _bytewax_workers(folder: Path, workers: int, began: float) -> None:
    """Count with so many of bytewax's workers, until interrupted."""
    op, dataflow, saving, testing, bytewax_outputs, running = (
        import_module(f"bytewax.{name}")
        for name in ("operators", "dataflow", "recovery", "testing", "outputs", "run")
    )

    class Written(bytewax_outputs.StatelessSinkPartition):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            self._file = os.open(folder / "counted", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def write_batch(self, items: list[Any]) -> None:
            at = time.monotonic()
            text = "".join(f"{key} {count} {at}\n" for key, count in items)
            os.write(self._file, text.encode())

    class Sink(bytewax_outputs.DynamicSink):  # type: ignore[name-defined, misc]
        def build(self, _step: str, _worker: int, _workers: int) -> Written:
            return Written()

    def records() -> Iterator[tuple[str, int]]:
        # One that is due already comes at once: so a source that went on meanwhile would do.
        number = 0
        while True:
            due = began + number * RECORD_S
            if (early := due - time.monotonic()) > 0:
                time.sleep(early)
            yield KEYS[number % len(KEYS)], 1
            number += 1

    flow = dataflow.Dataflow("gaps")
    source = op.input("in", flow, testing.TestingSource(records()))
    counts = op.stateful_map("count", source, lambda state, one: ((state or 0) + one,) * 2)
    op.output("out", counts, Sink())
    running.cli_main(
        flow,
        workers_per_process=workers,
        epoch_interval=timedelta(seconds=EPOCH_S),
        recovery_config=saving.RecoveryConfig(str(folder / "recovery")),
    )


if __name__ == "__main__":
    _bytewax_workers(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
