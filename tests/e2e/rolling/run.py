"""One run: daemons are restarted one after the other under callers of all kinds, and counted."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from ringpop_py import Config, open_ringpop
from tests.e2e.local_cluster import LocalCluster, free_addresses
from tests.e2e.rolling.app import FOLDER_VARIABLE, HANDLER_S_VARIABLE, KEYSPACE, Adder
from tests.e2e.rolling.callers import Callers, Tally

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.actors.actors import Actors
    from tests.e2e.local_cluster import LocalNode

SETTLE_S_MAX = 30.0


@dataclass
class Outcome:
    """What came of a run.

    Attributes:
        stop_s: how long each daemon took to end.
        problems: what does not agree with what callers were told.
    """

    tallies: dict[str, Tally]
    stop_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def calls(self) -> int:
        return sum(tally.calls for tally in self.tallies.values())

    @property
    def errors(self) -> int:
        return sum(tally.errors.total() for tally in self.tallies.values())


async def run(
    folder: Path, *, nodes: int, restarts: Iterable[int], handler_s: float, each: int, kill: bool
) -> Outcome:
    """Restart some of *nodes* daemons, one after the other, by SIGTERM or by *kill* -9.

    Args:
        restarts: which, by their places.
        each: callers of each kind.
    """
    os.environ[HANDLER_S_VARIABLE] = str(handler_s)
    os.environ[FOLDER_VARIABLE] = str(folder)
    addresses = free_addresses(2 * nodes)
    store = folder / "store"
    app = ("--app", "tests.e2e.rolling.app:create")
    flags = ("--preset", "local", "--store", str(store), *app)
    cluster = LocalCluster(folder, nodes, *flags, addresses=addresses[:nodes])
    for node, http in zip(cluster.nodes, addresses[nodes:], strict=True):
        node.command += ["--http", str(http)]
    urls = [f"http://{address}" for address in addresses[nodes:]]
    callers = Callers([node.address for node in cluster.nodes], urls, each)
    outcome = Outcome(callers.tallies)
    with cluster:
        await trio.to_thread.run_sync(cluster.wait_converged)
        hosts = tuple(node.address for node in cluster.nodes)
        async with open_ringpop(Config(hosts=hosts, store=str(store))) as ringpop:
            ringpop.drain()
            actors = (await ringpop.open_keyspace(KEYSPACE)).actor(Adder)
            await _settled(ringpop, nodes)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(callers.call_from_a_member, ringpop, actors)
                threads = callers.threads()
                with ExitStack() as stack:
                    for thread in threads:
                        thread.start()
                        stack.callback(thread.join)
                    stack.callback(callers.stop.set)
                    began = time.monotonic()
                    for place in restarts:
                        await _restart(cluster[place], ringpop, outcome, nodes, kill=kill)
                    await trio.sleep(2 * handler_s)
                    outcome.duration_s = time.monotonic() - began
                    callers.stop.set()
                    await trio.to_thread.run_sync(_join, threads)
            outcome.problems += await _disagreements(ringpop, actors, callers, _ran(folder))
    return outcome


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


async def _restart(
    node: LocalNode, ringpop: Ringpop, outcome: Outcome, nodes: int, *, kill: bool
) -> None:
    began = time.monotonic()
    if kill:
        await trio.to_thread.run_sync(node.kill)
    else:
        exit_code = await trio.to_thread.run_sync(node.stop)
        if exit_code:
            outcome.problems.append(f"{node.name} ended with {exit_code}")
    outcome.stop_s.append(time.monotonic() - began)
    node.start()
    with trio.fail_after(SETTLE_S_MAX):
        while not (await trio.to_thread.run_sync(node.ask, "/admin/node") or {}).get("ready"):
            await trio.sleep(0.05)
    await _settled(ringpop, nodes)


async def _settled(ringpop: Ringpop, nodes: int) -> None:
    """Return when all *nodes* are in the ring, and each partition is served by who should."""
    keyspace = await ringpop.open_keyspace(KEYSPACE)
    with trio.fail_after(SETTLE_S_MAX):
        while len(ringpop.ring) != nodes or len(keyspace.table.counts()) != nodes:
            await trio.sleep(0.05)
        while keyspace.table.moving:
            await trio.sleep(0.05)


def _ran(folder: Path) -> Counter[str]:
    """How often the handler of a daemon was begun for each id."""
    files = folder.glob("*.ran")
    return Counter(line for file in files for line in file.read_text().splitlines())


async def _disagreements(
    ringpop: Ringpop, actors: Actors[int, int], callers: Callers, ran: Counter[str]
) -> list[str]:
    """What did not take effect as often as callers were answered; *ran*: how often each call did.

    Of a way in with errors there is nothing to say: what it was not answered may have taken effect.
    """
    keyspace = await ringpop.open_keyspace(KEYSPACE)
    values = {key: value async for key, value in keyspace.scan()}
    asked = callers.tally("actors.ask").answered
    effects: dict[str, Mapping[str, object]] = {
        "Client.proxy": ran,
        "handle_or_proxy": ran,
        "KeyspaceClient.update": values,
        "HTTP": values,
        "keyspace.update": values,
        "actors.ask": {key: await actors.state_of(key) for key in asked},
        "JobClient": {"jobs": values.get("job-0")},
    }
    problems = []
    for way, found in effects.items():
        tally = callers.tally(way)
        wrong = [
            f"{what} {found.get(what)} times, not {count}"
            for what, count in sorted(tally.answered.items())
            if found.get(what) != count
        ]
        if wrong and not tally.errors:
            problems.append(f"{way}: {len(wrong)} took effect otherwise: {wrong[:3]}")
    twice = sum(count > 1 for count in ran.values())
    if twice:
        problems.append(f"{twice} calls ran more than once")
    return problems
