"""A shop on three hosts, under load while they are killed, paused and restarted.

Each host runs a daemon and the FastAPI application of carts_app.py. A cart is in the memory of one
host, and all requests for it come there; orders are in a durable keyspace. The load comes as
through a load balancer: to any host, and to the next one if a host does not answer.

    python examples/carts.py
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx
from workers import MEMORY, Story

from ringpop_py import Client, KeyspaceClient, RingpopError

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTS = ("athens", "byblos", "corinth")
USERS = [f"user-{number}" for number in range(60)]
CALLERS = 6
TIMEOUT_S = 12.0
READY_S = 30.0
BIN = Path(sys.executable).parent


class Host:
    """A host: its daemon, and its application."""

    def __init__(self, name: str, daemon: str, app: str, folder: Path) -> None:
        self.name, self.daemon, self.app = name, daemon, app
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start both processes, and wait until the application answers."""
        hosts, store = self._folder / "hosts.txt", self._folder / "store"
        daemon = [str(BIN / "ringpopd"), "--listen", self.daemon, "--name", self.name]
        daemon += ["--hosts", str(hosts), "--preset", "local", "--app-url", f"http://{self.app}"]
        daemon += ["--store", str(store), "--create-store"]
        host, _, port = self.app.partition(":")
        app = [str(BIN / "uvicorn"), "carts_app:app", "--host", host, "--port", port]
        with (self._folder / f"{self.name}.log").open("ab") as log:
            environment = {**os.environ, "HOST_NAME": self.name, "RINGPOP_PEER": self.daemon}
            for command in (daemon, [*app, "--app-dir", str(Path(__file__).parent)]):
                self._processes.append(
                    subprocess.Popen(command, stdout=log, stderr=log, env=environment)  # noqa: S603
                )
        until(lambda: httpx.get(f"http://{self.app}/carts/nobody", timeout=5).is_success)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to both processes."""
        for process in self._processes:
            process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End both processes, the application first."""
        for process in reversed(self._processes):
            process.send_signal(number)
            process.wait(READY_S)
        self._processes = []


class Load:
    """Callers that put into carts, look at them, and order."""

    def __init__(self, hosts: list[Host]) -> None:
        self._apps = [host.app for host in hosts]
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(n,)) for n in range(CALLERS)]
        self.ordered: Counter[str] = Counter()
        self.requests = self.again = 0
        self.failed: list[str] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _call(self, number: int) -> None:
        rng = random.Random(number)
        with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client:
            for turn in itertools.count():
                if self._ends.is_set():
                    return
                user, count = rng.choice(USERS), rng.randint(1, 3)
                self._ask(client, rng, "PUT", f"/carts/{user}/pen?count={count}")
                self._ask(client, rng, "GET", f"/carts/{user}")
                order = f"/orders/{user}/{number}-{turn}?count={count}"
                if self._ask(client, rng, "PUT", order):
                    with self._lock:
                        self.ordered[user] += count

    def _ask(self, client: httpx.Client, rng: random.Random, method: str, path: str) -> bool:
        """Ask one host, and the others if it does not answer: each of these may be repeated."""
        trouble = ""
        for app in rng.sample(self._apps, len(self._apps)) * 2:
            try:
                reply = client.request(method, f"http://{app}{path}")
            except httpx.TransportError as error:
                trouble = type(error).__name__
            else:
                if reply.is_success:
                    with self._lock:
                        self.requests += 1
                        self.again += trouble != ""
                    return True
                trouble = f"{reply.status_code} {reply.text[:200]}"
        with self._lock:
            self.failed.append(f"{method} {path}: {trouble}")
        return False


def until(condition: Callable[[], bool]) -> None:
    """Return once *condition* holds."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        with suppress(httpx.HTTPError, RingpopError):
            if condition():
                return
        time.sleep(0.05)
    message = "waited in vain"
    raise SystemExit(message)


def free_addresses(count: int) -> list[str]:
    """Return addresses that nothing listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def see_one_another(hosts: list[Host]) -> None:
    """Wait until all hosts are in the ring of each."""

    def agree() -> bool:
        for host in hosts:
            with Client(host.daemon) as client:
                if len(client.ring().ring) < len(HOSTS):
                    return False
        return True

    until(agree)


def main(folder: Path) -> None:
    """Run the story."""
    story = Story()
    addresses = free_addresses(2 * len(HOSTS))
    (folder / "hosts.txt").write_text("\n".join(addresses[: len(HOSTS)]))
    hosts = [
        Host(name, daemon, app, folder)
        for name, daemon, app in zip(
            HOSTS, addresses[: len(HOSTS)], addresses[len(HOSTS) :], strict=True
        )
    ]
    athens, byblos, corinth = hosts
    with ExitStack() as stack:
        for host in hosts:
            stack.callback(host.end)
            host.start()
        see_one_another(hosts)
        create = [str(BIN / "ringpopctl"), "--peer", athens.daemon, "keyspace", "create", "orders"]
        subprocess.run([*create, "--partitions", "32"], check=True, capture_output=True)  # noqa: S603
        with httpx.Client(trust_env=False) as client:
            found = {client.get(f"http://{h.app}/carts/user-7").headers["x-host"] for h in hosts}
        story.tell(f"the cart of user-7 is at {found.pop()}, whichever host is asked")
        assert not found
        with Load(hosts) as load:
            time.sleep(3)
            story.tell("byblos is killed, with the carts that it has")
            byblos.end()
            time.sleep(3)
            byblos.start()
            see_one_another(hosts)
            story.tell("byblos is back; corinth is paused for 4 s")
            corinth.send(signal.SIGSTOP)
            time.sleep(4)
            corinth.send(signal.SIGCONT)
            see_one_another(hosts)
            story.tell("corinth goes on; athens is restarted")
            athens.end(signal.SIGTERM)
            athens.start()
            see_one_another(hosts)
            time.sleep(2)
        with Client(corinth.daemon) as daemon, KeyspaceClient(daemon, "orders") as orders:
            stored = Counter(dict(orders.scan()))
        story.tell(f"{load.requests} requests, of which {load.again} went to another host as well")
        lost, twice = (load.ordered - stored).total(), (stored - load.ordered).total()
        assert not load.failed, load.failed[:5]
        assert (lost, twice) == (0, 0), (lost, twice)
        print(f"no request failed; {stored.total()} items were ordered, none lost, none twice")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ringpop-example-", dir=MEMORY) as folder:
        main(Path(folder))
