"""Requests that come in through the middleware, beside the bare application and beside httpx.

The application is Starlette under uvicorn, one process on each of two hosts. All ways take turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.bench.entries import nginx, rolling
from tests.bench.entries.server import Server
from tests.bench.report import larger_is_better, smaller_is_better, without_peer
from tests.e2e.local_cluster import LocalCluster, free_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.base.address import Address
from tests.bench.report import Row

HERE: Final = Path(__file__).parent / "entries"
CALLERS: Final = 16
SECONDS: Final = 4.0
ROUNDS: Final = 5
NGINX: Final = "nginx, which hashes keys"
BARE: Final = "the bare application"
HTTPX: Final = "httpx to a second uvicorn"
RATE_HERE: Final = 0.9
P99_HERE: Final = 1 / 1.2


class Load(NamedTuple):
    """Requests a second, and within how many milliseconds 99 of 100 were answered."""

    rate: float
    p99_ms: float


def run() -> Iterator[Row]:
    """The rows of `entry`."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as stack:
        cluster = LocalCluster(Path(folder), 2)
        behind = free_addresses(2)
        (door_of_ours,) = free_addresses(1)
        for node, app in zip(cluster.nodes, behind, strict=True):
            node.command += ["--app-url", f"http://{app}"]
        cluster[0].command += ["--http-in", str(door_of_ours), "--key", "path:/carts/{key}"]
        stack.enter_context(cluster)
        cluster.wait_converged()
        for node, app in zip(cluster.nodes, behind, strict=True):
            stack.enter_context(Server(app, MODE="middleware", DAEMON=node.name))
        cluster.wait_applications()
        bare, passed_on = free_addresses(2)
        stack.enter_context(Server(bare, MODE="bare"))
        stack.enter_context(Server(passed_on, MODE="httpx", OTHER=f"http://{bare}"))
        doors = {}
        if nginx.program() is not None:
            second, balanced = free_addresses(2)
            stack.enter_context(Server(second, MODE="bare"))
            stack.enter_context(nginx.nginx(Path(folder), balanced, [bare, second]))
            doors["nginx"] = balanced
        here, elsewhere = (_key_of(cluster, place) for place in (0, 1))
        ways = {
            "bare": (bare, here),
            "here": (behind[0], here),
            "elsewhere": (behind[0], elsewhere),
            "httpx": (passed_on, here),
            **{name: (door, here) for name, door in doors.items()},
            "door": (door_of_ours, elsewhere),
        }
        loads: dict[str, list[Load]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (app, key) in ways.items():
                loads[name].append(_load(app, key))
        rate = {name: median(load.rate for load in all_of) for name, all_of in loads.items()}
        p99 = {name: median(load.p99_ms for load in all_of) for name, all_of in loads.items()}
        yield larger_is_better("entry.here", rate["here"], "1/s", BARE, rate["bare"], RATE_HERE)
        yield smaller_is_better("entry.here.p99", p99["here"], "ms", BARE, p99["bare"], P99_HERE)
        yield larger_is_better(
            "entry.elsewhere", rate["elsewhere"], "1/s", HTTPX, rate["httpx"], 1.0
        )
        yield smaller_is_better(
            "entry.elsewhere.p99", p99["elsewhere"], "ms", HTTPX, p99["httpx"], 1.0
        )
        # A row by a way without Python before it, too: what the detour costs in all.
        for name in ("elsewhere", "door"):
            row = f"entry.{name}.nginx"
            if "nginx" in rate:
                yield larger_is_better(row, rate[name], "1/s", NGINX, rate["nginx"])
            else:
                yield without_peer(row, rate[name], "1/s", NGINX)
    yield from rolling.rows()


def _key_of(cluster: LocalCluster, place: int) -> str:
    names = (f"k{number}" for number in range(10_000))
    owner = cluster[place].name
    return next(
        key for key in names if cluster[0].admin("/admin/lookup", {"key": key})["dest"] == owner
    )


def _load(app: Address, key: str) -> Load:
    command = [sys.executable, str(HERE / "load.py"), app.host, str(app.port), f"/carts/{key}"]
    command += [str(CALLERS), str(SECONDS)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    return Load(**json.loads(done.stdout))
