"""Real daemons: they find each other, and notice who comes, goes, dies, sleeps and comes back."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from ringpop_py.client.sync.client import Client
from ringpop_py.route.proxy.request import Request
from tests.e2e.local_cluster import LocalCluster, LocalNode, free_addresses, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

FAST = ("--suspect-period=1000",)
APP = ("--app", "tests.e2e.echo_app:create")
GONE = {"faulty", "tombstone"}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
def test_nodes_that_start_together_converge(tmp_path: Path, count: int) -> None:
    with LocalCluster(tmp_path, count) as cluster:
        cluster.wait_converged()


def test_a_node_that_comes_later_is_taken_in(tmp_path: Path) -> None:
    addresses = free_addresses(4)
    with LocalCluster(tmp_path, 4, hosts=addresses[:3], addresses=addresses) as cluster:
        late = cluster[3]
        late.kill()
        cluster.wait_converged(*cluster.nodes[:3])

        late.start()

        cluster.wait_converged()


def test_a_killed_node_becomes_suspect_then_faulty_and_loses_its_keys(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 3, "--suspect-period=3000") as cluster:
        cluster.wait_converged()
        victim, *others = cluster.nodes

        victim.kill()

        cluster.wait_status(victim, GONE, *others)
        cluster.wait_converged(*others)
        # From the log, as it is suspect for seconds only, and not for all at the same time.
        assert all(f"{victim.name} alive -> suspect:" in node.log.read_text() for node in others)


def test_leave_takes_a_node_out_of_the_ring_and_join_brings_it_back(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 3) as cluster:
        cluster.wait_converged()
        leaver, *others = cluster.nodes

        leaver.admin("/admin/member/leave")
        cluster.wait_status(leaver, {"leave"}, *others)
        wait_until(lambda: _ring_size(others[0]) == 2, 20, "two in the ring")
        assert leaver.admin("/admin/node")["gossiping"]
        leaver.admin("/admin/member/join")

        cluster.wait_converged()


def test_sigterm_says_farewell_and_nobody_takes_it_for_a_death(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 3, *FAST) as cluster:
        cluster.wait_converged()
        leaver, *others = cluster.nodes

        assert leaver.stop() == 0

        cluster.wait_status(leaver, {"leave"}, *others)
        cluster.wait_converged(*others)
        assert all("-> faulty" not in node.log.read_text() for node in others)


def test_calls_keep_their_answers_while_the_ring_changes(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 4, *FAST, *APP) as cluster:
        cluster.wait_converged()
        stable = cluster.nodes[:3]
        stop = threading.Event()
        counts = {node.name: 0 for node in stable}
        errors: list[Exception] = []
        callers = [
            threading.Thread(target=_call_until, args=(node, stop, counts, errors))
            for node in stable
        ]
        for caller in callers:
            caller.start()

        _wait_for_calls(counts, errors)
        cluster[3].stop()
        cluster.wait_converged(*stable)
        _wait_for_calls(counts, errors)
        cluster[3].start()
        cluster.wait_converged()
        _wait_for_calls(counts, errors)
        cluster[3].kill()
        cluster.wait_status(cluster[3], GONE, *stable)
        _wait_for_calls(counts, errors)
        stop.set()
        for caller in callers:
            caller.join(30)

        assert errors == []


def _wait_for_calls(counts: dict[str, int], errors: list[Exception]) -> None:
    """Until each caller has had another fifty answers, or one has had an error."""
    goals = {name: count + 50 for name, count in counts.items()}
    wait_until(
        lambda: bool(errors) or all(counts[name] >= goal for name, goal in goals.items()),
        30,
        "fifty more answers for each caller",
    )


def _call_until(
    node: LocalNode, stop: threading.Event, counts: dict[str, int], errors: list[Exception]
) -> None:
    with Client(node.address, timeout_s=20) as client:
        while not stop.is_set():
            number = counts[node.name]
            key = f"{node.address.port}-{number}"
            body = str(number).encode()
            try:
                # To read is to be allowed twice, so a call lost with its owner is repeated.
                reply = client.proxy(key, Request("/who", body), idempotent=True)
                assert reply.body == f"{reply.owner} {key} ".encode() + body
            except Exception as error:  # noqa: BLE001 - the test shows them all
                errors.append(error)
                return
            counts[node.name] += 1


def test_each_node_brings_a_request_to_the_same_owner(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 3, *APP) as cluster:
        cluster.wait_converged()
        for number in range(20):
            owners = set()
            for node in cluster.nodes:
                with Client(node.address) as client:
                    owners.add(client.proxy(f"user:{number}", Request("/who")).owner)
                    assert client.lookup(f"user:{number}") in owners
            assert len(owners) == 1


def test_sighup_reads_the_hosts_file_again(tmp_path: Path) -> None:
    addresses = free_addresses(2)
    first = LocalCluster(tmp_path / "a", 1, addresses=addresses[:1])
    second = LocalCluster(tmp_path / "b", 1, addresses=addresses[1:])
    with first, second:
        first.wait_converged()
        second.wait_converged()
        first.hosts_file.write_text("not an address\n")
        first[0].signal(signal.SIGHUP)
        wait_until(lambda: "kept the old hosts" in first[0].log.read_text(), 20, "complaint")

        first.hosts_file.write_text("".join(f"{address}\n" for address in addresses))
        first[0].signal(signal.SIGHUP)

        wait_until(lambda: len(first[0].statuses()) == 2, 30, "merged")
        second.wait_converged(first[0], second[0])


def test_a_steady_cluster_logs_nothing(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 3) as cluster:
        cluster.wait_converged()
        pings = cluster[0].admin("/admin/node")["gossip"]["pings_sent"]
        before = [node.log.stat().st_size for node in cluster.nodes]

        wait_until(
            lambda: cluster[0].admin("/admin/node")["gossip"]["pings_sent"] > pings + 5,
            20,
            "pings",
        )

        assert [node.log.stat().st_size for node in cluster.nodes] == before


def _ring_size(node: LocalNode) -> int:
    return len(node.admin("/admin/ring")["owners"])


def test_a_second_process_of_a_name_ends_and_the_first_one_does_not_notice(
    tmp_path: Path,
) -> None:
    addresses = free_addresses(3)
    cluster = LocalCluster(tmp_path, 2, addresses=addresses[:2])
    seed, older = cluster.nodes
    older.command.append("--name=store")
    with cluster:
        wait_until(lambda: seed.statuses().get("store") == "alive", 20, "the store is alive")
        checksum = seed.admin("/admin/node")["checksum"]
        command = [*seed.command, "--listen", str(addresses[2]), "--name=store"]
        newer = LocalNode(addresses[2], tmp_path / "newer.log", command)

        newer.start()

        assert newer.process is not None
        assert newer.process.wait(20) == 1
        last = newer.log.read_text().splitlines()[-1]
        has_it = (
            f"ringpopd: the name store belongs to the process at {older.address}, which has run"
        )
        assert last.startswith(has_it)
        assert f"this one, at {addresses[2]}, did not join. Give this one another --name" in last
        assert "Traceback" not in newer.log.read_text()
        assert older.process is not None
        assert older.process.poll() is None
        assert seed.admin("/admin/node")["checksum"] == checksum
        assert f"{addresses[2]} has the name store, too" in older.log.read_text()
