"""ringpopd and ringpopctl as a person uses them: right, and wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.commands import command_of, ctl, ctl_json, run
from tests.e2e.local_cluster import LocalCluster, free_addresses, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("ctl"), 3) as started:
        started.wait_converged()
        yield started


@pytest.fixture
def cluster(three: LocalCluster) -> Iterator[LocalCluster]:
    """The module's cluster; whatever a test did to it, the next one finds it whole."""
    yield three
    for node in three.nodes:
        (row,) = (m for m in node.admin("/admin/members")["members"] if m["name"] == node.name)
        if row["status"] == "leave":
            node.admin("/admin/member/join")
        if row["draining"]:
            node.admin("/admin/member/undrain")
    three.wait_converged()


def test_members_as_a_table_and_as_json(cluster: LocalCluster) -> None:
    text = ctl(cluster, "members").stdout
    value = ctl_json(cluster, "members")

    names = sorted(node.name for node in cluster.nodes)
    assert text.splitlines()[0].split() == ["NAME", "ADDRESS", "STATUS", "INCARNATION", "LABELS"]
    assert all(name in text for name in names)
    assert [member["name"] for member in value["members"]] == names
    assert {member["status"] for member in value["members"]} == {"alive"}


def test_views_lookup_ring_and_stats(cluster: LocalCluster) -> None:
    views = ctl_json(cluster, "views")
    owners = ctl_json(cluster, "lookup", "user:42", "-n", "3")["owners"]
    ring = ctl_json(cluster, "ring")
    stats = ctl_json(cluster, "stats")

    assert len(views["groups"]) == 1
    assert sorted(owners) == sorted(node.name for node in cluster.nodes)
    assert ctl(cluster, "lookup", "user:42").stdout.strip() == owners[0]
    assert sum(owner["share"] for owner in ring["owners"]) == pytest.approx(1)
    assert 1 <= ring["busiest_over_mean"] < 2
    assert stats["name"] == cluster[0].name
    assert "busiest over mean" in ctl(cluster, "ring").stdout


def test_wait_for_converged(cluster: LocalCluster) -> None:
    good = ctl(cluster, "wait", "--for", "converged", "--members", "3", "--timeout", "10")
    late = ctl(cluster, "wait", "--for", "converged", "--members", "4", "--timeout", "0.3")

    assert good.returncode == 0
    assert "converged: 3 members" in good.stdout
    assert late.returncode == 5
    assert "3 members are alive, not 4" in late.stderr


def test_drain_and_undrain(cluster: LocalCluster) -> None:
    name = cluster[0].name
    drained = ctl(cluster, "drain")
    others = [row["name"] for row in ctl_json(cluster, "ring")["owners"]]
    line = next(t for t in ctl(cluster, "members").stdout.splitlines() if t.startswith(name))
    undrained = ctl(cluster, "undrain")

    assert (drained.returncode, undrained.returncode) == (0, 0)
    assert name not in others
    assert "alive draining" in line
    assert name in [row["name"] for row in ctl_json(cluster, "ring")["owners"]]


def test_a_member_is_drained_by_its_name_through_another(cluster: LocalCluster) -> None:
    name = cluster[1].name
    owners = [row["name"] for row in ctl_json(cluster, "ring")["owners"]]
    dry = ctl(cluster, "drain", name, "--dry-run")
    assert [row["name"] for row in ctl_json(cluster, "ring")["owners"]] == owners

    drained = ctl(cluster, "drain", name)
    draining = {m["name"]: m["draining"] for m in ctl_json(cluster, "members", node=1)["members"]}
    undrained = ctl(cluster, "undrain", name)
    unknown = ctl(cluster, "leave", f"{name}0")

    assert f"drain {name}: other members take over its " in dry.stdout
    assert drained.stdout.startswith(f"{name} no longer owns anything")
    assert [each for each, drains in draining.items() if drains] == [name]
    assert undrained.returncode == 0
    assert unknown.returncode == 2
    assert f"no member is called '{name}0'; did you mean " in unknown.stderr


def test_a_member_that_is_gone_is_forced_out_and_one_that_is_alive_is_not(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 3) as three:
        three.wait_converged()
        gone, others = three[2].name, three.nodes[:2]
        alive = ctl(three, "force-leave", gone, "--yes")
        three[2].kill()
        three.wait_status(three[2], {"faulty"}, *others)
        asked = ctl(three, "drain", gone)
        dry = ctl(three, "reap", "--dry-run")
        forced = ctl(three, "force-leave", gone, "--yes")
        three.wait_status(three[2], {"tombstone"}, *others)
        three[2].start()
        three.wait_converged()

    assert alive.returncode == 1
    assert f"{gone} is alive and would come back" in alive.stderr
    assert asked.returncode == 2
    assert f"`ringpopctl force-leave {gone}`" in asked.stderr
    assert dry.stdout.endswith(f"would become tombstones: {gone} (faulty)\n")
    assert forced.stdout.startswith(f"{gone} was faulty and is a tombstone now")


def test_damp_shows_who_flaps_and_clears_it(cluster: LocalCluster) -> None:
    name = cluster[1].name

    shown = ctl_json(cluster, "damp", "show", name)
    text = ctl(cluster, "damp", "show", name).stdout
    cleared = ctl(cluster, "damp", "clear", name)
    unknown = ctl(cluster, "damp", "clear", "nobody")

    assert [(row["name"], row["damped"]) for row in shown["members"]] == [(name, False)]
    assert text.splitlines()[0].split()[:3] == ["NAME", "SCORE", "STATE"]
    assert cleared.stdout == f"{name} was not damped; its score at {cluster[0].name} is 0 now\n"
    assert unknown.returncode == 1
    assert "no member is called 'nobody'" in unknown.stderr


def test_why_tells_who_accused_on_which_evidence_and_events_tell_the_rest(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 4) as four:
        four.wait_converged()
        victim = four[3].name
        four[3].kill()
        four.wait_status(four[3], {"faulty"}, *four.nodes[:3])

        value = ctl_json(four, "why", victim)
        text = ctl(four, "why", victim).stdout
        events = ctl_json(four, "events")["records"]
        unknown = ctl(four, "why", "nobody")
        four[3].start()
        four.wait_converged()
        by_itself = ctl(four, "why", victim, node=3).stdout

    changes = [r for r in value["records"] if r["event"] == "member-changed"]
    accusations = [r for r in changes if r["via"] == "probe"]
    assert value["member"]["status"] == "faulty"
    assert changes[-1]["after"] == "faulty"
    assert accusations
    assert f"{victim} alive -> suspect: own probe" in text
    assert "; its system refuses connections: no process listens\n" in text
    assert "refused" in {row["tcp"] for row in value["now"]}
    assert f"{victim} alive -> suspect: own probe" in by_itself, "which it cannot know itself"
    assert victim in {record.get("member") for record in events}
    assert unknown.returncode == 1
    assert "knows no member 'nobody'" in unknown.stderr


def test_a_key_is_explained_and_traced(cluster: LocalCluster) -> None:
    owner = ctl(cluster, "lookup", "user:42").stdout.strip()
    explained = ctl(cluster, "lookup", "user:42", "--explain").stdout
    assert f"the owner:            {owner} (alive, " in explained
    found = ctl_json(cluster, "lookup", "user:42", "--explain")
    assert found["owners"][0]["name"] == owner
    assert len(found["owners"]) == 3

    traced = ctl(cluster, "trace", "user:42")
    assert traced.returncode == 0
    assert f"all of 3 say that {owner} owns it" in traced.stdout
    unknown = ctl(cluster, "trace", "user:42", "--keyspace", "none")
    assert (unknown.returncode, unknown.stdout.splitlines()[-1]) == (3, "no member names an owner")


def test_a_watching_command_shows_its_answer_again_until_ctrl_c(cluster: LocalCluster) -> None:
    for arguments, shown in (
        (("top", "--sort", "cpu"), ("members", "requests")),
        (("members", "--watch", "0.1"), ("members", "incarnation")),
    ):
        command = command_of("ringpopctl", "--peer", cluster[0].name)
        process = subprocess.Popen(
            [*command, "--format", "json", *arguments], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(2):
            value = json.loads(process.stdout.readline())
            assert len(value[shown[0]]) == 3
            assert value[shown[0]][0][shown[1]] is not None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        process.stdout.close()


def test_check_says_what_is_wrong_as_monitors_expect(tmp_path: Path) -> None:
    flags = ["--preset", "local", "--store", str(tmp_path / "store")]
    with LocalCluster(tmp_path / "nodes", 3, *flags) as cluster:
        cluster.wait_converged()
        cluster[0].admin("/admin/keyspaces/create", {"name": "k", "partitions": 8})
        assert ctl(cluster, "wait", "--for", "partitions").returncode == 0

        done = ctl(cluster, "check", "--members", "3")
        assert (done.returncode, done.stdout) == (0, "ringpop OK: 3 members, nothing is wrong\n")
        cluster[2].kill()
        cluster.wait_status(cluster[2], {"faulty"}, cluster[0], cluster[1])
        assert ctl(cluster, "wait", "--for", "partitions").returncode == 0
        done = ctl(cluster, "check")
        assert done.returncode == 1
        assert done.stdout.startswith(f"ringpop WARNING: {cluster[2].name} is gone: ")
        done = ctl(cluster, "check", "--members", "3", "--format", "json")
        assert done.returncode == 2
        value = json.loads(done.stdout)
        assert (value["status"], value["members"]) == ("critical", 2)
        [problem] = value["problems"]
        assert problem["cause"] == "killed"
        assert "2 members are in the ring, not 3" in problem["evidence"]
        done = ctl(cluster, "check", node=2)
        assert (done.returncode, done.stdout[:17]) == (2, "ringpop CRITICAL:")


def test_events_are_followed_until_ctrl_c(cluster: LocalCluster) -> None:
    command = command_of("ringpopctl", "--peer", cluster[0].name)
    command += ["events", "-f", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["number"] >= 1
        assert ctl(cluster, "leave", node=1).returncode == 0
        for line in following.stdout:
            record = json.loads(line)
            if (record.get("member"), record.get("after")) == (cluster[1].name, "leave"):
                break
        following.send_signal(signal.SIGINT)
        code = following.wait(10)

    assert code == 130


def test_a_key_that_is_too_long_is_refused_before_it_is_sent(cluster: LocalCluster) -> None:
    done = ctl(cluster, "lookup", "k" * 70_000)

    assert done.returncode == 2
    assert done.stderr == "ringpopctl: a key has at most 65536 characters, not 70000\n"


def test_errors_are_json_where_json_is_asked_for(cluster: LocalCluster) -> None:
    (nobody,) = free_addresses(1)

    said_no = ctl(cluster, "damp", "clear", "nobody", "--format", "json")
    away = run("ringpopctl", "--peer", str(nobody), "--format", "json", "members")

    assert json.loads(said_no.stderr) == {
        "error": "no member is called 'nobody'",
        "code": "application-error",
        "exit_code": said_no.returncode,
    }
    assert json.loads(away.stderr)["exit_code"] == away.returncode == 4
    assert (said_no.stdout, away.stdout) == ("", "")


def test_a_node_that_is_not_there_is_exit_code_4() -> None:
    (nobody,) = free_addresses(1)
    started = time.monotonic()

    done = run("ringpopctl", "--peer", str(nobody), "members")

    assert done.returncode == 4
    assert done.stderr == f"ringpopctl: cannot reach {nobody}: Connection refused\n"
    assert time.monotonic() - started < 5


def test_a_server_that_is_no_ringpopd_is_exit_code_4() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3)

        thread = threading.Thread(target=serve)
        thread.start()
        done = run("ringpopctl", "--peer", f"127.0.0.1:{server.getsockname()[1]}", "members")
        thread.join(5)

    assert done.returncode == 4
    assert done.stderr.startswith("ringpopctl: ")
    assert len(done.stderr.splitlines()) == 1


def test_wrong_flags_of_ringpopd_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('["127.0.0.1"]')
    wrong = {
        ("--listen", "127.0.0.1"): "is not HOST:PORT",
        ("--listen", "127.0.0.1:0", "--dialect", "klingon"): "'native' or 'ringpop'",
        ("--listen", "127.0.0.1:0", "--hosts", str(bad)): "entry 0",
        ("--listen", "127.0.0.1:0", "--hosts", str(tmp_path / "none")): "create it",
        ("--listen", "127.0.0.1:0", "--app", "nothing"): "MODULE:FACTORY",
        ("--listen", "127.0.0.1:0", "--app", "no.such:thing"): "cannot import",
        ("--listen", "192.0.2.1:3000"): "192.0.2.1:3000",
        ("--listen", "a..b:3000"): "not a host name",
        ("--listen", "0.0.0.0:0"): "--advertise HOST:PORT",
    }
    for arguments, message in wrong.items():
        done = run("ringpopd", *arguments)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_port_in_use_is_one_line_and_exit_code_2(cluster: LocalCluster) -> None:
    done = run("ringpopd", "--listen", cluster[0].name)

    assert done.returncode == 2
    assert "in use" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_hosts_files_with_nobody_else_start_alone_and_say_why(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 1) as alone:
        alone.wait_converged()
        assert "the only host is this node" in alone[0].log.read_text()
        alone[0].stop()
        alone.hosts_file.write_text("")
        alone[0].start()
        alone.wait_converged()

        assert "no host is listed" in alone[0].log.read_text()


def test_an_application_that_never_ends_its_start_can_be_ended(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(
        "import trio\n\n\nasync def create(ringpop):\n"
        "    print('started', flush=True)\n    await trio.sleep_forever()\n"
    )
    process = subprocess.Popen(
        command_of("ringpopd", "--listen=127.0.0.1:0", "--app=hanging:create"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        process.send_signal(signal.SIGTERM)

        assert process.wait(30) == 0


def test_dev_needs_ports_that_exist() -> None:
    done = run("ringpopd", "dev", "3", "--base-port", "65534")

    assert done.returncode == 2
    assert "--base-port is 0 to 65533" in done.stderr


def test_the_peer_of_the_environment_may_have_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGPOP_PEER", "[fe80::1%eth0]:3000")

    done = run("ringpopctl", "--help")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("with_key", [False, True], ids=["without a key", "with a key"])
def test_dev_starts_kills_and_ends_a_cluster(tmp_path: Path, *, with_key: bool) -> None:
    command = command_of("ringpopd", "dev", "3", "--base-port", "0")
    if with_key:
        key = str(tmp_path / "key")
        assert run("ringpopctl", "keygen", key).returncode == 0
        command += ["--cluster-key", key]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lines.extend, args=(iter(process.stdout.readline, ""),))
    reader.start()
    try:
        wait_until(lambda: any("3 alive" in line for line in lines), 20, "three alive")
        [console] = {line.split()[1] for line in lines if line.startswith("console: ")}
        answer = httpx.get(console, follow_redirects=True, timeout=10)
        assert answer.status_code == (401 if with_key else 200)
        process.stdin.write("2é2k")  # what is no key does nothing
        process.stdin.flush()
        wait_until(lambda: any("killed (9)" in line for line in lines), 20, "killed")
        process.stdin.write("2s")
        process.stdin.flush()
        wait_until(
            lambda: lines[-7:].count("one view\n") > 0 and "killed" not in "".join(lines[-7:]),
            20,
            "back",
        )
        process.stdin.write("3c")
        process.stdin.flush()
        wait_until(lambda: "cut: 1, 2 | 3\n" in lines, 20, "cut")
        cut_at = lines.index("cut: 1, 2 | 3\n")  # more lines may have come behind by now
        wait_until(lambda: "2 alive, 1 faulty" in "".join(lines[cut_at:]), 40, "two sides")
        process.stdin.write("h")
        process.stdin.flush()
        wait_until(lambda: "the network is whole\n" in lines, 20, "whole")
        wait_until(lambda: "".join(lines[-7:]).count("3 alive") == 3, 40, "healed")
        process.stdin.write("q")
        process.stdin.flush()
        assert process.wait(20) == 0
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        reader.join(5)
        process.stdin.close()
        process.stdout.close()


def test_the_nodes_of_dev_end_with_it_even_if_it_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = command_of("ringpopd", "dev", "2", "--base-port", "0")
    with log.open("wb") as sink:
        command += ["--", "--preset", "local"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink)
    try:
        wait_until(lambda: log.read_text().count("2 alive") >= 2, 20, "both alive")
        rows = [line.split() for line in log.read_text().splitlines() if "2 alive" in line]
        pids = {int(row[2]) for row in rows}
        assert len(pids) == 2
    finally:
        process.kill()
        process.wait(20)
        assert process.stdin is not None
        process.stdin.close()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 30, "ended")
