"""The process itself, started by a node for itself (``python -m ringpop_py.edge.cli.shuffler``).

It says on standard output where it listens, and ends when its standard input does: with the node.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.address import Address
from ringpop_py.base.errors import RingpopError
from ringpop_py.base.metering import OUTCOMES
from ringpop_py.base.supervision import keep_running
from ringpop_py.base.values.packed import encode_value
from ringpop_py.client.sync.client import Client
from ringpop_py.flow.shuffle.server.context import Process
from ringpop_py.flow.shuffle.server.framestore import FrameStore
from ringpop_py.flow.shuffle.server.host import Host
from ringpop_py.flow.shuffle.server.register import Register
from ringpop_py.flow.shuffle.server.server import Server
from ringpop_py.flow.shuffle.server.view import Watch
from ringpop_py.flow.shuffle.server.wire import Peers
from ringpop_py.flow.shuffle.sorting.disk import Disk, locked
from ringpop_py.state.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.net.security.streams import Keys

LAST: Final = "incarnation"
DATA: Final = "data"
BEAT_S: Final = 1.0
SORTED_SHARE: Final = 16
"""The share of the memory for rows that are being sorted, which are there three times then."""
SORTED_BYTES_MAX: Final = 1 << 30
"""The most bytes that are sorted in one piece: a column of texts holds less than 2 GiB."""
HELD_SHARE: Final = 16
"""The share of the memory for rows of clients on their way, and the same for those of members."""
NICE: Final = 10
"""The niceness of this process: the node, which has to answer in time, goes first."""
SORTS: Final = 1
"""The most sorts at a time: each has all rows of an interval, or of a run, in memory."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run until standard input ends."""
    options = options_in(argv)
    os.nice(NICE)
    try:
        incarnation, lock = claim(options.folder)
    except OSError as error:
        sys.stderr.write(f"the folder of shuffles cannot be used: {error}\n")
        return 1
    try:
        with ExitStack() as stack:
            store = open_store(options.store, create=False) if options.store else None
            if store is not None:
                stack.callback(store.close)
            frames = FrameStore(store, options.cluster)
            trio.run(run, options, incarnation, frames, Parent())
    except RingpopError as error:
        sys.stderr.write(f"the store of the node cannot be used: {error}\n")
        return 1
    except KeyboardInterrupt:
        pass
    finally:
        os.close(lock)
    return 0


def options_in(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line *argv* says; by default that of this program."""
    parser = argparse.ArgumentParser(prog="ringpop-shuffler")
    parser.add_argument("--node", required=True, type=Address.parse)
    parser.add_argument("--name", required=True)
    parser.add_argument("--listen", required=True, help="the address of the machine")
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--memory", type=int, default=1 << 30)
    parser.add_argument("--disk", type=int, default=1 << 50)
    parser.add_argument("--store", help="of the node; it exists")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--certificate", help="a file in place of a key, which the node renews")
    parser.add_argument("--accept-plain", action="store_true")
    parser.add_argument("--dial-plain", action="store_true")
    return parser.parse_args(argv)


def claim(folder: Path) -> tuple[int, int]:
    """Lock and empty *folder*; return this start's incarnation, and the lock's descriptor.

    Raises:
        OSError: if it cannot be written, or another process has it.
    """
    lock = locked(folder)
    file = folder / LAST
    # Above that of any earlier start, though the clock may have been set back.
    last = int(file.read_text()) if file.exists() and file.read_text().isdecimal() else 0
    incarnation = max(time.time_ns() // 1_000_000, last + 1)
    file.write_text(str(incarnation))
    shutil.rmtree(folder / DATA, ignore_errors=True)
    (folder / DATA).mkdir()
    return incarnation, lock


class Parent:
    """The node that has started this process: it reads its output, and ends its input."""

    def hear(self, line: str) -> None:
        """Take *line*: first where this process listens, and then reports."""
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    async def end(self, scope: trio.CancelScope) -> None:
        """Cancel *scope* when this process is to end."""
        async with trio.lowlevel.FdStream(os.dup(0)) as stream:
            while await stream.receive_some(1024):
                pass
        scope.cancel()


async def run(
    options: argparse.Namespace, incarnation: int, frames: FrameStore, parent: Parent
) -> None:
    """Serve until *parent* ends."""
    client = Client(options.node, cluster_key=options.certificate or "")
    client.is_of_cluster = True
    data, memory = options.folder / DATA, options.memory
    async with trio.open_nursery() as nursery:
        nursery.start_soon(parent.end, nursery.cancel_scope)
        watch = Watch(client)
        await watch.look()
        register = Register(client)
        keys = _keys_of(options)
        peers, sorting = Peers(watch, nursery, keys), trio.CapacityLimiter(SORTS)
        disk = Disk(options.disk)
        here = Process(
            options.name,
            incarnation,
            register,
            watch,
            peers,
            sorting,
            min(memory // SORTED_SHARE, SORTED_BYTES_MAX),
            disk,
            frames,
            nursery,
        )
        host = Host(here, data, nursery)
        listeners = await trio.open_tcp_listeners(0, host=options.listen)
        port = listeners[0].socket.getsockname()[1]
        parent.hear(f"{port}/{incarnation}")
        server = Server(host, memory // HELD_SHARE, keys)
        for what, duty in duties(host, server, disk, watch, parent).items():
            nursery.start_soon(keep_running, what, duty)
        await trio.serve_listeners(server.serve, listeners)


def _keys_of(options: argparse.Namespace) -> Keys | None:
    if options.certificate is None:
        return None
    from ringpop_py.net.security.streams import Keys  # noqa: PLC0415 - loads ssl

    return Keys(
        options.certificate,
        options.cluster,
        options.name,
        accept_plain=options.accept_plain,
        dial_plain=options.dial_plain,
    )


def duties(
    host: Host, server: Server, disk: Disk, watch: Watch, parent: Parent
) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the work in the background, by its names in the log; none of it ends the process."""
    report = _Report(host, server, disk, parent)
    return {
        "the report of shuffles": report.make,
        "the beat of shuffles": report.send,
        "the look for processes for shuffles": watch.run,
        "the look for shuffles": host.scan,
        "the tidying of the store of shuffles": host.tidy,
        "the news of processes for shuffles": host.follow,
    }


class _Report:
    """Says regularly that this process is at work: otherwise, the node ends it."""

    def __init__(self, host: Host, server: Server, disk: Disk, parent: Parent) -> None:
        self._host = host
        self._server = server
        self._disk = disk
        self._parent = parent
        self._line = "{}"

    async def make(self) -> None:
        """Find out how far everything is, until cancelled. A bug in this does not stop `send`."""
        while True:
            load = {  # a `ShuffleLoad`
                "held_bytes": self._server.held_bytes,
                "disk_bytes": self._disk.used_bytes,
                "shuffles": self._host.by_state(),
                "listed": self._host.listed(),
                **{outcome: getattr(self._server.tally, outcome) for outcome in OUTCOMES},
            }
            self._line = encode_value("json", load).decode()
            await trio.sleep(BEAT_S)

    async def send(self) -> None:
        """Tell the node what was found out last, until cancelled."""
        while True:
            await trio.sleep(BEAT_S)
            self._parent.hear(self._line)
