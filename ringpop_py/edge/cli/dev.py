"""``ringpopd dev N``: a cluster on this machine, to watch and to break."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tty
import webbrowser
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.address import PORT_MAX, Address
from ringpop_py.base.errors import ApplicationError, CallError
from ringpop_py.client.lines.trust import KEY_VARIABLE
from ringpop_py.client.sync.client import Client
from ringpop_py.edge.cli.commands import ExitCode, Parser, complain, table
from ringpop_py.member.swim.member import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


NODES_MAX: Final = 100
REFRESH_S: Final = 0.5
SIGNALS: Final = {
    "k": (signal.SIGKILL, "killed"),
    "p": (signal.SIGSTOP, "paused"),
    "r": (signal.SIGCONT, "resumed"),
    "t": (signal.SIGTERM, "ending"),
}
ASK_TIMEOUT_S: Final = 0.4  # a node that hangs must not hold up the table for long
END_TIMEOUT_S: Final = 5.0

HTTP_NEEDS: Final = ("hypercorn", "starlette", "jinja2", "prometheus_client")
OPEN_TRIES: Final = 60
KEYS: Final = """\
keys: a node's number, then k kill -9, p pause, r resume, s start again, t end gracefully
      (SIGTERM), c to the other side of a cut of the network, or back; h heal the cut; q quit.
      Without a terminal: lines such as `2k`; the end of input quits. Clients and stores reach
      both sides of a cut."""


def counted(statuses: Iterable[str]) -> str:
    """Return how many members have each status, in the order of `Status`."""
    counts = Counter(statuses)
    return ", ".join(f"{counts[one.label]} {one.label}" for one in Status if counts[one.label])


@dataclass(slots=True)
class DevNode:
    """One node of the development cluster."""

    number: int
    address: Address
    log: Path
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False
    cut: bool = False
    checksum: int | None = None
    view: str = ""

    @property
    def state(self) -> str:
        """What the node's process is doing."""
        if self.process is None:
            return "not started"
        code = self.process.poll()
        if code is not None:
            return f"killed ({-code})" if code < 0 else f"ended ({code})"
        return ("paused" if self.paused else "running") + (", cut off" if self.cut else "")

    def tell(self, away: Sequence[Address]) -> None:
        """Cut the node off from exactly the addresses *away*."""
        if self.running is not None:
            assert self.running.stdin is not None
            with suppress(OSError):  # it has just ended
                self.running.stdin.write(" ".join(map(str, away)).encode() + b"\n")
                self.running.stdin.flush()

    @property
    def running(self) -> subprocess.Popen[bytes] | None:
        """The node's process, while it exists."""
        return self.process if self.process is not None and self.process.poll() is None else None


class DevCluster:
    """The nodes of the cluster, as processes of this machine."""

    def __init__(
        self,
        addresses: Sequence[Address],
        folder: Path,
        flags: Sequence[str],
        *,
        shuffles: bool = False,
        http: Address | None = None,
    ) -> None:
        self.nodes = [
            DevNode(number, address, folder / f"node{number}.log")
            for number, address in enumerate(addresses, start=1)
        ]
        self.folder = folder
        self.said = ""  # the answer to the last key
        self._flags = list(flags)
        self._shuffles = shuffles
        self.http = http
        self._hosts = folder / "hosts.txt"
        self._hosts.write_text("".join(f"{address}\n" for address in addresses))

    def start(self, node: DevNode) -> None:
        """Start the process of *node* unless it is running."""
        if node.running:
            return
        command = [
            sys.executable,
            "-m",
            "ringpop_py.edge.cli.devnode",
            "--listen",
            str(node.address),
        ]
        command += ["--hosts", str(self._hosts), *self._flags]
        if self.http is not None and node is self.nodes[0]:
            command += ["--http", str(self.http)]
        if self._shuffles:
            command += ["--shuffle-folder", str(self.folder / f"shuffles{node.number}")]
        with node.log.open("ab") as log:
            # In a session of its own it gets no Ctrl-C from the terminal: `end` ends the nodes.
            node.process = subprocess.Popen(  # noqa: S603 - our own module
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        node.paused = False
        self._tell()

    def do(self, action: str, node: DevNode) -> str:
        """Carry out the key *action*; return what was done, in words."""
        if action == "s":
            self.start(node)
            return f"node {node.number} started"
        if action == "c":
            node.cut = not node.cut
            return self._tell()
        process = node.running
        if process is None:
            return f"node {node.number} is not running; {node.number}s starts it"
        number, done = SIGNALS[action]
        process.send_signal(number)
        node.paused = action == "p" or (node.paused and action == "t")  # SIGTERM wakes none up
        return f"node {node.number} {done}"

    def heal(self) -> str:
        """End the cut; return what was done, in words."""
        for node in self.nodes:
            node.cut = False
        return self._tell()

    def _tell(self) -> str:
        """Tell all nodes which addresses they are cut off from; return that in words."""
        here = [node for node in self.nodes if not node.cut]
        away = [node for node in self.nodes if node.cut]
        for node in self.nodes:
            node.tell([other.address for other in (here if node.cut else away)])
        sides = (", ".join(str(node.number) for node in side) for side in (here, away))
        return f"cut: {' | '.join(sides)}" if here and away else "the network is whole"

    def ask_all(self) -> None:
        """Ask each node for its view of the cluster."""
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
            node.checksum = value["checksum"]
            node.view = counted(member["status"] for member in value["members"])

    def table(self) -> str:
        """Return a line for each node, and whether all have the same view."""
        found = [node.checksum for node in self.nodes if node.checksum is not None]
        groups = [*dict.fromkeys(found)]  # in the order of the nodes: letters stay
        letters = {checksum: chr(ord("A") + i % 26) for i, checksum in enumerate(groups)}
        rows = []
        for node in self.nodes:
            pid = node.process.pid if node.process is not None else ""
            letter = letters[node.checksum] if node.checksum is not None else ""
            rows.append((node.number, node.address, pid, node.state, letter, node.view))
        agreement = "one view" if len(groups) == 1 else f"{len(groups)} different views"
        if self.http is not None:
            agreement += f"\nconsole: http://{self.http}/"
        return f"{table(('#', 'ADDRESS', 'PID', 'STATE', 'VIEW', 'SEES'), rows)}\n{agreement}"

    def end(self) -> None:
        """End all processes by their own pids: gracefully, or after `END_TIMEOUT_S` by force."""
        alive = [process for node in self.nodes if (process := node.running) is not None]
        for process in alive:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)  # a paused process gets its SIGTERM only now
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
    text = "port of the first node (3000); 0 picks free ports"
    parser.add_argument("--base-port", type=int, default=3000, metavar="PORT", help=text)
    text = "where durable keyspaces live, see ringpopd --help (a temporary folder)"
    parser.add_argument("--store", metavar="URL|FOLDER", help=text)
    text = "let each node hold rows of shuffles, in a temporary folder"
    parser.add_argument("--shuffles", action="store_true", help=text)
    text = "the file with the cluster's keys (ringpopctl keygen): all connections use TLS"
    parser.add_argument("--cluster-key", metavar="FILE", help=text)
    text = "open the console of the first node in a browser"
    parser.add_argument("--console", action="store_true", help=text)
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
    # Without pyarrow, a store that nobody asked for would keep the nodes from starting.
    if options.store is not None or find_spec("pyarrow") is not None:
        # The last flag wins, so this one comes first: the flags after -- may name another store.
        store = str(folder / "store") if options.store is None else options.store
        flags = ["--store", store, "--create-store", *flags]
    if options.cluster_key is not None:
        os.environ[KEY_VARIABLE] = options.cluster_key  # for the clients that ask the nodes
        flags = ["--cluster-key", options.cluster_key, *flags]
    # The flags after -- may have the node serve HTTP elsewhere.
    has_http = all(find_spec(name) is not None for name in HTTP_NEEDS)
    http = _addresses(1, 0)[0] if has_http and not {"--http"} & set(flags) else None
    if options.console and http is None:
        complain("ringpopd dev: --console needs the extra http: pip install 'ringpop_py[http]'")
        return ExitCode.USAGE
    cluster = DevCluster(addresses, folder, flags, shuffles=options.shuffles, http=http)
    if options.console:
        threading.Thread(target=_open_console, args=(http,), daemon=True).start()
    return _run(cluster)


def _run(cluster: DevCluster) -> int:
    try:
        trio.run(_watch, cluster)
    except KeyboardInterrupt:
        pass
    finally:
        cluster.end()
        failed = [n for n in cluster.nodes if n.process and (n.process.returncode or 0) > 0]
        for node in failed:
            complain(f"node {node.number} failed; its log: {node.log}")
        if not failed:  # otherwise the logs are still needed
            shutil.rmtree(cluster.folder, ignore_errors=True)
    return ExitCode.FAILED if failed else ExitCode.OK


def _open_console(http: Address) -> None:
    """Open the console in a browser once it is served."""
    for _ in range(OPEN_TRIES):
        with suppress(OSError), socket.create_connection(http, timeout=1.0):
            webbrowser.open(f"http://{http}/")
            return
        time.sleep(REFRESH_S)


def _addresses(count: int, base_port: int) -> list[Address]:
    # All sockets stay open until the last is bound, so that no port is found twice.
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
            # Only now: a signal during the start must also end the nodes that were started.
            for node in cluster.nodes:
                cluster.start(node)
            nursery.start_soon(_read_keys, cluster, nursery.cancel_scope, screen)
            shown = ""
            while True:
                # The client blocks, so it runs in a thread: keys and signals are still handled.
                await trio.to_thread.run_sync(cluster.ask_all, abandon_on_cancel=True)
                text = cluster.table()
                if screen:
                    print(
                        f"\x1b[2J\x1b[H{text}\n\n{KEYS}\nlogs: {cluster.folder}\n{cluster.said}",
                        flush=True,
                    )
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
        key = data.decode("ascii", "backslashreplace")
        if not data or key == "q":
            scope.cancel()
            return
        if key == "h":
            cluster.said = cluster.heal()
            if not screen:
                print(cluster.said, flush=True)
        elif key.isdigit():
            digits = (digits + key)[-3:]  # as many as `NODES_MAX` has
        elif key and key in "ckprst" and digits:
            number, digits = int(digits), ""
            known = 1 <= number <= len(cluster.nodes)
            cluster.said = (
                cluster.do(key, cluster.nodes[number - 1]) if known else f"no node {number}"
            )
            if not screen:
                print(cluster.said, flush=True)
        elif not key.isspace():
            digits = ""
            needs = "needs a node's number before it" if key in "ckprst" else "is not a key here"
            cluster.said = f"{key!r} {needs}"
            if not screen:
                print(f"{cluster.said}\n{KEYS}", flush=True)


@contextmanager
def _single_keys() -> Iterator[None]:
    """Have the terminal send each key as it is pressed, without echo, and restore it."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
