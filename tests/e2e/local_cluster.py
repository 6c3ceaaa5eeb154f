"""Real daemons on loopback, for tests and benchmarks: bounded in time, ended by their own pids."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from ringpop_demo.cluster import free_ports
from ringpop_py.base.address import Address
from ringpop_py.base.errors import ApplicationError, CallError
from ringpop_py.client.sync.client import Client
from ringpop_py.member.swim.member import AWAY_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

POLL_S = 0.02
END_TIMEOUT_S = 30.0


def free_addresses(count: int) -> list[Address]:
    """Loopback addresses that nobody listens at now."""
    return [Address("127.0.0.1", port) for port in free_ports(count)]


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Seconds until *condition* held; a failure of the test if that took too long."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout_s, f"not within {timeout_s} s: {what}"
        time.sleep(POLL_S)
    return time.monotonic() - started


class LocalNode:
    """One daemon, or the place of one."""

    def __init__(
        self, address: Address, log: Path, command: Sequence[str], cwd: Path | None = None
    ) -> None:
        self.address = address
        self.log = log
        self.command = list(command)
        self.cwd = cwd
        self.process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    @property
    def name(self) -> str:
        return str(self.address)

    def start(self, *extra: str) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, *extra],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.cwd,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a crash: kill -9, and the process is gone."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(END_TIMEOUT_S)

    def stop(self) -> int:
        """As an operator: SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        assert self.process is not None
        return self.process.wait(END_TIMEOUT_S)

    def admin(self, endpoint: str, body: object = None) -> Any:  # noqa: ANN401 - plain values
        if self._client is None:
            self._client = Client(self.address, timeout_s=5.0)
        return self._client.admin(endpoint, body)

    def ask(self, endpoint: str) -> Any:  # noqa: ANN401 - plain values
        """As `admin`, but None where there is no answer."""
        try:
            return self.admin(endpoint)
        except (CallError, ApplicationError):
            return None

    def statuses(self) -> dict[str, str]:
        """The status of each member in this node's eyes."""
        value = self.ask("/admin/members")
        return {m["name"]: m["status"] for m in value["members"]} if value else {}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait(END_TIMEOUT_S)


class LocalCluster:
    """*count* daemons with one hosts file; a context manager that ends them all."""

    def __init__(
        self,
        folder: Path,
        count: int,
        *flags: str,
        hosts: Sequence[Address] | None = None,
        addresses: Sequence[Address] | None = None,
        cwd: Path | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        found = list(addresses or free_addresses(count))
        hosts_file = folder / "hosts.txt"
        hosts_file.write_text("".join(f"{address}\n" for address in hosts or found))
        self.hosts_file = hosts_file
        self.nodes = []
        for address in found:
            command = [
                sys.executable,
                "-m",
                "ringpop_py.edge.cli.ringpopd",
                "--listen",
                str(address),
            ]
            command += ["--hosts", str(hosts_file), *flags]
            command += ["--create-store"] if "--store" in flags else []
            self.nodes.append(LocalNode(address, folder / f"{address.port}.log", command, cwd))

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
        except BaseException:  # a signal may end us in the midst of it
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def __getitem__(self, index: int) -> LocalNode:
        return self.nodes[index]

    @property
    def addresses(self) -> list[str]:
        """Where nodes listen, or will."""
        return [node.name for node in self.nodes]

    def logs(self) -> str:
        return "\n".join(f"--- {n.address}\n{n.log.read_text()[-3000:]}" for n in self.nodes)

    def converged(self, *nodes: LocalNode) -> bool:
        """Whether these (default: all) are ready, see the same, and just these in the ring."""
        asked = nodes or tuple(self.nodes)
        infos = [node.ask("/admin/node") for node in asked]
        if not all(info and info["ready"] for info in infos):
            return False
        if len({info["checksum"] for info in infos}) != 1:
            return False
        ring = asked[0].ask("/admin/ring")
        return bool(ring) and {o["address"] for o in ring["owners"]} == {n.name for n in asked}

    def wait_applications(self, timeout_s: float = 30.0) -> float:
        """Seconds until no member takes an application for away."""

        def all_there() -> bool:
            rows = [node.admin("/admin/members")["members"] for node in self.nodes]
            return not any(AWAY_LABEL in row["labels"] for members in rows for row in members)

        return wait_until(all_there, timeout_s, "all members know that no application is away")

    def wait_converged(self, *nodes: LocalNode, timeout_s: float = 20.0) -> float:
        try:
            return wait_until(lambda: self.converged(*nodes), timeout_s, "converged")
        except AssertionError as error:
            message = f"{error}\n{self.logs()}"
            raise AssertionError(message) from None

    def wait_status(
        self, subject: LocalNode, statuses: set[str], *observers: LocalNode, timeout_s: float = 20.0
    ) -> float:
        """Seconds until all *observers* hold *subject* for one of *statuses*."""

        def all_say_so() -> bool:
            return all(node.statuses().get(subject.name) in statuses for node in observers)

        return wait_until(all_say_so, timeout_s, f"{subject.name} {statuses}")
