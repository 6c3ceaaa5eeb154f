"""A program under asyncio that keeps its state in the cluster, while hosts are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.entry.hosts import APPS, END_S, START_S
from tests.e2e.local_cluster import LocalCluster, free_addresses, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringpop_py.base.address import Address

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

USERS = [f"user {number}" for number in range(20)]
VISITS = 60
"""So many of each user."""
TOGETHER = 24
AGAIN_S = 60.0


@contextmanager
def counting(folder: Path, daemon: str) -> Iterator[Address]:
    """The application at an address of its own."""
    (app,) = free_addresses(1)
    command = (sys.executable, "-m", "uvicorn", "counting:app", "--log-level", "warning")
    environment = {
        **os.environ,
        "DAEMON": daemon,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(APPS), *sys.path])),
    }
    with (
        (folder / "app.log").open("ab") as log,
        subprocess.Popen(
            [*command, "--host", app.host, "--port", str(app.port)],
            stdout=log,
            stderr=log,
            env=environment,
            cwd=folder,
        ) as process,
    ):
        try:
            wait_until(lambda: answers(app), START_S, "the application answers")
            yield app
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def answers(app: Address) -> bool:
    try:
        return httpx.get(f"http://{app}/who", timeout=2).is_success
    except httpx.HTTPError:
        return False


def visited(client: httpx.Client, user: str, visit: int) -> None:
    """Count a visit; until it is acknowledged, ask again with the same id."""
    until = time.monotonic() + AGAIN_S
    while True:
        response = client.post(f"/visits/{user}/{user}:{visit}")
        if response.is_success:
            return
        assert response.status_code in {503, 504}, response.text
        assert time.monotonic() < until, response.text


def test_the_counts_of_a_program_under_asyncio_are_exact_while_hosts_are_killed(
    tmp_path: Path,
) -> None:
    flags = ("--store", str(tmp_path / "store"))
    with LocalCluster(tmp_path / "nodes", 3, *flags) as cluster:
        cluster.wait_converged()
        cluster[0].admin("/admin/keyspaces/create", {"name": "visits", "partitions": 16})
        with (
            counting(tmp_path, cluster[0].name) as app,
            httpx.Client(base_url=f"http://{app}", timeout=30) as client,
            ThreadPoolExecutor(TOGETHER) as threads,
        ):
            asked = [
                threads.submit(visited, client, user, visit)
                for visit in range(VISITS)
                for user in USERS
            ]
            for place in (1, 0, 2):  # one after the other, its own daemon among them
                done = sum(each.done() for each in asked)
                wait_until(
                    lambda done=done: (  # type: ignore[misc]
                        sum(each.done() for each in asked) >= min(done + 150, len(asked))
                    ),
                    AGAIN_S,
                    "150 more are counted",
                )
                cluster[place].kill()
                cluster[place].start()
                cluster.wait_converged(timeout_s=60.0)
            for each in asked:
                each.result()
            counts = client.get("/visits").json()
            print("the longest gap of its loop:", client.get("/gap").json(), "s")

    assert counts == dict.fromkeys(USERS, VISITS)
