"""The state that the parts of a process share: about one shuffle, and about all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import BodyError, ShuffleUnavailable
from ringpop_py.base.logs import log
from ringpop_py.flow.shuffle.protocol.member import ShuffleMember
from ringpop_py.flow.shuffle.protocol.messages import HeldFiles
from ringpop_py.flow.shuffle.sorting.folder import ShuffleFolder

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_py.flow.shuffle.protocol.record import Record
    from ringpop_py.flow.shuffle.server.framestore import FrameStore
    from ringpop_py.flow.shuffle.server.register import Register
    from ringpop_py.flow.shuffle.server.view import Watch
    from ringpop_py.flow.shuffle.server.wire import Peers
    from ringpop_py.flow.shuffle.sorting.disk import Disk
    from ringpop_py.flow.shuffle.sorting.order import Order

COPIED_S: Final = 600.0
"""So many seconds after a loss, what is still not copied is taken for lost, too."""


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
        self._damaged_in, self._damaged_at = -1, 0.0

    @property
    def record(self) -> Record:
        """The newest record that was read. Raises ShuffleUnavailable before the first reading."""
        if self.member.record is None:
            raise ShuffleUnavailable(f"the record of shuffle {self.name!r} has not been read yet")
        return self.member.record

    def failed(self, error: BaseException, life: int) -> None:
        """After *error* in a life: if a file of it is gone or damaged, this member is to part."""
        member = self.member
        if life != member.life or self._damaged_in == life:
            return  # its files are to be gone
        if isinstance(error, FileNotFoundError):
            slices = (each for each in member.slices if each[0] not in member.intervals)
            files = HeldFiles(tuple(member.segments), tuple(slices), tuple(member.intervals))
            gone = self.folder.gone(files)
            if gone is None:
                return
            why = f"{gone} is gone"
        elif isinstance(error, BodyError):
            why = str(error)
        else:
            return
        self._damaged_in, self._damaged_at = life, trio.current_time()
        text = f"rows of shuffle {self.name!r} are lost here, and taken from other members: {why}"
        log.error("shuffle-damaged", text=text, shuffle=self.name)
        self.nudge()

    @property
    def parts(self) -> bool:
        """Whether this member has lost rows, and counts as ended: others have what it had.

        What nobody else has yet is still copied from here before, if that ends at all.
        """
        if self._damaged_in != self.member.life:
            return False
        alone, record = (self.member.me,), self.record
        takers = [each.copy_to for each in record.segments.values() if each.holders == alone]
        takers += (each.fetched_by for each in record.intervals if each.holders == alone)
        if any(taker is not None for taker in takers):
            return trio.current_time() - self._damaged_at > COPIED_S
        return True

    def nudge(self) -> None:
        """Look for what is due, sooner than usual."""
        self.nudged.set()
