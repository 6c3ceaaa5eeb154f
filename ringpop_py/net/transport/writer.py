"""What leaves on a connection: without waiting, until the stream accepts no more.

Then a task waits for the stream until everything queued is sent. What many tasks queue in one tick
leaves together, in pieces of `PIECE_FRAMES` (`Flusher`). Small frames are joined to one send; what
has more bytes than one frame may have leaves in several, since joining it would cost more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import trio

from ringpop_py.net.transport.calls import LinkEnd, silence
from ringpop_py.net.wire.frames import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.net.transport.network import Stream
    from ringpop_py.net.wire.frames import FrameQueue


PIECE_FRAMES: Final = 8
"""So many queued frames leave at once; the next piece of the same tick has twice as many, so the
sends stay few. With all of a tick in one send, the two ends would compute in turns."""


class LinkWriter:
    """Writes what a connection has queued to its stream.

    Args:
        patience_s: how long a stream may take nothing before the writer gives up.
        spawn: runs a task.
        give_up: called when the stream cannot be written.

    Attributes:
        stream: None until the connection is made.
        chunks: what is queued.
        dirty: whether a `Flusher` will flush it.
        piece: how many frames the next piece of this tick has.
        in_hand: what the draining task sends; None if there is no such task.
    """

    def __init__(
        self,
        queue: FrameQueue,
        *,
        patience_s: float,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        give_up: Callable[[LinkEnd], None],
    ) -> None:
        self.stream: Stream | None = None
        self.dirty = False
        self.written_bytes = 0
        self.chunks = queue.chunks
        self.piece = PIECE_FRAMES
        self._queue = queue
        self._patience_s = patience_s
        self._spawn = spawn
        self._give_up = give_up
        self._finishing = False
        self.in_hand: memoryview | None = None
        self._drained: trio.Event | None = None

    @property
    def unsent_bytes(self) -> int:
        """How many bytes are queued and not written."""
        return self._queue.byte_count - self.written_bytes

    def flush(self) -> None:
        """Send what is queued, as far as the stream accepts it without waiting."""
        if self.in_hand is not None or self.stream is None:
            return  # while the draining task has bytes, nothing may overtake them
        queue = self._queue
        try:
            while self.chunks:
                # With nothing in hand, all that is not written is queued.
                few = queue.byte_count - self.written_bytes <= FRAME_BYTES_MAX
                data = queue.take() if few else queue.take_piece()
                sent = self.stream.send_nowait(data)
                self.written_bytes += sent
                if sent < len(data):
                    self.in_hand = memoryview(data)[sent:]
                    self._spawn(self._drain)
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._give_up(LinkEnd(str(error)))
            return
        if self._finishing:
            self._finishing = False  # a stream is ended once
            self.stream.end_sending()

    def finish(self) -> None:
        """Send what is queued, and then nothing more: the peer sees the end of the stream."""
        self._finishing = True
        self.flush()

    async def wait_drained(self) -> None:
        """Wait until the draining task has sent everything, or the writer is closed."""
        if self.in_hand is not None:
            self._drained = trio.Event()
            await self._drained.wait()

    def close(self) -> None:
        """Close the stream; what is unsent is lost."""
        if self.stream is not None:
            self.stream.close()
        if self._drained is not None:
            self._drained.set()

    async def _drain(self) -> None:
        assert self.stream is not None
        try:
            while self.in_hand is not None:
                with trio.fail_after(self._patience_s):  # for some progress, not for all of it
                    sent = await self.stream.send_some(self.in_hand)
                self.written_bytes += sent
                self.in_hand = self.in_hand[sent:] or None
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._give_up(LinkEnd(str(error)))
        except trio.TooSlowError:
            self._give_up(silence("the peer does not read"))
        else:
            self.flush()  # what was left to this task, so that the order is kept
            if self.in_hand is None and self._drained is not None:
                self._drained.set()
                self._drained = None


class Flusher:
    """Flushes writers soon, so that what is queued in one tick of the loop leaves together."""

    def __init__(self) -> None:
        self._dirty: list[LinkWriter] = []
        self._sleeper: trio.lowlevel.Task | None = None

    def flush_soon(self, writer: LinkWriter) -> None:
        """Flush *writer* at the end of this tick, or now if a whole piece is queued."""
        if writer.dirty:
            if len(writer.chunks) >= writer.piece:
                writer.flush()
                writer.piece *= 2
            return
        writer.dirty = True
        self._dirty.append(writer)
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    async def run(self) -> NoReturn:
        """Flush dirty writers, until cancelled."""
        while True:
            if not self._dirty:
                self._sleeper = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort)
            dirty, self._dirty = self._dirty, []
            for writer in dirty:
                writer.dirty = False
                writer.piece = PIECE_FRAMES
                writer.flush()

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED
