"""Processes of nodes, started within milliseconds: forks of one that has imported everything.

Commands come as lines of JSON on standard input, answers go to standard output. All nodes end with
this process, however it ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from ringpop_py.base.address import Address
from tests.e2e.state.node import NodeSettings, run

if TYPE_CHECKING:
    from pathlib import Path

PR_SET_PDEATHSIG = 1
CAPABILITY_VERSION = 0x20080522
CAP_DAC = 0b110
"""The capabilities to read and write whatever the permissions (capabilities(7))."""
END_TIMEOUT_S = 20.0


class NodeProcess:
    """One process of a node, seen from the harness.

    Attributes:
        group: the id of its group, by which its packets are known.
    """

    def __init__(self, nursery: Nursery, pid: int, settings: NodeSettings, group: int) -> None:
        self.settings = settings
        self.group = group
        self.pid = pid
        self._nursery = nursery

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)  # it is a zombie at worst: only `end` takes its number away

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send that signal and wait until the process has ended: its exit code, or minus a signal.

        Who does not end in time is killed.
        """
        self.send(number)
        code = self._nursery.ask({"do": "reap", "pid": self.pid})
        assert isinstance(code, int)
        return code

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return bool(self._nursery.ask({"do": "has-ended", "pid": self.pid}))


class Nursery:
    """Starts nodes; a context manager."""

    def __init__(self, log: Path) -> None:
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.state.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def start(self, settings: NodeSettings, log: Path, group: int) -> NodeProcess:
        plain = asdict(settings)
        pid = self.ask({"do": "start", "settings": plain, "log": str(log), "group": group})
        assert isinstance(pid, int)
        return NodeProcess(self, pid, settings, group)

    def ask(self, command: dict[str, Any]) -> Any:  # noqa: ANN401 - by command
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


# In the process that forks.


def _main() -> None:
    # What each node will want, and mostly takes its time.
    import ringpop_py.state.catalog.checkpoints
    import ringpop_py.state.stores  # noqa: F401

    children: set[int] = set()
    for line in sys.stdin:
        command = json.loads(line)
        match command["do"]:
            case "start":
                answer: Any = _fork(command)
                children.add(answer)
            case "reap":
                answer = _reap(command["pid"])
                children.discard(command["pid"])
            case _:
                info = os.waitid(os.P_PID, command["pid"], os.WEXITED | os.WNOHANG | os.WNOWAIT)
                answer = info is not None
        print(json.dumps(answer), flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(command: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if os.geteuid() == 0:
            os.setgid(command["group"])
            _obey_permissions()
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # that cleared it
        run(_settings(command["settings"]))
        code = 0
    except BaseException:  # noqa: BLE001 - nothing must return to the loop above
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _obey_permissions() -> None:
    """As root, be refused what a folder's permissions do not allow."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    sets[0] &= ~CAP_DAC
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _settings(plain: dict[str, Any]) -> NodeSettings:
    listen = Address(*plain.pop("listen"))
    hosts = tuple(Address(*host) for host in plain.pop("hosts"))
    return NodeSettings(listen=listen, hosts=hosts, **plain)


def _reap(pid: int) -> int:
    """Wait for the end of *pid*, and bring it about in the end."""
    deadline_at = time.monotonic() + END_TIMEOUT_S
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline_at:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


if __name__ == "__main__":
    _main()
