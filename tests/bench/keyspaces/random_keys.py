"""Many callers on random keys, as users write: at the owner, and through another node.

Beside Redis and its own benchmark, which is written in C, with as many clients on the same folder.
"""

from __future__ import annotations

import csv
import random
import shutil
import subprocess
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from typing import TYPE_CHECKING, Final

import trio

from tests.bench.keyspaces.nodes import (
    KEYSPACE,
    a_keyspace,
    a_node,
    processes,
    stores_in,
    whole,
)
from tests.bench.keyspaces.peers import redis_server
from tests.bench.keyspaces.puts import VALUE, rate
from tests.bench.report import larger_is_better, without_peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from ringpop_py import Address
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from tests.bench.report import Row

CALLERS: Final = 64
KEYS: Final = 10_000
OWNER_TARGET: Final = 0.5
ELSEWHERE_TARGET: Final = 0.3
REDIS: Final = "redis-benchmark -c {} (appendfsync always)"
PROGRAMS: Final = ("redis-server", "redis-benchmark")
WARM_UP: Final = 2_000
"""The requests of the first run of Redis, which says how many a round takes."""
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    partitions: int = 256
    rounds: int = 7
    round_s: float = 1.0


def random_keys(folder: Path) -> Iterator[Row]:
    """Puts and gets of 64 callers, on a store of each kind."""
    for kind in stores_in(folder):
        yield from trio.run(measured, folder / kind, kind, Extent())


async def measured(folder: Path, kind: str, extent: Extent) -> list[Row]:
    """The rows of one *kind* of store; all that is compared takes turns."""
    owner, elsewhere = (stores_in(folder / name)[kind] for name in ("owner", "elsewhere"))
    async with (
        a_keyspace(owner, extent.partitions) as here,
        keyspace_elsewhere(elsewhere, extent.partitions) as (there, theirs),
    ):
        ours = random_order([f"key-{index}" for index in range(KEYS)])
        await here.update_many([(key, "put", VALUE) for key in ours])
        calls = {
            "puts.owner": putting(here, ours),
            "puts.other_node": putting(there, theirs),
            "gets.owner": getting(here, ours),
            "stale_gets.owner": getting(here, ours, stale=True),
        }
        rates: dict[str, list[float]] = {name: [] for name in calls}
        redis: list[float] = []
        with ExitStack() as stack:
            bench = redis_rate(stack, folder / "redis", extent)
            for _ in range(extent.rounds):
                if bench is not None:
                    redis.append(await trio.to_thread.run_sync(bench))
                for name, call in calls.items():
                    rates[name].append(await rate([call] * CALLERS, extent.round_s))
    found = {name: median(some) for name, some in rates.items()}
    return list(_rows(kind, found, median(redis) if redis else None))


def _rows(kind: str, found: dict[str, float], redis: float | None) -> Iterator[Row]:
    peer = REDIS.format(CALLERS)
    for name, target in (("puts.owner", OWNER_TARGET), ("puts.other_node", ELSEWHERE_TARGET)):
        title = f"state.random.{kind}.{name}.{CALLERS}_callers"
        if redis is None:
            yield without_peer(title, found[name], "1/s", peer, target)
        else:
            yield larger_is_better(title, found[name], "1/s", peer, redis, target)
    title = f"state.random.{kind}.gets.owner.{CALLERS}_callers"
    stale = found["stale_gets.owner"]
    yield larger_is_better(title, found["gets.owner"], "1/s", "stale gets", stale)


def random_order(keys: Sequence[str]) -> list[str]:
    """*keys* as often as there are of them, each time one by chance."""
    return random.Random(SEED).choices(keys, k=len(keys))


def putting(keyspace: Keyspace, keys: Sequence[str]) -> Callable[[], Awaitable[object]]:
    """A call that puts one of *keys*, in turn."""
    turns = cycle(keys)

    async def put() -> None:
        await keyspace.put(next(turns), VALUE)

    return put


def getting(
    keyspace: Keyspace, keys: Sequence[str], *, stale: bool = False
) -> Callable[[], Awaitable[object]]:
    """A call that gets one of *keys*, in turn."""
    turns = cycle(keys)

    async def get() -> None:
        await keyspace.get(next(turns), stale=stale)

    return get


@asynccontextmanager
async def keyspace_elsewhere(
    place: Path | str, partitions: int
) -> AsyncIterator[tuple[Keyspace, list[str]]]:
    """A keyspace of two members, and keys of the other one, which is another process."""
    with processes(place, ["b"], partitions=partitions) as (other,):
        other.next_said()
        async with a_node(place, "a", hosts=[other.address]) as node:
            keyspace = await node.open_keyspace(KEYSPACE, partitions=partitions)
            await whole(keyspace, ["a", "b"])
            keys = (f"key-{index}" for index in range(3 * KEYS))
            theirs = [key for key in keys if keyspace.owner_of(key) == "b"]
            yield keyspace, random_order(theirs[:KEYS])


def redis_rate(stack: ExitStack, folder: Path, extent: Extent) -> Callable[[], float] | None:
    """What measures one round of Redis, which runs until *stack* ends; None if it is missing."""
    if not all(map(shutil.which, PROGRAMS)):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    address = stack.enter_context(redis_server(folder))
    count = max(CALLERS, round(bench_redis(address, WARM_UP) * extent.round_s))
    return lambda: bench_redis(address, count)


def bench_redis(address: Address, count: int) -> float:
    """How many of *count* random keys its own benchmark puts a second."""
    command = ["redis-benchmark", "-h", address.host, "-p", str(address.port), "--csv"]
    command += ["-c", str(CALLERS), "-t", "set", "-r", str(KEYS), "-d", str(len(VALUE))]
    command += ["-n", str(count)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # By its own clock, so the start of that process does not count.
    return next(float(row[1]) for row in csv.reader(said.splitlines()) if row[:1] == ["SET"])
