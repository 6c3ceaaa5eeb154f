"""Clusters with keys, as people use them: made, called, killed, and given other keys."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import Client, KeyspaceClient
from ringpop_py.base.errors import BadRequest, CallError, ConnectFailed
from ringpop_py.client.aio.client import AsyncClient
from ringpop_py.client.lines.trust import KEY_VARIABLE
from ringpop_py.net.security.keys import new_key, read_keys, write_keys
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from tests.e2e.commands import run
from tests.e2e.local_cluster import LocalCluster, wait_until

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def ctl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run("ringpopctl", *arguments, **environment)


@pytest.fixture
def key(tmp_path: Path) -> str:
    """A file with a new key, as ringpopctl makes it; clients of the test use it."""
    path = str(tmp_path / "cluster.key")
    assert ctl("keygen", path).returncode == 0
    return path


@pytest.fixture
def _with_key(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, key)


@pytest.mark.usefixtures("_with_key")
def test_a_cluster_with_a_key_serves_who_has_it_and_nobody_else(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--cluster-key", key, "--store", str(tmp_path / "store"), "--preset", "local"]
    with LocalCluster(tmp_path / "nodes", 3, *flags) as cluster:
        cluster.wait_converged()
        peer = cluster[0].name

        with Client(peer) as client:
            client.admin("/admin/keyspaces/create", {"name": "carts", "partitions": 16})
            carts = KeyspaceClient(client, "carts")
            for number in range(200):  # at all owners, which are called directly
                carts.put(f"k{number}", number)
            assert carts.get_many([f"k{number}" for number in range(200)])
        assert trio.run(healthy, peer, key)
        cluster[2].kill()
        cluster.wait_status(cluster[2], {"faulty"}, cluster[0], cluster[1])

        assert ctl("--peer", peer, "members").returncode == 4
        assert ctl("--peer", peer, "members", **{KEY_VARIABLE: key}).returncode == 0
        done = ctl("--peer", peer, "--cluster-key", key, "leave")
        assert done.returncode == 0, done.stderr
        monkeypatch.delenv(KEY_VARIABLE)
        with Client(peer) as stranger, pytest.raises(ConnectFailed, match="it wants TLS"):
            stranger.lookup("x")
        with pytest.raises(ConnectFailed):
            trio.run(healthy, peer, None)
        log = cluster[0].log.read_text()

    assert "calls /admin/member/leave" in log
    assert "ringpop:///admin/" in log
    assert "it speaks without TLS" in log
    secret = read_keys(key)[0].line
    assert secret not in log
    assert "Traceback" not in log


async def healthy(peer: str, key: str | None) -> bool:
    async with AsyncClient(peer, cluster_key=key) as client:
        return (await client.call(Call(NODE_SERVICE, "/health", b"", b"", ttl_s=5.0))).ok


@pytest.mark.usefixtures("_with_key")
def test_a_key_is_exchanged_while_the_cluster_runs(key: str, tmp_path: Path) -> None:
    (old,), new = read_keys(key), new_key()
    with LocalCluster(tmp_path / "nodes", 3, "--cluster-key", key, "--preset", "local") as cluster:
        cluster.wait_converged()
        for keys in ((old, new), (new, old), (new,)):
            write_keys(key, keys, replace=True)
            for node in cluster.nodes:
                node.signal(signal.SIGHUP)
            wait_until_logged(cluster, f"keys={[each.id for each in keys]}")
            assert json.loads(
                fresh("--peer", cluster[1].name, "members", "--format", "json", key=key).stdout
            )
        cluster[2].kill()
        cluster[2].start()
        cluster.wait_converged()

        (tmp_path / "cluster.key").write_text("nothing")
        cluster[0].signal(signal.SIGHUP)
        wait_until(lambda: "kept the old keys" in cluster[0].log.read_text(), 10, "it says so")


def wait_until_logged(cluster: LocalCluster, text: str) -> None:
    wait_until(lambda: all(text in node.log.read_text() for node in cluster.nodes), 10, text)


def fresh(*arguments: str, key: str) -> Any:  # noqa: ANN401
    done = ctl(*arguments, "--cluster-key", key)
    assert done.returncode == 0, done.stderr
    return done


def test_keys_are_rolled_out_to_a_cluster_that_runs(key: str, tmp_path: Path) -> None:
    steps = [["--accept-plain", "--dial-plain"], ["--accept-plain"], []]
    with LocalCluster(tmp_path / "nodes", 3, "--preset", "local") as cluster:
        cluster.wait_converged()
        plain = [list(node.command) for node in cluster.nodes]
        for step in steps:
            for node, command in zip(cluster.nodes, plain, strict=True):
                assert node.stop() == 0
                node.command = [*command, "--cluster-key", key, *step]
                node.close()
                node.start()
                wait_until(
                    lambda: all(
                        joined(each.name, key, len(cluster.nodes)) for each in cluster.nodes
                    ),
                    30,
                    cluster.logs(),
                )
        assert ctl("--peer", cluster[0].name, "members").returncode == 4
        log = cluster.logs()

    assert "Traceback" not in log


def joined(peer: str, key: str, count: int) -> bool:
    """Whether *peer* sees so many members alive, with the key or without."""
    for path in (key, None):
        try:
            with Client(peer, timeout_s=2.0, cluster_key=path) as client:
                rows = client.admin("/admin/members")["members"]
                alive = [row["status"] for row in rows].count("alive")
                return bool(alive == count)
        except CallError:
            continue
    return False


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:0"], "could do everything: give"),
        (["--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"], "could change keyspaces: give"),
        (["--listen", "127.0.0.1:0", "--accept-plain"], "need --cluster-key FILE"),
        (["--listen", "127.0.0.1:0", "--cluster-key", "/not/there"], "No such file"),
        (["--listen", "127.0.0.1:0", "--cluster-key", "KEY", "--dialect", "ringpop"], "no keys"),
    ],
)
def test_a_node_that_would_be_open_to_anybody_does_not_start(
    key: str, flags: list[str], message: str
) -> None:
    done = run("ringpopd", *(key if flag == "KEY" else flag for flag in flags))

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("_with_key")
def test_a_certificate_lets_its_holder_do_what_its_role_permits_and_no_more(
    key: str, tmp_path: Path
) -> None:
    job = str(tmp_path / "job.pem")
    assert ctl("keys", "issue", key, job, "--name", "job").returncode == 0
    with LocalCluster(tmp_path / "nodes", 2, "--cluster-key", key) as cluster:
        cluster.wait_converged()
        peer = cluster[0].name
        asked = ctl("--peer", peer, "--cluster-key", job, "lookup", "x")
        changed = ctl("--peer", peer, "--cluster-key", job, "leave")
        with Client(peer, cluster_key=job) as client, pytest.raises(BadRequest) as caught:
            client.call(Call(NODE_SERVICE, "/protocol/ping", b"", b"", ttl_s=5.0))
        assert ctl("keys", "add", key).returncode == 0
        first, second = read_keys(key)
        for command, id_ in (("use", second.id), ("remove", first.id)):
            words = ["keys", command, key, id_, "--peer", peer, "--cluster-key", key]
            early = ctl(*words)
            assert early.returncode == 2, early
            assert "try again in some seconds" in early.stderr
            wait_until(lambda words=words: ctl(*words).returncode == 0, 30, command)  # type: ignore[misc]

    assert asked.returncode == 0
    assert changed.returncode == 1
    assert "is for the role admin, not ringpop:///client/job" in changed.stderr
    assert "is for the role member" in str(caught.value)
    assert read_keys(key) == (second,)


@pytest.mark.usefixtures("_with_key")
def test_a_job_is_revoked_while_it_is_connected_and_gets_another_certificate(
    key: str, tmp_path: Path
) -> None:
    job, other = str(tmp_path / "job.pem"), str(tmp_path / "other.pem")
    assert ctl("keys", "issue", key, job, "--name", "job").returncode == 0
    flags = ["--cluster-key", key, "--preset", "local"]
    with LocalCluster(tmp_path / "nodes", 2, *flags) as cluster:
        cluster.wait_converged()
        with Client(cluster[0].name, cluster_key=job) as client:
            assert client.lookup("x")
            assert ctl("keys", "revoke", key, "--name", "job").returncode == 0

            def is_refused() -> bool:
                try:
                    client.lookup("x")
                except CallError:
                    return True
                return False

            wait_until(is_refused, 30, "its connection ends")
        for node in cluster.nodes:
            words = ["--peer", node.name, "lookup", "x", "--cluster-key"]
            wait_until(lambda words=words: ctl(*words, job).returncode == 4, 30, node.name)  # type: ignore[misc]
            assert "job: its certificate is revoked" in node.log.read_text()
        assert ctl("keys", "issue", key, other, "--name", "job").returncode == 0
        assert ctl(*words, other).returncode == 0
        cluster.wait_converged()  # the members are who they were

        assert ctl("keys", "revoke", key, "--name", "job", "--undo").returncode == 0
        wait_until(lambda: ctl(*words, job).returncode == 0, 30, "it counts again")
