"""Shuffles of a cluster with keys: rows travel between those that have one."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from cryptography import x509

from ringpop_py import Client, KeyspaceClient
from ringpop_py.base.errors import BadRequest, KeyspaceForbidden, ShuffleUnavailable
from ringpop_py.client.lines.trust import KEY_VARIABLE
from ringpop_py.flow.shuffle.client.client import ShuffleClient, list_shuffles
from ringpop_py.flow.shuffle.client.cluster import Cluster
from ringpop_py.flow.shuffle.client.lines import Line
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.server.child import CERTIFICATE
from ringpop_py.flow.shuffle.server.register import KEYSPACE
from ringpop_py.net.security.authority import authority_of
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.keys import ClusterKey, new_key, write_keys
from ringpop_py.net.security.tokens import issue_token
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.net.wire.codec import JOIN, PING
from ringpop_py.state.durable.snapshots import SNAPSHOT
from tests.e2e.commands import run
from tests.e2e.local_cluster import free_addresses
from tests.e2e.shuffle.cluster import ShuffleCluster, child_of, until

TABLE = pa.table({"key": list(range(20_000)), "text": [f"row {n}" for n in range(20_000)]})


def test_rows_travel_between_those_that_have_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, job = str(tmp_path / "cluster.key"), str(tmp_path / "job.pem")
    secret, [web] = new_key(), free_addresses(1)
    write_keys(key, (secret,), replace=False)
    issued = run("ringpopctl", "keys", "issue", key, job, "--role", "client", "--name", "job")
    assert issued.returncode == 0, issued.stderr

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


def test_the_process_that_holds_rows_has_a_certificate_in_place_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = str(tmp_path / "cluster.key")
    write_keys(key, (new_key(),), replace=False)
    monkeypatch.setenv(KEY_VARIABLE, key)  # nodes hand their environment down
    with ShuffleCluster(tmp_path / "nodes", 2, "--cluster-key", key) as cluster:
        cluster.wait_ready(2)
        for node in cluster.nodes:
            about = Path(f"/proc/{child_of(node)}")
            files = [str(each.readlink()) for each in (about / "fd").iterdir()]
            told = (about / "cmdline").read_text() + (about / "environ").read_text()
            assert key not in files
            assert "cluster.key" not in told + "".join(files)

        # Its certificate opens its records, and nothing else that a member can do.
        own = str(cluster.folders[0] / CERTIFICATE)
        with Client(cluster.addresses[0], cluster_key=own) as caller:
            caller.is_of_cluster = True
            with KeyspaceClient(caller, KEYSPACE) as records:
                assert dict(records.scan()) == {}
            for endpoint in (PING, JOIN, "/admin/member/leave", "/admin/node", SNAPSHOT):
                with pytest.raises(BadRequest, match="not ringpop://default/shuffles/"):
                    caller.call(Call(NODE_SERVICE, endpoint, b"", b"", ttl_s=5.0))


def wait_until_issued(cluster: ShuffleCluster, *keys: ClusterKey) -> None:
    """Wait until each process has a certificate of the first of *keys*, and trusts all of them."""
    subjects = [authority_of(each).subject for each in keys]

    def has(folder: Path) -> bool:
        own, *trusted = x509.load_pem_x509_certificates((folder / CERTIFICATE).read_bytes())
        return own.issuer == subjects[0] and [each.subject for each in trusted] == subjects

    until(lambda: all(has(folder) for folder in cluster.folders))


def test_a_key_is_exchanged_while_processes_for_shuffles_run(tmp_path: Path) -> None:
    key, old, new = str(tmp_path / "cluster.key"), new_key(), new_key()
    write_keys(key, (old,), replace=False)
    with ShuffleCluster(tmp_path / "nodes", 3, "--cluster-key", key) as cluster:
        with ShuffleClient(cluster.addresses, "s", timeout_s=30, cluster_key=key) as client:
            client.create(TABLE.schema, ["key"], intervals=8)
            with client.attempt() as attempt:
                for keys in ((old, new), (new, old), (new,)):
                    write_keys(key, keys, replace=True)
                    wait_until_issued(cluster, *keys)
                    attempt.put(TABLE)
            client.end([attempt.receipt])
            client.wait()
        children = [child_of(node) for node in cluster.nodes]

        # All processes use the new key alone now: who trusts no other reads the rows at each.
        only = str(tmp_path / "only.key")
        write_keys(only, (new,), replace=False)
        with ShuffleClient.open(cluster.addresses, "s", timeout_s=30, cluster_key=only) as reader:
            rows = pa.Table.from_batches(reader.scan())
            assert rows.num_rows == 3 * TABLE.num_rows
        assert [child_of(node) for node in cluster.nodes] == children
        assert cluster.logs().count("shuffles-served") == len(children)  # none was started again
