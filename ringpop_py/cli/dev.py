"""``ringpopd dev N``: a cluster on this machine, to look at and to break."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
import tty
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.address import PORT_MAX, Address
from ringpop_py.cli.commands import ExitCode, Parser, complain, table
from ringpop_py.client.client import Client
from ringpop_py.errors import ApplicationError, CallError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


NODES_MAX: Final = 100
REFRESH_S: Final = 0.5
ASK_TIMEOUT_S: Final = 0.4
END_TIMEOUT_S: Final = 5.0

KEYS: Final = """\
keys: a number and then k kill -9, p pause, r resume, s start again, t end gracefully (SIGTERM);
      q quit. Without a terminal: the same as lines, for example `2k`; the end of input quits."""


@dataclass(slots=True)
class DevNode:
    """One node of the development cluster."""

    number: int
    address: Address
    log: Path
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False
    checksum: int | None = None
    view: str = ""

    @property
    def state(self) -> str:
        """What its process is doing."""
        if self.process is None:
            return "not started"
        code = self.process.poll()
        if code is not None:
            return f"killed ({-code})" if code < 0 else f"ended ({code})"
        return "paused" if self.paused else "running"

    @property
    def running(self) -> bool:
        """Whether its process exists."""
        return self.process is not None and self.process.poll() is None


class DevCluster:
    """The processes, and what can be done to them."""

    def __init__(self, addresses: Sequence[Address], folder: Path, flags: Sequence[str]) -> None:
        self.nodes = [
            DevNode(number, address, folder / f"node{number}.log")
            for number, address in enumerate(addresses, start=1)
        ]
        self.folder = folder
        self._flags = list(flags)
        self._hosts = folder / "hosts.txt"
        self._hosts.write_text("".join(f"{address}\n" for address in addresses))

    def start(self, node: DevNode) -> None:
        """Start the process of *node*, unless it runs."""
        if node.running:
            return
        command = [sys.executable, "-m", "ringpop_py.cli.ringpopd", "--listen", str(node.address)]
        command += ["--hosts", str(self._hosts), *self._flags]
        with node.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is for us, and we end them in order.
            node.process = subprocess.Popen(  # noqa: S603 - our own module
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        node.paused = False

    def do(self, action: str, node: DevNode) -> str:
        """Carry out one key; what was done, in words."""
        if action == "s":
            self.start(node)
            return f"node {node.number} started"
        if not node.running or node.process is None:
            return f"node {node.number} does not run; {node.number}s starts it"
        signals = {
            "k": (signal.SIGKILL, "killed"),
            "p": (signal.SIGSTOP, "paused"),
            "r": (signal.SIGCONT, "resumed"),
            "t": (signal.SIGTERM, "told to end"),
        }
        number, done = signals[action]
        node.process.send_signal(number)
        node.paused = action == "p" or (node.paused and action == "t")
        return f"node {node.number} {done}"

    def ask_all(self) -> None:
        """Refresh what each node says of the cluster."""
        for node in self.nodes:
            node.checksum, node.view = None, ""
            if not node.running or node.paused:
                continue
            try:
                with Client(node.address, timeout_s=ASK_TIMEOUT_S) as client:
                    value = client.admin("/admin/members")
            except (CallError, ApplicationError):
                node.view = "does not answer"
                continue
            counts = Counter(member["status"] for member in value["members"])
            node.checksum = value["checksum"]
            node.view = ", ".join(f"{count} {status}" for status, count in counts.items())

    def table(self) -> str:
        """The cluster at a look."""
        groups = sorted({node.checksum for node in self.nodes if node.checksum is not None})
        letters = {checksum: chr(ord("A") + i % 26) for i, checksum in enumerate(groups)}
        rows = [
            (
                node.number,
                node.address,
                node.process.pid if node.process is not None else "",
                node.state,
                letters[node.checksum] if node.checksum is not None else "",
                node.view,
            )
            for node in self.nodes
        ]
        agreement = "one view" if len(groups) == 1 else f"{len(groups)} different views"
        return f"{table(('#', 'ADDRESS', 'PID', 'STATE', 'VIEW', 'SEES'), rows)}\n{agreement}"

    def end(self) -> None:
        """End all processes by their own pids: first kindly, all at once."""
        alive = [node.process for node in self.nodes if node.running and node.process is not None]
        for process in alive:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + END_TIMEOUT_S
        for process in alive:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main(argv: Sequence[str]) -> int:
    """Run ``ringpopd dev``; see ``--help``."""
    parser = Parser(
        prog="ringpopd dev",
        description="Start N nodes on 127.0.0.1 and show what they see.",
        epilog=KEYS + "\nFlags after -- go to each node, for example -- --app myapp:create.",
    )
    parser.add_argument("nodes", type=int, metavar="N", help=f"how many nodes (1 to {NODES_MAX})")
    text = "the first (3000); 0: free ones"
    parser.add_argument("--base-port", type=int, default=3000, metavar="PORT", help=text)
    text = "where durable keyspaces live, see ringpopd --help (a folder, for this once)"
    parser.add_argument("--store", metavar="URL|FOLDER", help=text)
    split = list(argv).index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:split])
    if not 1 <= options.nodes <= NODES_MAX:
        parser.error(f"N is 1 to {NODES_MAX}, not {options.nodes}")
    base_port_max = PORT_MAX + 1 - options.nodes
    if not 0 <= options.base_port <= base_port_max:
        parser.error(f"--base-port is 0 to {base_port_max} for {options.nodes} nodes")
    try:
        addresses = _addresses(options.nodes, options.base_port)
    except OSError as error:
        complain(
            f"ringpopd dev: ports {options.base_port} to {options.base_port + options.nodes - 1} "
            f"are not all free ({error.strerror}): choose another --base-port, or 0"
        )
        return ExitCode.USAGE
    folder = Path(tempfile.mkdtemp(prefix="ringpop-dev-"))
    flags = list(argv[split + 1 :])
    # Without pyarrow, there are keyspaces only if somebody asks for them.
    if options.store is not None or find_spec("pyarrow") is not None:
        # Before the others, which may name another store, or a file that does: the last flag wins.
        store = str(folder / "store") if options.store is None else options.store
        flags = ["--store", store, *flags]
    cluster = DevCluster(addresses, folder, flags)
    try:
        trio.run(_watch, cluster)
    except KeyboardInterrupt:
        pass
    finally:
        cluster.end()
        failed = [n for n in cluster.nodes if n.process and (n.process.returncode or 0) > 0]
        for node in failed:
            complain(f"node {node.number} failed; its log: {node.log}")
        if not failed:
            shutil.rmtree(folder, ignore_errors=True)
    return ExitCode.FAILED if failed else ExitCode.OK


def _addresses(count: int, base_port: int) -> list[Address]:
    """Loopback addresses that are free at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for index, sock in enumerate(sockets):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", base_port + index if base_port else 0))
        return [Address("127.0.0.1", sock.getsockname()[1]) for sock in sockets]


async def _watch(cluster: DevCluster) -> None:
    screen = sys.stdin.isatty() and sys.stdout.isatty()
    with _single_keys() if screen else ExitStack():
        async with trio.open_nursery() as nursery:
            await nursery.start(_end_on_signal, nursery.cancel_scope)
            # Only now: whoever ends us while they start must end them, too.
            for node in cluster.nodes:
                cluster.start(node)
            nursery.start_soon(_read_keys, cluster, nursery.cancel_scope, screen)
            shown = ""
            while True:
                await trio.to_thread.run_sync(cluster.ask_all, abandon_on_cancel=True)
                text = cluster.table()
                if screen:
                    print(f"\x1b[2J\x1b[H{text}\n\n{KEYS}\nlogs: {cluster.folder}", flush=True)
                elif text != shown:
                    print(f"{text}\n", flush=True)
                    shown = text
                await trio.sleep(REFRESH_S)


async def _end_on_signal(
    scope: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            return


async def _read_keys(cluster: DevCluster, scope: trio.CancelScope, screen: bool) -> None:  # noqa: FBT001 - for start_soon
    digits = ""
    stdin = sys.stdin.fileno()
    while True:
        data = await trio.to_thread.run_sync(os.read, stdin, 1, abandon_on_cancel=True)
        key = data.decode("ascii", "ignore")
        if not data or key == "q":
            scope.cancel()
            return
        if key.isdigit():
            digits = (digits + key)[-3:]
        elif key and key in "kprst" and digits:
            number, digits = int(digits), ""
            known = 1 <= number <= len(cluster.nodes)
            said = cluster.do(key, cluster.nodes[number - 1]) if known else f"no node {number}"
            if not screen:
                print(said, flush=True)
        elif not key.isspace():
            digits = ""
            if not screen:
                print(f"{key!r} is no key here\n{KEYS}", flush=True)


@contextmanager
def _single_keys() -> Iterator[None]:
    """Give keys as they are pressed, without echo, and put the terminal back."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
