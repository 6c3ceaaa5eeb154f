"""A cluster of real ringpopd processes on this machine, none of which outlives its block."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ringpop_py.client.sync.client import Client
from ringpop_py.errors import RingpopError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.client.calls import RingSnapshot

POLL_S: Final = 0.02
ASK_TIMEOUT_S: Final = 2.0
END_S_MAX: Final = 8.0
LOG_LINES: Final = 15
EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORT_MIN: Final = 10_000
PORT_TOP: Final = 32_768  # Linux' first ephemeral port, unless it is set otherwise
PORT_TRIES: Final = 1_000


class ClusterError(RingpopError):
    """The cluster does not work as expected; its processes end when its block is left."""


@dataclass(slots=True)
class NodeProcess:
    """One ringpopd process.

    Attributes:
        http: where it serves HTTP, if it does.
    """

    name: str
    address: str
    log: Path
    process: subprocess.Popen[bytes]
    http: str | None = None

    @property
    def running(self) -> bool:
        """Whether the process is still running."""
        return self.process.poll() is None

    def log_tail(self) -> str:
        """Return the last lines of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-LOG_LINES:])

    def ask(self, endpoint: str) -> Any:  # noqa: ANN401 - a plain value, by endpoint
        """Return the reply of the node's own *endpoint*. Raises CallError."""
        with Client(self.address, timeout_s=ASK_TIMEOUT_S) as client:
            return client.admin(endpoint)

    def statuses(self) -> dict[str, str]:
        """Return the status of each member, by name, as this node sees it."""
        members = self.ask("/admin/members")["members"]
        return {member["name"]: member["status"] for member in members}

    def ring(self) -> RingSnapshot:
        """Return the ring as this node sees it. Raises CallError."""
        with Client(self.address, timeout_s=ASK_TIMEOUT_S) as client:
            return client.ring()


class Cluster:
    """*count* nodes as a context manager, which ends them when it is left.

    Args:
        folder: for the bootstrap file and the logs.
        app: the application that the nodes run, if any.
        store: the store of durable keyspaces, if any.
        serves_http: whether the nodes serve HTTP, the console included.
        check_wanted: called repeatedly during each wait; an error in it ends the wait.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        *,
        app: str | None = None,
        store: Path | None = None,
        preset: str = "local",
        serves_http: bool = False,
        check_wanted: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._count = count
        self._app = app
        self._store = store
        self._preset = preset
        self._serves_http = serves_http
        self._check_wanted = check_wanted
        self.nodes: list[NodeProcess] = []

    def __enter__(self) -> Self:
        try:
            self._start()
            self.wait_converged()
        # `__exit__` is not called if this fails, or if Ctrl-C interrupts it.
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    @property
    def running(self) -> list[NodeProcess]:
        """The nodes whose processes are still running."""
        return [node for node in self.nodes if node.running]

    @property
    def console(self) -> str:
        """The URL of the console, at a node that runs."""
        return f"http://{next(node.http for node in self.running if node.http is not None)}/"

    @property
    def addresses(self) -> list[str]:
        """The addresses of the running nodes."""
        return [node.address for node in self.running]

    def named(self, name: str) -> NodeProcess:
        """Return the node of that name."""
        return next(node for node in self.nodes if node.name == name)

    @property
    def hosts(self) -> Path:
        """The path of the bootstrap file."""
        return self._folder / "hosts.json"

    def _start(self) -> None:
        free = free_addresses(2 * self._count if self._serves_http else self._count)
        addresses, others = free[: self._count], free[self._count :]
        self.hosts.write_text(json.dumps(addresses), encoding="utf-8")
        for index, address in enumerate(addresses):
            name = f"node-{index + 1}"
            log = self._folder / f"{name}.log"
            command = [sys.executable, "-m", "ringpop_py.edge.cli.ringpopd"]
            command += ["--listen", address, "--hosts", str(self.hosts), "--name", name]
            command += ["--cluster", "demo", "--preset", self._preset]
            command += ["--app", self._app] if self._app else []
            http = others[index] if others else None
            command += ["--http", http] if http is not None else []
            command += ["--store", str(self._store), "--create-store"] if self._store else []
            with log.open("wb") as file:
                # A session of its own: Ctrl-C goes only to us, and we end the nodes in order.
                process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.nodes.append(NodeProcess(name, address, log, process, http))

    def wait_converged(self, timeout_s: float = 30.0) -> None:
        """Return once all running nodes see the same members alive.

        Raises:
            ClusterError: if a node has ended, or *timeout_s* has passed.
        """
        names = {node.name for node in self.running}

        def converged(node: NodeProcess) -> bool:
            self.check()
            alive = {name for name, status in node.statuses().items() if status == "alive"}
            return names == alive

        self.wait_all(converged, timeout_s, what="see all others")
        # Members that all see alive may still differ, for example in their incarnations.
        if len({node.ask("/admin/node")["checksum"] for node in self.running}) > 1:
            self.wait_all(
                lambda _: len({n.ask("/admin/node")["checksum"] for n in self.running}) == 1,
                timeout_s,
                what="agree on one checksum",
            )

    def wait_all(
        self, holds: Callable[[NodeProcess], bool], timeout_s: float, *, what: str
    ) -> float:
        """Return, once *holds* is true of each running node, how many seconds that took.

        Raises:
            ClusterError: if *timeout_s* has passed.
        """
        started_at = time.monotonic()
        missing = self.running
        while missing:
            self._check_wanted()
            missing = [node for node in missing if not _holds(holds, node)]
            elapsed_s = time.monotonic() - started_at
            if missing and elapsed_s > timeout_s:
                names = ", ".join(node.name for node in missing)
                what_not = f"after {timeout_s:.0f} s {names} did not {what}"
                raise ClusterError(f"{what_not}; the end of a log:\n{missing[0].log_tail()}")
            time.sleep(POLL_S if missing else 0)
        return time.monotonic() - started_at

    def check(self) -> None:
        """Raise ClusterError, with the end of its log, if a node has ended unexpectedly."""
        for node in self.nodes:
            code = node.process.poll()
            # `kill` ends nodes by this signal, so such an end is expected.
            if code is not None and code != -signal.SIGKILL:
                raise ClusterError(
                    f"{node.name} ended with code {code}; its log:\n{node.log_tail()}"
                )

    def kill(self, node: NodeProcess) -> None:
        """Kill *node*, as ``kill -9`` does, and wait for its end."""
        node.process.kill()
        node.process.wait(END_S_MAX)

    def end(self) -> None:
        """Ask all nodes to end, and kill those that do not."""
        with ExitStack() as stack:  # an interrupt in between leaves no process behind
            for node in self.nodes:
                stack.callback(_kill, node)
            for node in self.running:
                node.process.terminate()
            deadline_at = time.monotonic() + END_S_MAX
            for node in self.nodes:
                try:
                    node.process.wait(max(0.0, deadline_at - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue  # the exit stack kills it


def free_addresses(count: int) -> list[str]:
    """Return loopback addresses that nobody listens at."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens at.

    They are below those that the kernel gives to outgoing connections, any of which could have
    taken one before its server starts. Raises OSError if there are too few.
    """
    found: set[int] = set()
    for port in random.sample(range(PORT_MIN, _first_ephemeral()), k=PORT_TRIES):
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            found.add(port)
        if len(found) == count:
            return list(found)
    raise OSError(f"of {PORT_TRIES} ports of 127.0.0.1, only {len(found)} are free")


def _first_ephemeral() -> int:
    try:
        first = int(EPHEMERAL.read_text(encoding="ascii").split()[0])
    except OSError:
        first = 0  # no Linux
    return first if first >= PORT_MIN + PORT_TRIES else PORT_TOP


def _holds(holds: Callable[[NodeProcess], bool], node: NodeProcess) -> bool:
    try:
        return holds(node)
    except ClusterError:
        raise
    except RingpopError:
        return False  # not listening yet, or busy


def _kill(node: NodeProcess) -> None:
    if node.running:
        node.process.kill()
        node.process.wait()
