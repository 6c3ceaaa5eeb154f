"""`edge.cli.ringpopd`: as the first process of a container, which is a PID namespace here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
WAIT_S = 20
# An application whose child leaves an orphan; it says who has got it, and ends.
APPLICATION = """
import subprocess, sys
ORPHAN = '''
import os, time
if os.fork() == 0:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.01)
    with open("orphan.new", "w") as file:
        file.write(f"{os.getppid()} {os.getpid()}")
    os.rename("orphan.new", "orphan")
'''
def create(ringpop):
    subprocess.run([sys.executable, "-c", ORPHAN], check=True)
"""


def _can_unshare() -> bool:
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not _can_unshare(), reason="no PID namespaces here (root on Linux has them)"
    ),
]


@contextmanager
def a_container(folder: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """`unshare`, whose only child is the first process."""
    (folder / "an_application.py").write_text(APPLICATION)
    command = [*UNSHARE, sys.executable, "-P", "-m", "ringpop_py.edge.cli.ringpopd"]
    root = Path(__file__).parents[3]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*command, "--listen=127.0.0.1:0", "--app=an_application:create", *flags],
            cwd=folder,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(root)},
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def children_of(parent: int) -> dict[int, int]:
    """The children of a process, zombies among them, each with its number in the container."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:  # it has ended
            continue
        if int(fields["PPid"]) == parent:
            found[int(status.parent.name)] = int(fields["NSpid"].split()[-1])
    return found


def wait_for_the_orphan(folder: Path, first: int) -> None:
    """Return once the orphan came to the first process, has ended, and is no zombie."""
    said = folder / "orphan"
    wait_until(said.exists, "the orphan has a new parent")
    parent, orphan = map(int, said.read_text().split())
    assert parent == 1
    wait_until(lambda: orphan not in children_of(first).values(), "it leaves no zombie")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def first_of(process: subprocess.Popen[bytes]) -> int:
    wait_until(lambda: bool(children_of(process.pid)), "the first process is there")
    [first] = children_of(process.pid)
    return first


def test_an_orphan_leaves_no_zombie_and_sigterm_ends_the_node_in_good_order(tmp_path: Path) -> None:
    with a_container(tmp_path) as process:
        first = first_of(process)
        wait_for_the_orphan(tmp_path, first)
        os.kill(first, signal.SIGTERM)
        code = process.wait(WAIT_S)

    assert code == 0
    assert "ended" in (tmp_path / "log").read_text().splitlines()[-1]


def test_the_exit_code_is_that_of_the_node(tmp_path: Path) -> None:
    with a_container(tmp_path, "--name=" + "n" * 10_000) as process:
        assert process.wait(WAIT_S) == 2


def test_a_node_that_is_killed_ends_the_container(tmp_path: Path) -> None:
    with a_container(tmp_path) as process:
        first = first_of(process)
        wait_for_the_orphan(tmp_path, first)
        [node] = children_of(first)
        os.kill(node, signal.SIGKILL)

        assert process.wait(WAIT_S) == 128 + signal.SIGKILL
