"""One run: a cluster on a folder, clients, faults by a plan, and what has to hold afterwards."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from ringpop_py.base.errors import CallError
from ringpop_sim.linear import check
from tests.e2e.local_cluster import free_addresses, wait_until
from tests.e2e.state.clients import KEYS, KEYSPACE, Caller, Clients, History, NodeCalls
from tests.e2e.state.network import Cuts, why_no_cuts
from tests.e2e.state.node import PARTITIONS, NodeSettings
from tests.e2e.state.nursery import NodeProcess, Nursery

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ringpop_py.base.address import Address
    from ringpop_sim.linear import Invocation
    from tests.e2e.state.plans import Fault

SETTLE_S: Final = 20.0
NODES: Final = 6
CLIENTS: Final = 24
"""Many, for those that wait for one partition do not look at others."""


@dataclass(slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        problems: what did not hold; a line or some each.
        unavailable_s: by kind of fault: for each fault, how long it took until each partition had
            served an operation that was called after it.
        pauses_s: of handoffs, as nodes measured them.
    """

    problems: list[str] = field(default_factory=list)
    done_count: int = 0
    open_count: int = 0
    failed_count: int = 0
    unavailable_s: list[tuple[str, float]] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)


class Cluster:
    """Nodes on one store, with what can be done to them; a context manager."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = NODES,
        strategy: str = "balanced",
        small_disk: bool = False,
    ) -> None:
        self._folder = folder
        self._small_disk = small_disk
        self._stack = ExitStack()
        self.store = folder / "store"
        self.addresses = free_addresses(nodes)
        self._hosts = tuple(self.addresses)
        self._strategy = strategy
        self.processes: list[NodeProcess | None] = [None] * nodes
        self.problems: list[str] = []
        self._dropped: dict[int, list[tuple[int, int]]] = {}
        # Groups, too, are of this run alone.
        self._group = 100_000 + os.getpid() % 100_000 * 16

    def __enter__(self) -> Self:
        self.store.mkdir()
        if self._small_disk:
            self._stack.enter_context(_small_disk(self.store))
        self._nursery = self._stack.enter_context(Nursery(self._folder / "nursery.log"))
        self._cuts = None if why_no_cuts() else self._stack.enter_context(Cuts())
        self._stack.callback(self._end)
        self._stack.callback(self.store.chmod, 0o755)
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        for process in self.processes:
            if process is not None:
                process.end()

    # Nodes.

    def start(self, node: int, *, clock_ahead_s: float = 0.0) -> None:
        settings = NodeSettings(
            name=f"n{node}",
            listen=self.addresses[node],
            hosts=self._hosts,
            store=str(self.store),
            keyspace=KEYSPACE,
            strategy=self._strategy,
            clock_ahead_s=clock_ahead_s,
        )
        log = self._folder / f"n{node}.log"
        self.processes[node] = self._nursery.start(settings, log, self._group + node)

    def send(self, node: int, number: signal.Signals) -> None:
        self._process(node).send(number)

    def end(self, node: int, number: signal.Signals) -> None:
        """With SIGKILL a crash, with SIGTERM in good order."""
        process = self._process(node)
        if process.has_ended:
            self.problems.append(f"n{node} had ended by itself")
        code = process.end(number)
        if code not in {0, -signal.SIGKILL}:
            self.problems.append(f"n{node} ended with {code}")
        if number is signal.SIGTERM and code != 0:
            self.problems.append(f"n{node} did not end in good order, but with {code}")
        self.processes[node] = None

    def move(self, node: int) -> None:
        """Let it be started at another address."""
        (self.addresses[node],) = free_addresses(1)

    def running(self) -> list[Address]:
        return [a for a, p in zip(self.addresses, self.processes, strict=True) if p is not None]

    def _process(self, node: int) -> NodeProcess:
        process = self.processes[node]
        assert process is not None, f"n{node} does not run"
        return process

    # Cuts.

    def isolate(self, node: int) -> None:
        """Nothing goes between it and the others; clients still reach it."""
        others = [n for n in range(len(self.addresses)) if n != node]
        self._dropped[node] = [
            *((self._group + node, self.addresses[n].port) for n in others),
            *((self._group + n, self.addresses[node].port) for n in others),
        ]
        self._cut()

    def deafen(self, node: int, other: int) -> None:
        """*node* does not reach *other*, which still reaches it."""
        self._dropped[node] = [(self._group + node, self.addresses[other].port)]
        self._cut()

    def heal(self, node: int) -> None:
        self._dropped.pop(node, None)
        self._cut()

    def _cut(self) -> None:
        assert self._cuts is not None
        self._cuts.set(pair for pairs in self._dropped.values() for pair in pairs)

    # The store.

    def fill(self) -> None:
        """Take all the room there is."""
        with (self.store / "filler").open("wb", buffering=0) as filler:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        (self.store / "filler").unlink(missing_ok=True)

    # What is seen.

    def wait_settled(self, calls: NodeCalls) -> None:
        """Return when all running nodes agree, and serve all partitions."""
        names = {f"n{n}" for n, process in enumerate(self.processes) if process is not None}

        def settled() -> bool:
            told = [calls.tell(address) for address in self.running()]
            known = [one for one in told if one is not None]
            return (
                len(known) == len(told)
                and all(set(one["owners"]) == names and not one["moving"] for one in known)
                and sum(len(one["online"]) for one in known) == PARTITIONS
            )

        try:
            wait_until(settled, SETTLE_S, "settled")
        except AssertionError:
            told = [calls.tell(address) for address in self.running()]
            self.problems.append(f"not settled within {SETTLE_S} s: {told}")


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def run(
    folder: Path,
    seed: int,
    plan: Sequence[Fault],
    duration_s: float,
    *,
    strategy: str = "balanced",
) -> Outcome:
    """Run *plan* on a cluster in *folder*, while clients work; see what holds."""
    outcome = Outcome()
    calls = NodeCalls()
    small_disk = any(fault.kind == "full" for fault in plan)
    with Cluster(folder, strategy=strategy, small_disk=small_disk) as cluster:
        for node in range(NODES - 1):
            cluster.start(node)
        cluster.wait_settled(calls)
        clients = Clients(folder, seed, CLIENTS, cluster.running)
        histories = [*clients.histories, History(folder / "last.jsonl")]
        clients.start()
        began_at = time.monotonic()
        try:
            _carry_out(cluster, plan, began_at)
            time.sleep(max(0.0, began_at + duration_s - time.monotonic()))
            cluster.wait_settled(calls)
        finally:
            clients.stop()
        for told in (calls.tell(address) for address in cluster.running()):
            outcome.pauses_s += told["pauses_s"] if told is not None else []
        reader = Caller(
            "last", random.Random(seed), cluster.running, histories[-1], gives_up=0, patience_s=15
        )
        _read_all(cluster, reader)
        _restart_all(cluster, calls)
        _read_all(cluster, reader)
        reader.close()
        calls.close()
        outcome.problems += cluster.problems
        outcome.problems += [f"a client failed: {error!r}" for error in clients.errors]
    outcome.problems += _tracebacks(folder)
    _judge(outcome, histories)
    _measure(outcome, histories, plan, began_at)
    return outcome


def _carry_out(cluster: Cluster, plan: Sequence[Fault], began_at: float) -> None:
    """Do and undo what *plan* says, each at its time; besides, the last node comes and goes."""
    steps = [(fault.at_s, 1, n, fault) for n, fault in enumerate(plan)]
    steps += [(fault.at_s + fault.lasts_s, 0, n, fault) for n, fault in enumerate(plan)]
    tellings = _Tellings(cluster)
    late = NODES - 1
    for at_s, begins, _, fault in sorted(steps, key=lambda step: step[:3]):
        time.sleep(max(0.0, began_at + at_s - time.monotonic()))
        tellings.go_on()
        if begins and fault.node == late and cluster.processes[late] is None:
            cluster.start(late)  # the first thing that happens to it is that it comes
        elif begins:
            _begin(cluster, tellings, fault)
        else:
            _end(cluster, tellings, fault)
    if cluster.processes[late] is None:
        cluster.start(late)
    tellings.finish()


def _begin(cluster: Cluster, tellings: _Tellings, fault: Fault) -> None:
    match fault.kind:
        case "kill" | "move":
            cluster.end(fault.node, signal.SIGKILL)
        case "stop":
            cluster.end(fault.node, signal.SIGTERM)
        case "pause":
            cluster.send(fault.node, signal.SIGSTOP)
        case "drain" | "leave":
            tellings.tell(fault.node, fault.kind)
        case "isolate":
            cluster.isolate(fault.node)
        case "deafen":
            cluster.deafen(fault.node, fault.other)
        case "store":
            cluster.store.chmod(0)
        case "full":
            cluster.fill()
        case _:
            raise AssertionError(fault.kind)


def _end(cluster: Cluster, tellings: _Tellings, fault: Fault) -> None:
    match fault.kind:
        case "kill" | "stop" | "move":
            if cluster.processes[fault.node] is None:
                if fault.kind == "move":
                    cluster.move(fault.node)
                cluster.start(fault.node, clock_ahead_s=fault.clock_ahead_s)
        case "pause":
            cluster.send(fault.node, signal.SIGCONT)
        case "drain":
            tellings.tell(fault.node, "undrain")
        case "leave":
            tellings.tell(fault.node, "rejoin")
        case "isolate" | "deafen":
            cluster.heal(fault.node)
        case "store":
            cluster.store.chmod(0o755)
        case "full":
            cluster.free()
        case _:
            raise AssertionError(fault.kind)


class _Tellings:
    """Has nodes drained or the like: each in order, as soon as it serves.

    Nobody waits for that: it may have just been started, and need the store, which the plan mends.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._calls = NodeCalls()
        self._waiting: list[tuple[int, str]] = []

    def tell(self, node: int, what: str) -> None:
        """Have *node* do *what*, once it can."""
        self._waiting.append((node, what))
        self.go_on()

    def go_on(self) -> bool:
        """Tell what can be told. Whether all is."""
        waiting, self._waiting = self._waiting, []
        behind: set[int] = set()
        for node, what in waiting:
            if self._cluster.processes[node] is None:
                continue  # it has nothing of that when it comes back
            if node in behind or not self._was_told(node, what):
                behind.add(node)
                self._waiting.append((node, what))
        return not self._waiting

    def _was_told(self, node: int, what: str) -> bool:
        try:
            self._calls.ask(self._cluster.addresses[node], "/membership", what.encode(), 1.0)
        except CallError:
            return False
        return True

    def finish(self) -> None:
        """Wait until all is told."""
        wait_until(self.go_on, 10.0, f"told to nodes: {self._waiting}")
        self._calls.close()


def _restart_all(cluster: Cluster, calls: NodeCalls) -> None:
    """The machine fails, and comes back."""
    for node in range(NODES):
        cluster.send(node, signal.SIGSTOP)  # nobody shall notice that others are gone
    for node in range(NODES):
        cluster.end(node, signal.SIGKILL)
    for node in range(NODES):
        cluster.start(node)
    cluster.wait_settled(calls)


def _read_all(cluster: Cluster, reader: Caller) -> None:
    for key in KEYS:
        if not reader.do(key, "get"):
            cluster.problems.append(f"{key} cannot be read, though all is well")


# What has to hold.


def _judge(outcome: Outcome, histories: Sequence[History]) -> None:
    operations = [operation for history in histories for operation in history.operations]
    outcome.done_count = sum(not operation.is_open for operation in operations)
    outcome.open_count = sum(operation.is_open for operation in operations)
    outcome.failed_count = sum(len(history.failed) for history in histories)
    outcome.problems += [str(violation) for violation in check(operations)]
    outcome.problems += _counted(operations, histories)


def _counted(operations: Sequence[Invocation], histories: Sequence[History]) -> list[str]:
    """Of each list the last reading has what was acknowledged once, and nothing that failed."""
    problems = []
    last = {o.key: o.result for o in histories[-1].operations if o.name == "get"}
    for key in (key for key in KEYS if key.startswith("l") and key in last):
        value = last[key]
        items = Counter(value if isinstance(value, tuple) else ())
        appended = [o for o in operations if o.key == key and o.name == "append"]
        acknowledged = {o.argument for o in appended if not o.is_open}
        known = {o.argument for o in appended}
        problems += [f"{key}: {a} was acknowledged, and is lost" for a in acknowledged - set(items)]
        problems += [f"{key}: {a} is there {n} times" for a, n in items.items() if n > 1]
        problems += [f"{key}: {a} took effect, but had failed" for a in set(items) - known]
    return problems


def _tracebacks(folder: Path) -> list[str]:
    problems = []
    for log in sorted(folder.glob("n*.log")):
        text = log.read_text()
        if "Traceback" in text or "Error:" in text:
            at = max(0, text.find("Traceback"))
            problems.append(f"{log.name}: {text[at : at + 3000]}")
    return problems


# Figures.


def _measure(
    outcome: Outcome, histories: Sequence[History], plan: Sequence[Fault], began_at: float
) -> None:
    from ringpop_py.state.placement.keys import partition_of

    done = [
        (o.called_at, o.returned_at, partition_of(o.key, PARTITIONS))
        for history in histories[:-1]
        for o in history.operations
        if o.returned_at is not None
    ]
    for fault in plan:
        at = began_at + fault.at_s
        first: dict[int, float] = {}
        for called_at, returned_at, partition in done:
            if called_at >= at:
                first[partition] = min(first.get(partition, returned_at), returned_at)
        if len(first) == len({partition for _, _, partition in done}):
            outcome.unavailable_s.append((fault.kind, max(first.values()) - at))
