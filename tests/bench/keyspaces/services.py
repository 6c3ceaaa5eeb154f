"""What instants, fences, copies and watching cost a put; keys due together; a crowd."""

from __future__ import annotations

from functools import partial
from itertools import count, cycle
from statistics import median, quantiles
from time import perf_counter, process_time, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ringpop_py import expiring
from ringpop_py.state.stores.memory import MemoryStore
from tests.bench.keyspaces.nodes import a_keyspace, a_node, processes, whole
from tests.bench.keyspaces.puts import PARTITIONS, VALUE, rate
from tests.bench.report import Row, against_goal, larger_is_better

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from ringpop_py.state.keyspaces.keyspace import Keyspace

CALLERS: Final = 64
ROUNDS: Final = 9
TARGETS: Final = {"with_expiry": 0.9, "fenced": 0.95}
COPIES_TARGET: Final = 0.6
DUE_COUNT: Final = 100_000
DUE_IN_S: Final = 8.0
P99_GOAL_MS: Final = 50.0
KEPT_TARGET: Final = 0.98
WATCHERS: Final = 1_000
CHANGES_S: Final = 100
WATCHED_S: Final = 10
CROWD_GOAL: Final = 0.5
"""Of a processor, for all watchers of one key with so many changes a second."""


class Term(NamedTuple):
    """A fence."""

    name: str
    term: int


def services(folder: Path) -> Iterator[Row]:
    """Puts with an instant or a fence beside plain ones; a get while many keys expire."""
    plain, others = trio.run(_puts, folder)
    for name, target in TARGETS.items():
        value = others[name]
        yield larger_is_better(f"state.put.{name}", value, "1/s", "a plain put", plain, target)
    one, two = trio.run(_copies, folder / "three")
    yield larger_is_better(
        "state.put.two_copies", two, "1/s", "a put with one copy", one, COPIES_TARGET
    )
    kept, forgotten = trio.run(_kept, folder)
    name, peer = "state.put.nobody_watches", "a put whose changes are not counted"
    yield larger_is_better(name, kept, "1/s", peer, forgotten, KEPT_TARGET)
    name = f"state.watch.{WATCHERS}_of_a_key"
    yield against_goal(name, trio.run(_crowd, folder), "processors", CROWD_GOAL)
    worst_ms, took_s = trio.run(_due, folder)
    name = f"state.get.p99_while_{DUE_COUNT}_keys_expire"
    yield against_goal(name, worst_ms, "ms", P99_GOAL_MS)
    yield Row(f"state.expire.{DUE_COUNT}_keys", took_s, "s")


async def _puts(folder: Path) -> tuple[float, dict[str, float]]:
    """In turns, so that what else runs slows all; a store in memory, which hides no cost."""
    found: dict[str, list[float]] = {"plain": [], **{name: [] for name in TARGETS}}
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "with_expiry": {"expires_in": 3600},
        "fenced": {"fence": Term("bench", 1)},
    }
    async with a_keyspace(folder / "one", PARTITIONS, store=MemoryStore()) as keyspace:
        keys = count()

        def put(given: dict[str, Any]) -> Callable[[], Awaitable[None]]:
            return lambda: keyspace.put(f"key-{next(keys) % 10_000}", VALUE, **given)

        for _ in range(ROUNDS):
            for name, rates in found.items():
                rates.append(await rate([put(options[name])] * CALLERS))
    return median(found.pop("plain")), {name: median(rates) for name, rates in found.items()}


async def _copies(folder: Path) -> tuple[float, float]:
    """In turns, through another node, as clients do; that node is the backup, too."""
    found: dict[int, list[float]] = {1: [], 2: []}
    with processes(folder, ["b"], partitions=PARTITIONS) as (other,):
        other.next_said()
        async with a_node(folder, "a", hosts=[other.address]) as node:
            puts: dict[int, Callable[[], Awaitable[None]]] = {}
            for copies in found:
                keyspace = await node.open_keyspace(
                    f"copies {copies}", mode="memory", partitions=PARTITIONS, copies=copies
                )
                await whole(keyspace, ["a", "b"])
                keys = (f"key-{n}" for n in range(40_000))
                theirs = cycle([key for key in keys if keyspace.owner_of(key) == "b"])
                puts[copies] = partial(_put_next, keyspace, theirs)
            for _ in range(ROUNDS):
                for copies, rates in found.items():
                    rates.append(await rate([puts[copies]] * CALLERS))
    return median(found[1]), median(found[2])


async def _put_next(keyspace: Keyspace, keys: Iterator[str]) -> None:
    await keyspace.put(next(keys), VALUE)


async def _due(folder: Path) -> tuple[float, float]:
    """All keys are due in one second; return the p99 of gets from then on, and how long it took."""
    async with a_keyspace(folder / "two", PARTITIONS, store=MemoryStore()) as keyspace:
        await keyspace.put("stays", VALUE)
        at = time() + DUE_IN_S
        for first in range(0, DUE_COUNT, 10_000):
            some = [
                (f"k{n}", *expiring("put", VALUE, expires_at=at + n / DUE_COUNT))
                for n in range(first, first + 10_000)
            ]
            await keyspace.update_many(some, timeout_s=60)
        assert time() < at, "the keys took too long to be put"
        await trio.sleep(at - time())
        began, took = perf_counter(), list[float]()
        while await _any_left(keyspace, took):
            await trio.sleep(0.001)
        return quantiles(took, n=100)[98] * 1e3, perf_counter() - began


async def _any_left(keyspace: Keyspace, took: list[float]) -> bool:
    started = perf_counter()
    await keyspace.get("stays")
    took.append(perf_counter() - started)
    if len(took) % 50:
        return True
    return bool((await keyspace.page_packed("k", limit=1)).rows)


async def _kept(folder: Path) -> tuple[float, float]:
    """Puts of a keyspace that nobody watches, beside one that nobody could, in turns."""
    rates = list[float](), list[float]()
    async with (
        a_keyspace(folder / "kept", PARTITIONS, store=MemoryStore()) as kept,
        a_keyspace(folder / "forgotten", PARTITIONS, store=MemoryStore()) as forgotten,
    ):
        for number in range(PARTITIONS):
            watched, other = kept._host.served(number), forgotten._host.served(number)
            assert watched is not None
            assert other is not None
            assert watched.state.changes is not None
            watched.state.changes.follows = False  # as soon as nobody has looked for long
            other.state.changes = None
        keys = count()
        for _ in range(2 * ROUNDS):
            for keyspace, found in zip((kept, forgotten), rates, strict=True):

                async def put(keyspace: Keyspace = keyspace) -> None:
                    await keyspace.put(f"key-{next(keys) % 10_000}", VALUE)

                found.append(await rate([put] * CALLERS))
    return median(rates[0]), median(rates[1])


async def _crowd(folder: Path) -> float:
    """Return the processor time a second of watchers, which see all changes, above that of none."""
    async with a_keyspace(folder / "crowd", PARTITIONS, store=MemoryStore()) as keyspace:
        seen = [0] * WATCHERS

        async def watch(place: int) -> None:
            async for change in keyspace.watch(key="k"):
                seen[place] += 1
                assert change.value == seen[place]

        async def write(first: int) -> float:
            began, used = trio.current_time(), process_time()
            for number in range(WATCHED_S * CHANGES_S):
                await keyspace.put("k", first + number)
                await trio.sleep_until(began + (number + 1) / CHANGES_S)
            return (process_time() - used) / WATCHED_S

        alone = await write(-WATCHED_S * CHANGES_S)
        async with trio.open_nursery() as nursery:
            for place in range(WATCHERS):
                nursery.start_soon(watch, place)
            await trio.sleep(5)  # all have asked
            together = await write(1)
            with trio.fail_after(10):
                while set(seen) != {WATCHED_S * CHANGES_S}:
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    return together - alone
