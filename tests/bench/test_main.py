"""`python -m tests.bench` as a person uses it: what is wrong is said at once, and it ends clean."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bench.__main__ import ending_in_order, main
from tests.bench.converge import GOALS_S
from tests.e2e.local_cluster import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("spark", "--parts", "owners,nope"), "--parts: no nope; there are: owners, "),
        (("spark", "--flights-3m", "/nofile"), "--flights-3m: /nofile: No such file or directory"),
        (("spark", "--rows", "0"), "--rows: a whole number, 1 or more, not '0'"),
        (("spark", "--keys", "-1"), "--keys: a whole number, 1 or more, not '-1'"),
        (("spark", "--turns", "0"), "--turns: a whole number, 1 or more, not '0'"),
        (("state", "--parts", "nope"), "--parts: no nope; there are: single, "),
        (("state", "--folder", "/nofolder"), "--folder: /nofolder: no such folder"),
        (("gossip", "--only", "nope"), "--only: no nope; there are: "),
        (("gossip", "--runs", "x"), "--runs: a whole number, 1 or more, not 'x'"),
        (("gossip", "--nodes", "3,x"), "--nodes: a whole number, 1 or more, not 'x'"),
        (("simulator", "--limit", "-1"), "--limit: must be a number of seconds above 0, not '-1'"),
        (("protocol", "--seeds", "0"), "--seeds: a whole number, 1 or more, not '0'"),
    ],
)
def test_arguments_that_cannot_be_measured_are_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("bench: error: argument ")
    assert said in last


@pytest.fixture
def _own_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_own_handler")
def test_an_end_is_one_whatever_error_that_led_to() -> None:
    def fail() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            raise TypeError  # as py4j does

    with pytest.raises(SystemExit) as caught, ending_in_order():
        fail()

    assert caught.value.code == 128 + signal.SIGTERM


@pytest.mark.usefixtures("_own_handler")
def test_an_error_that_no_signal_led_to_is_raised() -> None:
    with pytest.raises(ZeroDivisionError), ending_in_order():
        raise ZeroDivisionError


@pytest.mark.e2e
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="tells children by /proc")
def test_the_processes_of_a_benchmark_end_with_it() -> None:
    command = [sys.executable, "-m", "tests.bench", "converge"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "sim")))}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as bench:
        wait_until(lambda: len(listening(bench.pid)) == min(GOALS_S), 60, "all nodes listen")
        started = listening(bench.pid)

        bench.send_signal(signal.SIGTERM)
        code = bench.wait(30)

    left = [pid for pid in started if has_socket(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert (code, left) == (128 + signal.SIGTERM, [])


def listening(pid: int) -> list[int]:
    """The children of *pid* that have a socket."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split() if has_socket(int(child))]


def has_socket(pid: int) -> bool:
    with suppress(OSError):  # it has ended, or is about to
        return any("socket" in str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir())
    return False
