"""A cluster under load at which one fault at a time is made, as an operator meets them at night.

Each node has a group of its own, by which nftables knows its packets, and a mount namespace, so
that its store alone can turn read-only. That takes root.
"""

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

from ringpop_py import Client, KeyspaceClient, RingpopError
from ringpop_py.client.lines.trust import KEY_VARIABLE
from ringpop_py.net.security.authority import bundle_of
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.keys import new_key, read_keys, write_keys, write_secret
from ringpop_py.net.security.revocations import NOTHING
from tests.e2e.local_cluster import END_TIMEOUT_S, LocalNode, free_addresses, wait_until
from tests.e2e.state.network import Cuts, why_no_cuts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NODES: Final = 5
VICTIM: Final = 2
"""The place of the node that the faults meet; the first node is the one that is asked."""
SEEN_WITHIN_S: Final = 15.0
EXPIRES_S: Final = 12
AHEAD_S: Final = 60
KEYSPACE: Final = "carts"
CLOCK: Final = f"""
import sys, time
true_time = time.time
time.time = lambda: true_time() + {AHEAD_S}
from ringpop_py.edge.cli.ringpopd import main
sys.exit(main())
"""


def why_not() -> str | None:
    """Return why the faults cannot be made here; None if they can."""
    for tool in ("unshare", "nsenter", "mount", "prlimit"):
        if shutil.which(tool) is None:
            return f"faults take {tool}"
    return why_no_cuts()


class Stand:
    """Five nodes with keys, a keyspace, an application beside one of them, and somebody who writes.

    A context manager.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.key = folder / "store", folder / "cluster.key"
        self.group = 200_000 + os.getpid() % 100_000 * 8
        self._ends = contextlib.ExitStack()
        self._writes = threading.Event()

    def __enter__(self) -> Self:
        self.store.mkdir(parents=True)
        self.folder.chmod(0o755)
        write_keys(self.key, (new_key(),), replace=False)
        addresses = free_addresses(NODES)
        (self.folder / "hosts.txt").write_text("".join(f"{each}\n" for each in addresses))
        self.cuts = self._ends.enter_context(Cuts())
        self.application = Application()
        self._ends.callback(self.application.close)
        self.nodes = [self._node(place, address) for place, address in enumerate(addresses)]
        for node in self.nodes:
            self._ends.callback(node.close)
            node.start()
        os.environ[KEY_VARIABLE] = str(self.key)
        self._ends.callback(os.environ.pop, KEY_VARIABLE, None)
        self.ctl("wait", "--for", "partitions", "--members", str(NODES), "--timeout", "60")
        self.ctl("keyspace", "create", KEYSPACE, "--partitions", "40")
        self.ctl("wait", "--for", "partitions", "--timeout", "60")
        writer = threading.Thread(target=self._write)
        writer.start()
        self._ends.callback(writer.join)
        self._ends.callback(self._writes.set)
        return self

    def __exit__(self, *_error: object) -> None:
        self._ends.close()

    def _node(self, place: int, address: object) -> LocalNode:
        log = self.folder / f"node{place}.log"
        return LocalNode(address, log, self.command(place, address))  # type: ignore[arg-type]

    def command(
        self, place: int, address: object, *, key: Path | None = None, clock: bool = False
    ) -> list[str]:
        """Return the command of the node at *place*."""
        bind = f"mount --bind {self.store} {self.store}"
        group = f"setpriv --regid {self.group + place} --clear-groups"
        runs = ["-c", CLOCK] if clock else ["-m", "ringpop_py.edge.cli.ringpopd"]
        application = ["--app-url", self.application.url] if place == VICTIM else []
        return [
            *("unshare", "--mount", "sh", "-c", f'{bind} && exec {group} "$@"', "sh"),
            *(sys.executable, "-P", *runs, "--listen", str(address)),
            *("--hosts", str(self.folder / "hosts.txt"), "--preset", "local"),
            *("--store", str(self.store), "--create-store", "--expect", str(NODES)),
            *("--cluster-key", str(key or self.key), *application),
        ]

    @property
    def victim(self) -> LocalNode:
        return self.nodes[VICTIM]

    @property
    def pid(self) -> int:
        assert self.victim.process is not None
        return self.victim.process.pid

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Return how a command to the first node ended."""
        command = [sys.executable, "-P", "-m", "ringpop_py.edge.ctl.ringpopctl"]
        return subprocess.run(
            [*command, "--peer", self.nodes[0].name, *words],
            text=True,
            capture_output=True,
            timeout=90,
            check=False,
        )

    def check(self) -> list[str]:
        """Return the lines of `ringpopctl check`."""
        done = self.ctl("check")
        return (done.stdout or done.stderr).splitlines()

    def _write(self) -> None:
        """Write to all partitions, whatever becomes of it, until the end."""
        number = 0
        while not self._writes.is_set():
            with (
                contextlib.suppress(RingpopError),
                Client(self.nodes[0].name, timeout_s=2.0) as client,
                KeyspaceClient(client, KEYSPACE) as carts,
            ):
                while not self._writes.wait(0.01):
                    number += 1
                    with contextlib.suppress(RingpopError):
                        carts.put(f"cart-{number % 500}", [number])


class Application:
    """A web application that answers; it can be killed."""

    def __init__(self) -> None:
        code = (
            "import http.server as h\n"
            "class A(h.BaseHTTPRequestHandler):\n"
            "    do_GET = lambda s: (s.send_response(200), s.end_headers())\n"
            "    log_message = lambda *_: None\n"
            "s = h.HTTPServer(('127.0.0.1', 0), A)\n"
            "print(s.server_port, flush=True)\n"
            "s.serve_forever()\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait(END_TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


# The faults: each is made, and mended at the end of its block.


@contextlib.contextmanager
def cut_one_way(stand: Stand) -> Iterator[None]:
    """What one node sends to another one is dropped; others reach both."""
    other = stand.nodes[VICTIM + 1].address.port
    with dropping(stand, [f"meta skgid {stand.group + VICTIM} tcp dport {other} drop"]):
        yield


@contextlib.contextmanager
def loss(stand: Stand) -> Iterator[None]:
    """30 % of the packets of one node are lost, to it and from it."""
    lost = "numgen random mod 100 < 30 drop"
    mine = f"meta skgid {stand.group + VICTIM} {lost}"
    with dropping(stand, [mine, f"tcp dport {stand.victim.address.port} {lost}"]):
        yield


@contextlib.contextmanager
def dropping(stand: Stand, rules: list[str]) -> Iterator[None]:
    stand.cuts.rules(rules)
    try:
        yield
    finally:
        stand.cuts.rules([])


@contextlib.contextmanager
def cut(stand: Stand) -> Iterator[None]:
    """Nothing that one node sends arrives."""
    with dropping(stand, [f"meta skgid {stand.group + VICTIM} drop"]):
        yield


@contextlib.contextmanager
def killed(stand: Stand) -> Iterator[None]:
    """A process is killed."""
    stand.victim.kill()
    yield
    stand.victim.start()


@contextlib.contextmanager
def pause(stand: Stand) -> Iterator[None]:
    """A process stands still."""
    stand.victim.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        stand.victim.signal(signal.SIGCONT)


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
    """One node can write nothing more: a limit on the size of files stands for a full disk."""
    limit = ["setpriv", "--regid", str(stand.group + VICTIM), "--clear-groups", "prlimit"]
    subprocess.run([*limit, "--pid", str(stand.pid), "--fsize=0:"], check=True)
    try:
        yield
    finally:
        subprocess.run([*limit, "--pid", str(stand.pid), "--fsize=unlimited:"], check=True)


@contextlib.contextmanager
def read_only(stand: Stand) -> Iterator[None]:
    """The store of one node turns read-only."""
    within = ["nsenter", "--mount", "--target", str(stand.pid), "mount", "-o"]
    subprocess.run([*within, "remount,bind,ro", str(stand.store)], check=True)
    try:
        yield
    finally:
        subprocess.run([*within, "remount,bind,rw", str(stand.store)], check=True)


@contextlib.contextmanager
def deleted_store(stand: Stand) -> Iterator[None]:
    """What is in the store is moved away, for all nodes."""
    aside = stand.folder / "aside"
    aside.mkdir()
    for each in list(stand.store.iterdir()):
        each.rename(aside / each.name)
    try:
        yield
    finally:
        for new in list(stand.store.iterdir()):
            shutil.rmtree(new) if new.is_dir() else new.unlink()
        for each in list(aside.iterdir()):
            each.rename(stand.store / each.name)


@contextlib.contextmanager
def clock(stand: Stand) -> Iterator[None]:
    """The clock of one node is a minute ahead."""
    usual = stand.victim.command
    stand.victim.stop()
    stand.victim.command = stand.command(VICTIM, stand.victim.address, clock=True)
    stand.victim.start()
    yield
    stand.victim.stop()
    stand.victim.command = usual
    stand.victim.start()


@contextlib.contextmanager
def damaged_object(stand: Stand) -> Iterator[None]:
    """Objects in the store are damaged, and a node crashes: others have to read them."""
    stand.ctl("checkpoint", "now", KEYSPACE)
    stand.victim.kill()
    saved = {}
    for path in [p for p in stand.store.rglob("*") if p.is_file() and "checkpoints" in p.parts]:
        saved[path] = path.read_bytes()
        path.write_bytes(saved[path][:-8] + bytes(8))
    stand.victim.start()
    yield
    for path, content in saved.items():
        if path.exists():
            path.write_bytes(content)


@contextlib.contextmanager
def expired_certificate(stand: Stand) -> Iterator[None]:
    """A node has a certificate in place of a key, and it expires."""
    usual, bundle = stand.victim.command, stand.folder / "short.pem"
    identity = Identity("default", Role.MEMBER, stand.victim.name)
    stand.victim.stop()
    lasts = dt.timedelta(seconds=EXPIRES_S)
    write_secret(bundle, bundle_of(read_keys(stand.key), identity, lasts, NOTHING), replace=False)
    until = time.monotonic() + EXPIRES_S
    stand.victim.command = stand.command(VICTIM, stand.victim.address, key=bundle)
    stand.victim.start()
    wait_until(lambda: time.monotonic() > until, EXPIRES_S + 1, "expired")
    yield
    stand.victim.kill()
    stand.victim.command = usual
    stand.victim.start()


@contextlib.contextmanager
def dead_application(stand: Stand) -> Iterator[None]:
    """The application beside a node is killed."""
    stand.application.process.kill()
    yield


@contextlib.contextmanager
def wrong_key(stand: Stand) -> Iterator[None]:
    """A further node comes with another key."""
    other = stand.folder / "other.key"
    write_keys(other, (new_key(),), replace=False)
    [address] = free_addresses(1)
    log = stand.folder / "stranger.log"
    stranger = LocalNode(address, log, stand.command(NODES, address, key=other))
    stranger.start()
    try:
        yield
    finally:
        stranger.close()
        other.unlink()


FAULTS: Final[dict[str, tuple[Callable[[Stand], contextlib.AbstractContextManager[None]], str]]] = {
    "killed": (killed, r"CRITICAL|WARNING: {victim} is gone"),
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
    "wrong-key": (wrong_key, r"is refused by .*not of a key that is trusted"),
}
"""Each fault, and the first line of `check` that names it."""
