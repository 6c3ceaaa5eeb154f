"""Volley's story: two workers become three and two again, under load, and nothing restarts.

256 key groups, assigned as contiguous ranges. When a worker joins or leaves, ranges move. First
with a keyspace: the workers receive events about the groups that they gain and lose, and records go
on flowing. Only a few groups pause at a time, and each record is counted once, whichever worker
counts it. Then with a dataflow, in processes: source, router, exchange, aligner, keyed stage, sink.

    python examples/volley.py
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from workers import MEMORY, Story, Task, all_at, open_workers, until

from ringpop_py import CallError, Client, Gained, Outcome
from ringpop_py.dataflow import FileSink, start_dataflow
from ringpop_py.streams import Files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py import Keyspace, Ringpop
    from ringpop_py.dataflow import Context, Row

KEY_GROUPS = 256
KEYS = [f"sensor-{number}" for number in range(1_000)]
BATCH = 50


def ranges(groups: Iterable[int]) -> str:
    """Format key groups as half-open ranges, as Volley writes them: ``[0,128)``."""
    found: list[list[int]] = []
    for group in sorted(groups):
        if found and found[-1][1] == group:
            found[-1][1] = group + 1
        else:
            found.append([group, group + 1])
    return " ".join(f"[{start},{end})" for start, end in found) or "nothing"


class Watcher:
    """The events about key groups at one worker."""

    def __init__(self, node: Ringpop) -> None:
        self.gained: set[int] = set()
        self.lost: set[int] = set()
        self._node = node

    async def run(self) -> None:
        """Collect events, until cancelled."""
        keyspace = await self._node.open_keyspace("readings")
        async for event in keyspace.rescale_events():
            (self.gained if isinstance(event, Gained) else self.lost).add(event.partition)

    def tell(self, story: Story) -> None:
        """Print the events since the last call."""
        if self.gained or self.lost:
            story.tell(
                f"    {self._node.name} gained {ranges(self.gained)}, lost {ranges(self.lost)}"
            )
        self.gained, self.lost = set(), set()


class Load(Task):
    """Sends records for all key groups, as fast as they are accepted."""

    def __init__(self, keyspace: Keyspace) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()
        self._keyspace = keyspace
        self._next = 0

    async def step(self) -> None:
        """Send a batch, and count the acknowledged records."""
        start = self._next = (self._next + 7 * BATCH) % len(KEYS)
        keys = KEYS[start : start + BATCH]
        outcomes = await self._keyspace.update_many([(key, "add", 1) for key in keys])
        for key, outcome in zip(keys, outcomes, strict=True):
            if not isinstance(outcome, Outcome):
                # No record may fail while groups move: that is what the story is to show.
                raise outcome
            self.counted[key] += 1


async def with_a_keyspace(story: Story) -> None:
    """Tell how the key groups of a keyspace move."""
    async with open_workers() as workers, trio.open_nursery() as nursery:
        watchers: dict[str, Watcher] = {}

        async def join(name: str) -> Ringpop:
            node = await workers.start(name)
            watchers[name] = Watcher(node)
            return node

        async def rescaled(*names: str) -> None:
            await until(all_at(readings, *names), f"{len(names)} workers")
            await trio.sleep(0.1)  # events arrive a moment after the change
            for name in sorted(watchers):
                watchers[name].tell(story)
            for name in names:
                story.tell(f"    {name} has {ranges(readings.table.owned_by(name))}")

        volley_0 = await join("volley-0")
        await join("volley-1")
        readings = await volley_0.open_keyspace("readings", partitions=KEY_GROUPS, strategy="range")
        nursery.start_soon(watchers["volley-0"].run)
        nursery.start_soon(watchers["volley-1"].run)
        story.tell("two workers begin")
        await rescaled("volley-0", "volley-1")

        load = Load(readings)
        nursery.start_soon(load.run)
        await trio.sleep(0.5)
        before = load.counted.total()
        story.tell(f"{before} records are counted; a third worker comes")
        await join("volley-2")
        nursery.start_soon(watchers["volley-2"].run)
        await rescaled("volley-0", "volley-1", "volley-2")

        middle = load.counted.total()
        story.tell(f"{middle - before} records were counted meanwhile; volley-2 goes again")
        await workers.stop("volley-2")
        await rescaled("volley-0", "volley-1")

        await trio.sleep(0.3)
        await load.stop()
        story.tell(f"{load.counted.total() - middle} records were counted meanwhile")
        if await readings.get_many(KEYS) != dict(load.counted):
            raise SystemExit("some were lost or counted twice")
        story.tell(f"{load.counted.total()} in all: none lost, none twice")
        nursery.cancel_scope.cancel()


# -- a dataflow ----------------------------------------------------------------------------


def count(total: int | None, rows: Sequence[Row], context: Context) -> int:
    """Count the readings of a sensor, and send each new total on."""
    total = (total or 0) + len(rows)
    context.emit(context.key, total)
    return total


async def create(ringpop: Ringpop) -> None:
    """Take part in the dataflow; each worker's `ringpopd` calls this."""
    folder = Path(os.environ["VOLLEY_FOLDER"])
    start_dataflow(
        ringpop,
        Files(f"{folder}/readings/*.jsonl", key="sensor"),
        count,
        name="volley",
        sink=FileSink(folder / "totals"),
        every_s=0.3,
    )


class Processes:
    """Workers as processes, with one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = free_ports(3)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        hosts = "".join(f"127.0.0.1:{port}\n" for port in self._ports)
        (folder / "hosts.txt").write_text(hosts, "utf-8")

    def start(self, number: int) -> None:
        """Start a worker."""
        flags = ["--hosts", str(self._folder / "hosts.txt"), "--store", str(self._folder / "store")]
        flags += ["--create-store", "--preset", "local", "--app", "volley:create"]
        flags += ["--listen", f"127.0.0.1:{self._ports[number]}", "--name", f"volley-{number}"]
        environment = {
            **os.environ,
            "VOLLEY_FOLDER": str(self._folder),
            "PYTHONPATH": str(Path(__file__).parent),
        }
        with (self._folder / f"volley-{number}.log").open("wb") as log:
            self._running[number] = subprocess.Popen(  # noqa: S603 - this package
                [sys.executable, "-m", "ringpop_py.edge.cli.ringpopd", *flags],
                env=environment,
                stdout=log,
                stderr=log,
            )

    def stop(self, number: int) -> None:
        """Have a worker leave, and wait until it has."""
        process = self._running.pop(number)
        process.terminate()
        process.wait(timeout=30)

    def end(self) -> None:
        """End all."""
        for process in self._running.values():
            process.kill()
            process.wait()

    def parts(self) -> dict[str, str]:
        """Return the key groups of each worker, as they say."""
        found = {}
        for number in self._running:
            try:
                with Client(f"127.0.0.1:{self._ports[number]}") as client:
                    flows = client.admin("/admin/work")["dataflows"]
            except CallError:
                continue
            for flow in flows:
                if flow["key_groups"]:
                    start, end = flow["key_groups"]
                    found[f"volley-{number}"] = f"[{start},{end})"
        return found


class Readings(Task):
    """Writes readings to the ends of four files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._folder = folder / "readings"
        self._folder.mkdir()

    async def step(self) -> None:
        """Write some readings."""
        for number in range(4):
            keys = [KEYS[(len(self.counts) + 37 * number + place) % 1_000] for place in range(100)]
            self.counts.update(keys)
            with (self._folder / f"{number}.jsonl").open("a") as file:
                file.writelines(f'{{"sensor": "{key}"}}\n' for key in keys)
        await trio.sleep(0.02)


def totals_in(folder: Path) -> dict[str, int]:
    """Return the last total of each sensor, and check that no total came twice."""
    totals: dict[str, int] = {}
    for path in sorted((folder / "totals").glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            if row["value"] <= totals.get(row["key"], 0):
                raise SystemExit(f"{row} has come twice")
            totals[row["key"]] = row["value"]
    return totals


async def with_a_dataflow(story: Story) -> None:
    """Tell how the workers of a dataflow change, as processes."""
    with tempfile.TemporaryDirectory(prefix="ringpop-example-", dir=MEMORY) as name:
        folder = Path(name)
        processes = Processes(folder)
        readings = Readings(folder)

        async def rescaled(parts: dict[str, str]) -> None:
            found: dict[str, str] = {}
            with trio.fail_after(60):
                while found != parts:
                    await trio.sleep(0.05)
                    found = await trio.to_thread.run_sync(processes.parts)
            story.tell("    " + ", ".join(f"{name} has {part}" for name, part in parts.items()))

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(readings.run)
                story.tell("a dataflow begins, with two processes as workers")
                processes.start(0)
                processes.start(1)
                await rescaled({"volley-0": "[0,128)", "volley-1": "[128,256)"})
                await until(lambda: bool(totals_in(folder)), "the first totals")
                story.tell("totals arrive; a third worker comes")
                processes.start(2)
                three = {"volley-0": "[0,86)", "volley-1": "[86,171)", "volley-2": "[171,256)"}
                await rescaled(three)
                story.tell("volley-2 goes again")
                await trio.to_thread.run_sync(processes.stop, 2)
                await rescaled({"volley-0": "[0,128)", "volley-1": "[128,256)"})
                await trio.sleep(0.5)
                await readings.stop()
                await until(lambda: totals_in(folder) == readings.counts, "all totals")
        finally:
            processes.end()
        at = sorted(path.stat().st_mtime for path in (folder / "totals").glob("*.jsonl"))
        pause = max(later - earlier for earlier, later in pairwise(at))
        story.tell(f"the longest pause between two files of totals was {pause:.1f} s")
        story.tell(
            f"{readings.counts.total()} readings in all: none lost, none twice, nobody restarted"
        )


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


async def main() -> None:
    """Tell the story, and exit with an error if it does not end as it should."""
    story = Story()
    await with_a_keyspace(story)
    await with_a_dataflow(story)


if __name__ == "__main__":
    trio.run(main)
