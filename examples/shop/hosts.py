"""The processes of the shop: hosts whose clocks can jump, and the dashboard."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
HOSTS = ("athens", "byblos", "corinth")
END_S = 30.0
# A day is a second here, and customers have less patience than elsewhere.
PACE = {"SHOP_DAY": "1s", "SHOP_HELD_S": "3", "SHOP_ABANDONED_S": "5", "SHOP_DELIVERED": "300"}
CLOCK = """
import runpy, signal, sys, time
true_time, ahead_s = time.time, [0.0, float(sys.argv[1])]
time.time = lambda: true_time() + ahead_s[0]
signal.signal(signal.SIGUSR1, lambda *_: ahead_s.reverse())
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a program whose clock jumps when it gets SIGUSR1, and back when it gets another one."""


class Process:
    """A program that is started again and again."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self._command = command
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own
                self._command, stdout=log, stderr=log, cwd=HERE, env={**os.environ, **PACE}
            )

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it has not ended."""
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(END_S)


class Shop(NamedTuple):
    """What runs: the addresses of the hosts, their processes, and the dashboard with its file."""

    addresses: list[str]
    hosts: list[Process]
    dashboard: Process
    counts: Path


@contextmanager
def open_processes(folder: Path) -> Iterator[Shop]:
    """Start the hosts and the dashboard; end them after the block."""
    addresses = free_addresses(len(HOSTS))
    file, counts = folder / "hosts.txt", folder / "dashboard.json"
    file.write_text("\n".join(addresses))
    hosts = []
    # What is set by a clock that is ahead expires so much later, so that nothing expires early.
    for name, address, ahead_s in zip(HOSTS, addresses, (5, -5, 4), strict=True):
        command = [sys.executable, "-c", CLOCK, str(ahead_s)]
        command += [str(Path(sys.executable).with_name("ringpopd")), "--app", "service:serve"]
        command += ["--listen", address, "--name", name, "--hosts", str(file), "--preset", "local"]
        command += ["--store", f"sqlite://{folder / 'store.db'}", "--create-store"]
        hosts.append(Process(name, command, folder))
    watching = [sys.executable, "dashboard.py", str(counts), *addresses]
    dashboard = Process("dashboard", watching, folder)
    with ExitStack() as stack:
        for process in (*hosts, dashboard):
            stack.callback(process.end)
            process.start()
        yield Shop(addresses, hosts, dashboard, counts)


def free_addresses(count: int) -> list[str]:
    """Return addresses that nothing listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
