"""Real daemons that are told to end while they work."""

from __future__ import annotations

import fcntl
import signal
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ApplicationError, CallError, HandlerFailed, RingpopError
from ringpop_py.client.sync.client import Client
from ringpop_py.edge.cli.commands import ExitCode
from ringpop_py.edge.ctl import ringpopctl
from ringpop_py.route.proxy.request import Request
from tests.e2e.local_cluster import LocalCluster, LocalNode, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

APP = ("--preset=local", "--app", "tests.e2e.echo_app:create")


def test_a_log_that_nobody_reads_stops_no_node(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 1, *APP) as cluster:
        (node,) = cluster.nodes
        cluster.wait_converged()
        node.stop()
        with subprocess.Popen(
            node.command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as unread:
            try:
                assert unread.stderr is not None
                fcntl.fcntl(unread.stderr, fcntl.F_SETPIPE_SZ, 4_096)
                wait_until(lambda: cluster.converged(node), 20, "it runs")
                with Client(node.address, timeout_s=5) as client:
                    for _ in range(50):  # each logs a traceback
                        with pytest.raises(HandlerFailed):
                            client.invoke(Request("/bug"))

                unread.send_signal(signal.SIGTERM)

                assert unread.wait(20) == 0
            finally:
                unread.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_need_not_wait_for_a_store_that_does_not_answer(
    tmp_path: Path, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = f"etcd://127.0.0.1:{silent.getsockname()[1]}/x"
        with LocalCluster(tmp_path, 1, "--store", store) as cluster:
            (node,) = cluster.nodes
            asked, _ = silent.accept()
            with asked:  # and nothing is answered
                assert _code_after(node, number) == 0

    assert "Traceback" not in cluster.logs()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_need_not_wait_for_an_application_that_is_imported(
    tmp_path: Path, number: signal.Signals
) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "slow.py").write_text(f"import time\nopen({str(begun)!r}, 'x')\ntime.sleep(50)\n")
    with LocalCluster(tmp_path, 1, "--app", "slow:create", cwd=tmp_path) as cluster:
        (node,) = cluster.nodes
        wait_until(begun.exists, 20, "it is being imported")

        assert _code_after(node, number) == 0

    assert "Traceback" not in cluster.logs()


def _code_after(node: LocalNode, number: signal.Signals) -> int:
    """The exit code of *node* after a signal; within two seconds."""
    node.signal(number)
    assert node.process is not None
    return node.process.wait(2)


class Sleeper(threading.Thread):
    """Calls a handler of *node* that takes so long; *answer* is what came of it."""

    def __init__(self, node: LocalNode, seconds: float) -> None:
        super().__init__()
        self.answer: bytes | RingpopError | None = None
        self._node = node
        self._seconds = seconds

    def run(self) -> None:
        with Client(self._node.address, timeout_s=60) as client:
            try:
                self.answer = client.invoke(Request("/sleep", b"%f" % self._seconds))
            except RingpopError as error:
                self.answer = error


def asleep(node: LocalNode, seconds: float) -> Sleeper:
    """A call that the handler of *node* is at work on."""
    sleeper = Sleeper(node, seconds)
    sleeper.start()
    wait_until(lambda: bool(under_way(node)), 20, "the handler is at work")
    return sleeper


def under_way(node: LocalNode) -> dict[str, int]:
    left: dict[str, int] = node.admin("/admin/member/drain/status")["under_way"]
    return left


def test_a_daemon_that_is_told_to_end_finishes_what_it_does_unless_told_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster(tmp_path, 2, *APP) as cluster:
        cluster.wait_converged()
        first, second = cluster.nodes

        answered = asleep(second, 1.0)
        drain = ["--peer", second.name, "drain", "--end"]
        impatient_code = ringpopctl.main([*drain, "--timeout=0.2"])
        exit_code = ringpopctl.main(drain)
        said = capsys.readouterr().out
        answered.join()
        assert second.process is not None
        second_code = second.process.wait(20)
        cut = asleep(first, 60.0)
        first.signal(signal.SIGTERM)
        wait_until(lambda: "draining" in first.log.read_text(), 20, "it drains")
        with pytest.raises(ApplicationError, match="cannot be undone"):
            first.admin("/admin/member/undrain")
        began = time.monotonic()
        first_code = first.stop()
        took_s = time.monotonic() - began
        cut.join()

    assert answered.answer == second.name.encode()
    assert impatient_code == ExitCode.TIMED_OUT
    assert (exit_code, said) == (0, f"{second.name} still drains\n{second.name} has ended\n")
    assert took_s < 10
    assert (first_code, second_code) == (0, 0)
    assert isinstance(cut.answer, CallError)
    assert cut.answer.took_effect == "unknown"
