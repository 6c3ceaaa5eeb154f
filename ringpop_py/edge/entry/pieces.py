"""The rest of an answer that comes in pieces, as the host reads it that was asked."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

import anyio

from ringpop_py.base.errors import CallError, DeadlineExceeded, PeerFailed
from ringpop_py.net.http.stream_calls import READ_S, StreamHead, piece_in, stream_call

if TYPE_CHECKING:
    from ringpop_py.client.sync.client import Client
    from ringpop_py.edge.entry.http import Options
    from ringpop_py.net.http.piece import Piece
    from ringpop_py.net.wire.calls import Answer
    from ringpop_py.route.proxy.request import HttpReply

OnStream = Callable[[StreamHead, bytes], Awaitable["Answer"]]
"""Has the owner of a stream do something with it."""
RESUMED_S: Final = 3.0
"""A call that reads is made again for so long if its connection breaks."""
RESUME_S: Final = 0.1
CLOSE_S: Final = 2.0


class StreamProgress:
    """How far the answer that *reply* begins has been read (pure).

    Args:
        options: how long nothing may come, and until when all of it has to be there.
        now: when it began.
    """

    def __init__(self, reply: HttpReply, options: Options, now: float) -> None:
        self._to = reply.owner, reply.stream
        self._idle_s = options.idle_timeout_s
        self._total_s = inf if options.total_timeout_s is None else options.total_timeout_s
        self._ends_at = now + self._total_s
        self._at = 0
        self._since = now
        self._broken_since: float | None = None

    def reading(self, now: float) -> StreamHead:
        """Return what to ask for. Raises DeadlineExceeded if nothing more is waited for."""
        if now >= self._ends_at:
            text = f"the answer has not ended within {self._total_s:g} s"
            raise DeadlineExceeded(text, (), "unknown")
        if now >= self._since + self._idle_s:
            text = f"nothing came for {self._idle_s:g} s of an answer that has begun"
            raise DeadlineExceeded(text, (), "unknown")
        wait_s = min(READ_S, self._ends_at - now, self._since + self._idle_s - now)
        return StreamHead(*self._to, "read", self._at, wait_s)

    def writing(self, *, is_last: bool) -> StreamHead:
        """Return how to write."""
        return StreamHead(*self._to, "write", is_last=is_last)

    def closing(self) -> StreamHead:
        """Return how to end it."""
        return StreamHead(*self._to, "close")

    def came(self, answer: Answer) -> Piece | None:
        """Return the next piece; None if it has not come yet. Raises PeerFailed, BodyError."""
        piece = piece_in(answer)
        self._broken_since = None
        self._at += piece is not None
        return piece

    def taken(self, now: float) -> None:
        """Note that somebody wants the next piece from *now* on."""
        self._since = now

    def broke(self, error: CallError, now: float) -> None:
        """Note that a call that reads has failed. Raises *error* if no other one helps."""
        if self._broken_since is None:
            self._broken_since = now
        if now - self._broken_since >= RESUMED_S:
            raise error


class Pieces:
    """The rest of the answer that *reply* begins, under asyncio and trio.

    Args:
        on_stream: makes the calls.
        options: see `StreamProgress`.
    """

    def __init__(self, reply: HttpReply, on_stream: OnStream, options: Options) -> None:
        self._progress = StreamProgress(reply, options, anyio.current_time())
        self._on_stream = on_stream

    async def read(self) -> Piece:
        """Return the next piece. Raises DeadlineExceeded, CallError."""
        progress = self._progress
        progress.taken(anyio.current_time())
        while True:
            try:
                answer = await self._on_stream(progress.reading(anyio.current_time()), b"")
            except CallError as error:
                progress.broke(error, anyio.current_time())
                await anyio.sleep(RESUME_S)
                continue
            piece = progress.came(answer)
            if piece is not None:
                return piece

    async def write(self, data: bytes, *, is_last: bool = False) -> None:
        """Send more of the request. Raises CallError."""
        answer = await self._on_stream(self._progress.writing(is_last=is_last), data)
        _check_written(answer)

    async def aclose(self) -> None:
        """End the stream, also while the task is cancelled."""
        with anyio.move_on_after(CLOSE_S, shield=True):
            with suppress(CallError):  # its owner notices that nobody reads any more
                await self._on_stream(self._progress.closing(), b"")


class BlockingPieces:
    """As `Pieces`, without tasks."""

    def __init__(self, reply: HttpReply, client: Client, options: Options) -> None:
        self._progress = StreamProgress(reply, options, time.monotonic())
        self._client = client

    def read(self) -> Piece:
        """See `Pieces.read`."""
        progress = self._progress
        progress.taken(time.monotonic())
        while True:
            try:
                answer = self._client.call(stream_call(progress.reading(time.monotonic())))
            except CallError as error:
                progress.broke(error, time.monotonic())
                time.sleep(RESUME_S)
                continue
            piece = progress.came(answer)
            if piece is not None:
                return piece

    def write(self, data: bytes, *, is_last: bool = False) -> None:
        """See `Pieces.write`."""
        head = self._progress.writing(is_last=is_last)
        _check_written(self._client.call(stream_call(head, data)))

    def close(self) -> None:
        """End the stream."""
        with suppress(CallError):
            self._client.call(stream_call(self._progress.closing()))


def _check_written(answer: Answer) -> None:
    if not answer.ok:
        raise PeerFailed(answer.arg3.decode(errors="replace"))
