"""How long partitions are served by nobody: at the start, when they move, when an owner dies."""

from __future__ import annotations

import signal
import time
from functools import partial
from itertools import count
from statistics import fmean, median
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import trio

from ringpop_py.base.values.declared import decode, encode
from ringpop_py.base.values.requests import RELEASE
from ringpop_py.member.swim.member import Status
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.catalog.journalstore import JournalStore
from ringpop_py.state.durable.driver import ReleaseRequest
from ringpop_py.state.journal.effects import GetClaim, ListPartition, PartitionListed
from ringpop_py.state.placement.duties import ReleaseSaid
from ringpop_py.state.stores.folder import FolderStore
from tests.bench.keyspaces.nodes import (
    KEYSPACE,
    POLL_S,
    WHOLE_S,
    a_node,
    processes,
    whole,
)
from tests.bench.keyspaces.served import Latencies, crash_s, hand_over_s, silence_s
from tests.bench.report import Row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from pathlib import Path

    from ringpop_py import Address, Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace

T = TypeVar("T")

MEGABYTE: Final = 1 << 20
RUNS: Final = 5
START_PARTITIONS: Final = 256
START_NODES: Final = 5
MOVE_PARTITIONS: Final = 64
WRITERS: Final = 4
BODY: Final = b"x" * 200
REST_S: Final = 4.0
"""After this, members that nothing happens to ping each other as seldom as they ever do."""
ROTATION_S: Final = 4.0
"""How long three of them then take for one round: faults are spread over it."""


def start(folder: Path) -> Iterator[Row]:
    """Until one node, and five processes at once, serve 256 partitions; what a process takes."""
    times = [trio.run(_start_alone, folder / f"alone-{run}") for run in range(RUNS)]
    yield Row(f"state.start.{START_PARTITIONS}_partitions.1_node", median(times), "s")
    names = [f"node-{index}" for index in range(START_NODES)]
    with processes(folder / "five", names, partitions=START_PARTITIONS) as started:
        listening = [one.next_said() for one in started]
        complete = [one.next_said() for one in started]
    began_at = max(said["listening_at"] for said in listening)
    ended_at = max(said["whole_at"] for said in complete)
    title = f"state.start.{START_PARTITIONS}_partitions.{START_NODES}_nodes"
    yield Row(title, ended_at - began_at, "s")
    for name, told in (("without", listening), ("with", complete)):
        taken = median(said["resident_bytes"] for said in told) / MEGABYTE
        yield Row(f"state.memory.process.{name}_keyspace", taken, "MB a node")


async def _start_alone(folder: Path) -> float:
    async with a_node(folder) as node:
        began_at = time.perf_counter()
        keyspace = await node.open_keyspace(KEYSPACE, partitions=START_PARTITIONS)
        await whole(keyspace, [node.name])
        return time.perf_counter() - began_at


def handoff(folder: Path) -> Iterator[Row]:
    """A third of the partitions moves to a new member while all are written."""
    pauses_s, took = trio.run(_handoff, folder)
    predicted_s = hand_over_s(_latencies(took))
    yield _as_predicted(
        "state.handoff.pause.p50", median(pauses_s) * 1000, "ms", predicted_s * 1000
    )
    yield Row("state.handoff.pause.max", max(pauses_s) * 1000, "ms")


class Took(NamedTuple):
    """Seconds that calls of the store, and of another member, took, as their callers saw it."""

    reads: list[float]
    lists: list[float]
    writes: list[float]
    calls: list[float]


def _latencies(took: Took) -> Latencies:
    """What the simulator is given: a store and members as slow as their callers saw them.

    Means: a hand-over makes several calls, one after the other, of which some take much longer than
    most do.
    """
    reads, lists, writes, calls = (max(4, round(fmean(each) * 1e6)) for each in took)
    return Latencies(reads, lists, writes, calls)


def _as_predicted(name: str, value: float, unit: str, predicted: float) -> Row:
    """A row beside what the simulator predicts; the target is a difference of a quarter."""
    ratio = predicted / value
    return Row(name, value, unit, "simulator", predicted, ratio, 0.75, 0.75 <= ratio <= 1.25)


async def _handoff(folder: Path) -> tuple[list[float], Took]:
    """Pauses, and how long calls of the store and of members took meanwhile."""
    store = FolderStore(folder)
    async with a_node(folder, "a", store=store) as a:
        one = await a.open_keyspace(KEYSPACE, partitions=MOVE_PARTITIONS)
        async with a_node(folder, "b", hosts=[a.address], store=store):
            await whole(one, ["a", "b"])
            await fill(one)
            async with a_node(folder, "c", hosts=[a.address], store=store) as c:
                there = await c.open_keyspace(KEYSPACE, partitions=MOVE_PARTITIONS)
                took = Took([], [], [], [])
                async with trio.open_nursery() as nursery:
                    for _ in range(WRITERS):
                        nursery.start_soon(write, one)
                    nursery.start_soon(_probe, c, a.address, took)
                    await whole(there, ["a", "b", "c"])
                    nursery.cancel_scope.cancel()
                driver = c.keyspaces.here(KEYSPACE).host.driver
                return [us / 1e6 for us in driver.steward.handoff_pauses_us], took


async def _probe(node: Ringpop, other: Address, took: Took) -> None:
    """Call the store and *other* as those that gain partitions do; note how long each call took."""
    host = node.keyspaces.durable_host(KEYSPACE)
    worker = host.worker
    # It is never released to one who knows an epoch before the first.
    body = encode(ReleaseRequest(KEYSPACE, host.generation, 0, 0, node.name))
    logs = JournalStore(host.keys, worker)
    for number in count():
        partition = number % MOVE_PARTITIONS
        listed = await _timed(took.lists, logs.perform(ListPartition(0, partition)))
        assert isinstance(listed, PartitionListed)
        await _timed(took.reads, logs.perform(GetClaim(0, partition, listed.epochs[-1])))
        put = partial(worker.store.put_if_absent, f"probe/{node.name}/{number}", BODY)
        await _timed(took.writes, worker.run(put))
        ask = Call(NODE_SERVICE, RELEASE, b"", body, ttl_s=WHOLE_S)
        answer = await _timed(took.calls, node.channel.call(other, ask))
        assert decode(ReleaseSaid, answer.arg3) in (ReleaseSaid.NOT_YET, ReleaseSaid.NOT_MINE)


async def _timed(took_s: list[float], call: Awaitable[T]) -> T:
    began_at = time.perf_counter()
    result = await call
    took_s.append(time.perf_counter() - began_at)
    return result


async def fill(keyspace: Keyspace) -> None:
    """Put 5,000 keys, 500 at a time."""
    for first in range(0, 5_000, 500):
        keys = (f"key-{index}" for index in range(first, first + 500))
        await keyspace.update_many([(key, "put", first) for key in keys])


async def write(keyspace: Keyspace) -> None:
    """Put one of these keys after the other, until cancelled."""
    index = 0
    while True:
        index += 1
        await keyspace.put(f"key-{index % 5_000}", index, timeout_s=60)


def crash(folder: Path) -> Iterator[Row]:
    """`kill -9` of one of three processes, until all that it had is served again."""
    yield from _gone(folder, signal.SIGKILL, "crash")


def silence(folder: Path) -> Iterator[Row]:
    """SIGSTOP of one of three processes, until all that it had is served again."""
    yield from _gone(folder, signal.SIGSTOP, "silence")


def _gone(folder: Path, how: signal.Signals, name: str) -> Iterator[Row]:
    took = Took([], [], [], [])
    seconds = []
    for run in range(RUNS):
        rest_s = REST_S + ROTATION_S * run / RUNS
        seconds.append(trio.run(_served_again, folder / f"{run}", how, rest_s, took))
    predict = crash_s if how is signal.SIGKILL else silence_s
    predicted_s = predict(_latencies(took))
    yield _as_predicted(f"state.{name}.served_again.p50", median(seconds), "s", predicted_s)
    yield Row(f"state.{name}.served_again.max", max(seconds), "s")


async def _served_again(folder: Path, how: signal.Signals, rest_s: float, took: Took) -> float:
    """This process is the third member, and the one that asks."""
    with processes(folder, ["b", "c"], partitions=MOVE_PARTITIONS) as (b, c):
        b.next_said()
        c.next_said()
        async with a_node(folder, "a", hosts=[b.address, c.address]) as node:
            keyspace = await node.open_keyspace(KEYSPACE, partitions=MOVE_PARTITIONS)
            await whole(keyspace, ["a", "b", "c"])
            await fill(keyspace)
            keys = [f"key-{i}" for i in range(1_000) if keyspace.owner_of(f"key-{i}") == "c"]
            await trio.sleep(rest_s)
            began_at = time.perf_counter()
            c.process.send_signal(how)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_probe_takeovers, node, b.address, took)
                found = await keyspace.get_many(keys, timeout_s=60)
                taken_s = time.perf_counter() - began_at
                nursery.cancel_scope.cancel()
            assert len(found) == len(keys)
            return taken_s


async def _probe_takeovers(node: Ringpop, other: Address, took: Took) -> None:
    """Call the store and *other* from the moment at which c is known to be gone."""
    while not (node.is_silent("c") or node.status_of("c") is Status.FAULTY):
        await trio.sleep(POLL_S)
    await _probe(node, other, took)
