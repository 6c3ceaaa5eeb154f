"""The state that the parts of a process share: about one shuffle, and about all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from ringpop_py.base.errors import ShuffleUnavailable
from ringpop_py.flow.shuffle.protocol.member import ShuffleMember
from ringpop_py.flow.shuffle.server.folder import ShuffleFolder

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_py.flow.shuffle.protocol.record import Record
    from ringpop_py.flow.shuffle.server.framestore import FrameStore
    from ringpop_py.flow.shuffle.server.peers import Peers
    from ringpop_py.flow.shuffle.server.register import Register
    from ringpop_py.flow.shuffle.server.view import Watch
    from ringpop_py.flow.shuffle.sorting.disk import Disk
    from ringpop_py.flow.shuffle.sorting.order import Order


@dataclass(frozen=True, slots=True)
class Process:
    """The state that all shuffles of a process share.

    Attributes:
        name: of the node beside this process.
        incarnation: of this process.
        sorting: held while rows are sorted: all of an interval, or of a run, are in memory.
        sort_bytes: how many bytes of rows may be sorted at a time.
        disk: how much of it is in use.
        frames: those in the store.
        nursery: for what goes on when a shuffle has ended.
    """

    name: str
    incarnation: int
    register: Register
    watch: Watch
    peers: Peers
    sorting: trio.CapacityLimiter
    sort_bytes: int
    disk: Disk
    frames: FrameStore
    nursery: trio.Nursery


class Here:
    """See the module.

    Attributes:
        name: of the shuffle.
        member: decides what is acknowledged, answered and fetched here.
        folder: its files.
        order: of its rows; None until the record was read.
    """

    def __init__(self, name: str, process: Process, path: Path) -> None:
        self.name = name
        self.process = process
        self.member = ShuffleMember(process.name, process.incarnation)
        self.folder = ShuffleFolder(path, process.disk)
        self.order: Order | None = None
        self.nudged = trio.Event()

    @property
    def record(self) -> Record:
        """The newest record that was read. Raises ShuffleUnavailable before the first reading."""
        if self.member.record is None:
            raise ShuffleUnavailable(f"the record of shuffle {self.name!r} has not been read yet")
        return self.member.record

    def nudge(self) -> None:
        """Look for what is due, sooner than usual."""
        self.nudged.set()
