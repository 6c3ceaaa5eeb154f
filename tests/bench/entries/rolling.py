"""GETs while all hosts of an application are restarted, one after the other.

The load comes as through a load balancer that knows which host is about to be restarted, and sends
nothing there. Nobody repeats a request: each that fails counts.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import httpx

from tests.bench.entries.server import Server
from tests.bench.report import against_goal
from tests.e2e.local_cluster import LocalCluster, free_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.base.address import Address
    from tests.bench.report import Row

HOSTS: Final = 5
RATE: Final = 200.0
KEYS: Final = 1_000
CALLERS: Final = 32
CALM_S: Final = 1.0


class Traffic:
    """So many GETs a second, at hosts that are in service; a context manager."""

    def __init__(self, apps: list[Address]) -> None:
        self.in_service = apps
        self.sent = 0
        self.failed: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        rng = random.Random(1)
        limits = httpx.Limits(max_keepalive_connections=CALLERS)
        with (
            httpx.Client(timeout=10, trust_env=False, limits=limits) as client,
            ThreadPoolExecutor(CALLERS) as pool,
        ):
            next_at = time.monotonic()
            while not self._ends.is_set():
                app = rng.choice(self.in_service)
                pool.submit(self._get, client, f"http://{app}/carts/k{rng.randrange(KEYS)}")
                self.sent += 1
                next_at += 1 / RATE
                time.sleep(max(next_at - time.monotonic(), 0))

    def _get(self, client: httpx.Client, url: str) -> None:
        try:
            reply = client.get(url)
            if not reply.is_success:
                self.failed.append(f"{url}: {reply.status_code} {reply.text[:200]}")
        except httpx.HTTPError as error:
            self.failed.append(f"{url}: {error!r}")


def rows() -> Iterator[Row]:
    """The rows of `entry` about a rolling restart."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as stack:
        cluster = LocalCluster(Path(folder), HOSTS)
        apps = free_addresses(HOSTS)
        for node, app in zip(cluster.nodes, apps, strict=True):
            node.command += ["--app-url", f"http://{app}"]
        stack.enter_context(cluster)
        cluster.wait_converged()
        servers = [
            stack.enter_context(Server(app, MODE="middleware", DAEMON=node.name))
            for node, app in zip(cluster.nodes, apps, strict=True)
        ]
        cluster.wait_applications()
        traffic = stack.enter_context(Traffic(apps))
        time.sleep(CALM_S)
        for node, server in zip(cluster.nodes, servers, strict=True):
            traffic.in_service = [app for app in apps if app != server.address]
            time.sleep(CALM_S)  # until what was on its way there is answered
            node.stop()
            server.end()
            server.start()
            node.start()
            cluster.wait_converged()
            traffic.in_service = apps
        time.sleep(CALM_S)
    if traffic.failed:
        print(*traffic.failed[:5], sep="\n")
    yield against_goal("entry.rolling.failed", len(traffic.failed), f"of {traffic.sent}", 0)
