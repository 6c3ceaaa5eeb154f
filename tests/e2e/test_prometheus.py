"""The dashboard and the alerts, asked of a real Prometheus that reads real nodes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
import pytest

from ringpop_py import Client, KeyspaceClient
from tests.e2e.local_cluster import LocalCluster, free_addresses, wait_until

if TYPE_CHECKING:
    from ringpop_py.base.address import Address

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
PROGRAMS = {name: shutil.which(name, path=PATH) for name in ("prometheus", "promtool")}
MISSING = "no Prometheus on the PATH: bin/test brings it, or apt-get install prometheus"
ONLY_WITH = {"Store: failures", "Jobs and shuffles", "Log, without what is usual"}
"""Panels that show nothing while nothing of their kind has happened."""
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.skipif(None in PROGRAMS.values(), reason=MISSING),
]


def tool(*arguments: str) -> str:
    program = PROGRAMS["promtool"]
    assert program is not None
    done = subprocess.run(
        [program, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_rule_holds_when_all_is_well_and_fires_when_it_is_not() -> None:
    assert "17 rules found" in tool("check", "rules", "alerts.yml")
    tool("test", "rules", "alerts_test.yml")


class Prometheus:
    """A process that reads *targets* five times a second."""

    def __init__(self, folder: Path, targets: list[Address]) -> None:
        [self.address] = free_addresses(1)
        self._folder = folder
        listed = json.dumps([str(target) for target in targets])
        (folder / "alerts.yml").write_text((FOLDER / "alerts.yml").read_text())
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 200ms, evaluation_interval: 500ms}\n"
            f"rule_files: [{folder / 'alerts.yml'}]\n"
            "scrape_configs:\n"
            "  - job_name: ringpop\n"
            f"    static_configs: [{{targets: {listed}}}]\n"
        )

    def __enter__(self) -> Self:
        program = PROGRAMS["prometheus"]
        assert program is not None
        command = [program, f"--config.file={self._folder / 'prometheus.yml'}"]
        command += [f"--storage.tsdb.path={self._folder / 'data'}"]
        command += [f"--web.listen-address={self.address}"]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def get(self, path: str, **query: str) -> Any:  # noqa: ANN401 - by path
        answer = httpx.get(f"http://{self.address}/api/v1/{path}", params=query, timeout=10)
        value = answer.json()
        assert value["status"] == "success", f"{query}: {value}"
        return value["data"]

    def rows(self, query: str) -> list[Any]:
        try:
            return list(self.get("query", query=query)["result"])
        except httpx.TransportError:  # it starts
            return []


def queries() -> list[tuple[str, str]]:
    """Each panel's title, and what it asks."""
    return [
        (
            panel["title"],
            target["expr"].replace("$job", "ringpop.*").replace("$__rate_interval", "4s"),
        )
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ]


def test_prometheus_answers_each_panel_and_sees_who_is_gone(tmp_path: Path) -> None:
    http = free_addresses(3)
    cluster = LocalCluster(
        tmp_path / "nodes", 3, "--store", str(tmp_path / "store"), "--preset", "local"
    )
    for node, address in zip(cluster.nodes, http, strict=True):
        node.command += ["--http", str(address)]
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with cluster, Prometheus(folder, http) as prometheus:
        cluster.wait_converged()
        peer = cluster[0].name
        with Client(peer) as client, KeyspaceClient(client, "k") as keyspace:
            client.admin("/admin/keyspaces/create", {"name": "k", "partitions": 16})
            for number in range(200):
                keyspace.put(f"k{number}", number)
            wait_until(lambda: len(prometheus.rows("ringpop_ready == 1")) == 3, 30, "all are read")

            def answered() -> set[str]:
                keyspace.put("again", 1)
                return {title for title, query in queries() if prometheus.rows(query)}

            wanted = {title for title, _ in queries()} - ONLY_WITH
            started = time.monotonic()
            while missing := wanted - answered():
                assert time.monotonic() < started + 30, f"panels without figures: {missing}"
        for _, query in queries():
            prometheus.get("query", query=query)  # those without figures are right, too
        rules = prometheus.get("rules")["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} == {"ok"}

        cluster[2].kill()
        cluster.wait_status(cluster[2], {"faulty"}, cluster[0], cluster[1])

        def pending() -> set[str]:
            alerts = prometheus.get("alerts")["alerts"]
            return {alert["labels"]["alertname"] for alert in alerts}

        wanted = {"RingpopNodeNotReady", "RingpopMemberFaulty"}
        wait_until(lambda: wanted <= pending(), 30, "what is wrong is an alert")
