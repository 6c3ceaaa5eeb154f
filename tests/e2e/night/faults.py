"""A cluster under load at which one fault at a time is made, as an operator meets them at night."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Final, Self

from ringpop_py.base.address import Address
from ringpop_py.client.lines.trust import KEY_VARIABLE
from ringpop_py.net.security.authority import bundle_of
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.keys import new_key, read_keys, write_keys, write_secret
from ringpop_py.net.security.revocations import NOTHING
from tests.e2e.local_cluster import END_TIMEOUT_S, LocalNode, wait_until
from tests.e2e.night.hosts import Hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NODES: Final = 5
VICTIM: Final = 2
"""The place of the node that the faults meet; the first node is the one that is asked."""
PORT: Final = 3000
SEEN_WITHIN_S: Final = 15.0
EXPIRES_S: Final = 12
AHEAD_S: Final = 60
KEYSPACE: Final = "carts"
DATA: Final = 500
CLOCK: Final = f"""
import sys, time
true_time = time.time
time.time = lambda: true_time() + {AHEAD_S}
from ringpop_py.edge.cli.ringpopd import main
sys.exit(main())
"""
WRITER: Final = f"""
import contextlib, itertools, pathlib, sys, time
from ringpop_py import Client, KeyspaceClient, RingpopError
numbers = itertools.count(1)
while True:
    with contextlib.suppress(RingpopError), Client(sys.argv[1], timeout_s=2.0) as client, \\
            KeyspaceClient(client, {KEYSPACE!r}) as carts:
        for number in numbers:
            with contextlib.suppress(RingpopError):
                carts.put(f"cart-{{number % {DATA}}}", [number])
            if number == {DATA}:
                pathlib.Path(sys.argv[2]).touch()
            time.sleep(0.01)
"""
APPLICATION: Final = """
import http.server
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 8080), Answers)
print("up", flush=True)
server.serve_forever()
"""


class Stand:
    """Five nodes with keys, a keyspace, an application beside one of them, and somebody who writes.

    Each node has a host of its own, and a mount namespace, so that its store alone can turn
    read-only. A context manager.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.key = folder / "store", folder / "cluster.key"
        self.hosts = Hosts(NODES + 1)
        self.nodes: list[LocalNode] = []
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as ends:
            self.store.mkdir(parents=True)
            write_keys(self.key, (new_key(),), replace=False)
            names = [f"{self.hosts.address(place)}:{PORT}\n" for place in range(NODES)]
            (self.folder / "hosts.txt").write_text("".join(names))
            ends.enter_context(self.hosts)
            self.application = self._program(ends, VICTIM, APPLICATION)
            for place in range(NODES):
                self.nodes.append(self.node(place))
                ends.callback(self.nodes[place].close)
                self.nodes[place].start()
            self._ctl("wait", "--for", "partitions", "--members", str(NODES), "--timeout", "60")
            self._ctl("keyspace", "create", KEYSPACE, "--partitions", "40")
            self._ctl("wait", "--for", "partitions", "--timeout", "60")
            written = self.folder / "written"
            self._program(ends, 0, WRITER, self.nodes[0].name, str(written))
            wait_until(written.exists, 60.0, "data are written")
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ends.close()

    def node(self, place: int, *, key: Path | None = None, clock: bool = False) -> LocalNode:
        """Return the node at *place*, or one that is to take its place."""
        address = Address(self.hosts.address(place), PORT)
        bind = f'mount --bind {self.store} {self.store} && exec "$@"'
        runs = ["-c", CLOCK] if clock else ["-m", "ringpop_py.edge.cli.ringpopd"]
        application = ["--app-url", "http://127.0.0.1:8080"] if place == VICTIM else []
        command = [
            *(*self.hosts.within(place), "unshare", "--mount", "sh", "-c", bind, "sh"),
            *(sys.executable, "-P", *runs, "--listen", str(address), "--preset", "local"),
            *("--hosts", str(self.folder / "hosts.txt"), "--expect", str(NODES)),
            *("--store", str(self.store), "--create-store"),
            *("--cluster-key", str(key or self.key), *application),
        ]
        return LocalNode(address, self.folder / f"node{place}.log", command)

    def replace(self, node: LocalNode) -> None:
        """Let *node* take the victim's place."""
        self.victim.stop()
        self.nodes[VICTIM] = node
        self._ends.callback(node.close)
        node.start()

    @property
    def victim(self) -> LocalNode:
        return self.nodes[VICTIM]

    @property
    def pid(self) -> str:
        assert self.victim.process is not None
        return str(self.victim.process.pid)

    def check(self) -> list[str]:
        """Return the lines of `ringpopctl check`."""
        done = self._ctl("check")
        return (done.stdout or done.stderr).splitlines()

    def _ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "ringpop_py.edge.ctl.ringpopctl"]
        return subprocess.run(
            [*self.hosts.within(0), *command, "--peer", self.nodes[0].name, *words],
            env={**os.environ, KEY_VARIABLE: str(self.key)},
            text=True,
            capture_output=True,
            timeout=90,
            check=False,
        )

    def _program(
        self, ends: contextlib.ExitStack, place: int, code: str, *arguments: str
    ) -> subprocess.Popen[str]:
        """Return a program that runs on the host *place*, until *ends*."""
        process = subprocess.Popen(
            [*self.hosts.within(place), sys.executable, "-c", code, *arguments],
            env={**os.environ, KEY_VARIABLE: str(self.key)},
            stdout=subprocess.PIPE,
            text=True,
        )
        ends.callback(process.wait, END_TIMEOUT_S)
        ends.callback(process.kill)
        assert process.stdout is not None
        ends.callback(process.stdout.close)
        if code is APPLICATION:
            assert process.stdout.readline() == "up\n"
        return process


# The faults: each is made at the beginning of its block; the stand ends after it.


@contextlib.contextmanager
def killed(stand: Stand) -> Iterator[None]:
    """A process is killed."""
    stand.victim.kill()
    yield


@contextlib.contextmanager
def cut(stand: Stand) -> Iterator[None]:
    """Nothing goes out of a host, and nothing comes in."""
    stand.hosts.drop(VICTIM, "in")
    stand.hosts.drop(VICTIM, "out")
    yield


@contextlib.contextmanager
def cut_one_way(stand: Stand) -> Iterator[None]:
    """What one host sends to another one is dropped; others reach both."""
    stand.hosts.drop(VICTIM, "out", f"ip daddr {stand.hosts.address(VICTIM + 1)}")
    yield


@contextlib.contextmanager
def loss(stand: Stand) -> Iterator[None]:
    """30 % of the packets of one host are lost, those to it and those from it."""
    stand.hosts.drop(VICTIM, "in", "numgen random mod 100 < 30")
    stand.hosts.drop(VICTIM, "out", "numgen random mod 100 < 30")
    yield


@contextlib.contextmanager
def pause(stand: Stand) -> Iterator[None]:
    """A process stands still."""
    stand.victim.signal(signal.SIGSTOP)
    yield


@contextlib.contextmanager
def starvation(stand: Stand) -> Iterator[None]:
    """A process runs for a fifth of the time."""
    fed = threading.Event()

    def starve() -> None:
        while not fed.is_set():
            stand.victim.signal(signal.SIGSTOP)
            time.sleep(0.2)
            stand.victim.signal(signal.SIGCONT)
            time.sleep(0.05)

    thread = threading.Thread(target=starve)
    thread.start()
    try:
        yield
    finally:
        fed.set()
        thread.join()


@contextlib.contextmanager
def full(stand: Stand) -> Iterator[None]:
    """A node can write nothing more: a limit on the size of files stands for a full disk."""
    subprocess.run(["prlimit", "--pid", stand.pid, "--fsize=0:"], check=True)
    yield


@contextlib.contextmanager
def read_only(stand: Stand) -> Iterator[None]:
    """The store of one node turns read-only."""
    within = ["nsenter", "--mount", "--target", stand.pid]
    subprocess.run([*within, "mount", "-o", "remount,bind,ro", str(stand.store)], check=True)
    yield


@contextlib.contextmanager
def deleted_store(stand: Stand) -> Iterator[None]:
    """All that is in the store is deleted."""
    gone = stand.folder / "gone"
    gone.mkdir()
    for each in list(stand.store.iterdir()):  # moved first, as nodes write into it meanwhile
        each.rename(gone / each.name)
    shutil.rmtree(gone)
    yield


@contextlib.contextmanager
def clock(stand: Stand) -> Iterator[None]:
    """The clock of one node is a minute ahead."""
    stand.replace(stand.node(VICTIM, clock=True))
    yield


@contextlib.contextmanager
def damaged_object(stand: Stand) -> Iterator[None]:
    """Objects in the store are damaged, and a node crashes: others have to read its journal."""
    for path in [p for p in stand.store.rglob("*") if p.is_file() and "j" in p.parts]:
        with contextlib.suppress(FileNotFoundError):  # nodes write and delete meanwhile
            path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    stand.victim.kill()
    stand.victim.start()
    yield


@contextlib.contextmanager
def expired_certificate(stand: Stand) -> Iterator[None]:
    """A node has a certificate in place of a key, and it expires."""
    bundle = stand.folder / "short.pem"
    identity = Identity("default", Role.MEMBER, stand.victim.name)
    lasts = dt.timedelta(seconds=EXPIRES_S)
    write_secret(bundle, bundle_of(read_keys(stand.key), identity, lasts, NOTHING), replace=False)
    until = time.monotonic() + EXPIRES_S
    stand.replace(stand.node(VICTIM, key=bundle))
    wait_until(lambda: time.monotonic() > until, EXPIRES_S + 1, "expired")
    yield


@contextlib.contextmanager
def dead_application(stand: Stand) -> Iterator[None]:
    """The application beside a node is killed."""
    stand.application.kill()
    yield


@contextlib.contextmanager
def wrong_key(stand: Stand) -> Iterator[None]:
    """A further node comes with another key."""
    other = stand.folder / "other.key"
    write_keys(other, (new_key(),), replace=False)
    stranger = stand.node(NODES, key=other)
    stranger.start()
    try:
        yield
    finally:
        stranger.close()


FAULTS: Final[dict[str, tuple[Callable[[Stand], contextlib.AbstractContextManager[None]], str]]] = {
    "killed": (killed, r"{victim} is gone"),
    "cut": (cut, r"{victim} is out of reach"),
    "cut-one-way": (cut_one_way, r"paths are cut, though others reach both ends: .*{victim}"),
    "loss": (loss, r"\d+% of the pings to and from {victim} are late or lost"),
    "pause": (pause, r"{victim} stands still"),
    "starvation": (starvation, r"{victim} is starved"),
    "full": (full, r"the store is full, for {victim}"),
    "read-only": (read_only, r"the store refuses writes, for {victim}"),
    "deleted-store": (deleted_store, r"the store is gone, for "),
    "clock": (clock, r"the clock of {victim} is (59|60|61)\.\d s ahead"),
    "damaged-object": (damaged_object, r"damaged in carts"),
    "expired-certificate": (expired_certificate, r"{victim} .*certificate.*expired"),
    "dead-application": (dead_application, r"the application beside {victim} is away"),
    "wrong-key": (wrong_key, r"a process at {stranger} is refused by .*key"),
}
"""Each fault, and the first line of `check` that names it."""
