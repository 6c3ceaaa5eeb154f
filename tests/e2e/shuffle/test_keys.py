"""Shuffles of a cluster with keys: rows travel between those that have one."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import httpx
import pyarrow as pa
import pytest

from ringpop_py import Client, KeyspaceClient
from ringpop_py.client.trust import KEY_VARIABLE
from ringpop_py.errors import KeyspaceForbidden, ShuffleUnavailable
from ringpop_py.security.identity import Identity, Role
from ringpop_py.security.keys import new_key, write_keys
from ringpop_py.security.tokens import issue_token
from ringpop_py.shuffle import calls as c
from ringpop_py.shuffler.register import KEYSPACE
from ringpop_py.shuffling.client import ShuffleClient, list_shuffles
from ringpop_py.shuffling.cluster import Cluster
from ringpop_py.shuffling.lines import Line
from tests.e2e.local_cluster import free_addresses
from tests.e2e.shuffle.cluster import ShuffleCluster, until

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table({"key": list(range(20_000)), "text": [f"row {n}" for n in range(20_000)]})


def test_rows_travel_between_those_that_have_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, job = str(tmp_path / "cluster.key"), str(tmp_path / "job.pem")
    secret, [web] = new_key(), free_addresses(1)
    write_keys(key, (secret,), replace=False)
    command = [sys.executable, "-m", "ringpop_py.cli.ringpopctl", "keys", "issue", key, job]
    issued = [*command, "--role", "client", "--name", "job"]
    subprocess.run(issued, check=True, capture_output=True, timeout=60)

    with ShuffleCluster(tmp_path / "nodes", 3, "--cluster-key", key) as cluster:
        monkeypatch.setenv(KEY_VARIABLE, key)
        cluster[0].stop()
        cluster[0].start("--http", str(web))
        cluster.wait_ready(3)
        monkeypatch.delenv(KEY_VARIABLE)

        # Who has a certificate puts rows, and reads them; the members have sent them on.
        with ShuffleClient(cluster.addresses, "s", timeout_s=20, cluster_key=job) as client:
            client.create(TABLE.schema, ["key"], intervals=8)
            with client.attempt() as attempt:
                for number in range(4):
                    attempt.put(TABLE.slice(number * 5_000, 5_000))
            client.end([attempt.receipt])
            client.wait()
            assert pa.Table.from_batches(client.scan()).column("key").to_pylist() == [
                *range(20_000)
            ]
            other = client.reorder(7, "t")
            other.close()
        names = [each.name for each in list_shuffles(cluster.addresses, cluster_key=key)]
        assert sorted(names) == ["s", "t"]

        # The records of shuffles are not for a client; what it may do, it may do over HTTP, too.
        with (
            Client(cluster.addresses[0], cluster_key=job) as caller,
            KeyspaceClient(caller, KEYSPACE) as records,
            pytest.raises(KeyspaceForbidden, match="not ringpop:///client/job"),
        ):
            records.put("s", 1)
        token = issue_token(secret, Identity("", Role.CLIENT, "ann"), dt.timedelta(hours=1))
        bearer = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"http://{web}", headers=bearer, timeout=20) as http:
            assert http.put("/keyspaces/~shuffles/keys/s", json=1).status_code == 403
            assert sorted(http.get("/shuffles").json()) == ["s", "t"]
            assert http.get("/shuffles/s").json()["state"] == "get"

        # What is for members alone, a client does not get: its connection ends.
        found = Cluster(cluster.addresses, 5.0, key)
        found.look()
        address = next(iter(found.addresses.values()))
        fetch = c.FetchInterval("s", 1, 1, 0)
        with closing(Line(address, 5.0, job)) as line, pytest.raises(ShuffleUnavailable):
            line.call(fetch, timeout_s=5)
        told = "FetchInterval is for members, not ringpop:///client/job"
        until(lambda: told in cluster.logs(), cluster.logs)

        # And nobody gets anything without a key, neither of the nodes nor of these processes.
        with closing(Line(address, 5.0, None)) as line, pytest.raises(ShuffleUnavailable):
            line.call(c.List(), timeout_s=5)
        with pytest.raises(ShuffleUnavailable):
            list_shuffles(cluster.addresses, timeout_s=2.0)
