"""The streams of a node: answers of its application that are passed on as they come.

See `stream_calls`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import PeerBusy, PeerFailed
from ringpop_py.base.values.declared import encode
from ringpop_py.net.http.stream_calls import READ_S, UNUSED_S, PieceHead
from ringpop_py.net.wire.calls import Answer

if TYPE_CHECKING:
    from ringpop_py.net.http.piece import AnyExchange
    from ringpop_py.net.http.stream_calls import StreamHead

LOOK_S: Final = 1.0


@dataclass(slots=True, eq=False)
class _Stream:
    exchange: AnyExchange
    may_be_cut: bool
    used_at: float
    calls_count: int = 0
    read_count: int = 0
    last: Answer = field(default_factory=lambda: Answer(ok=True))
    reading: trio.Lock = field(default_factory=trio.Lock)


class Streams:
    """The streams of one node.

    Args:
        most: how many may be open.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, _Stream] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def unfinished(self) -> int:
        """How many have an end for which a node that ends should wait."""
        return sum(not stream.may_be_cut for stream in self._open.values())

    @property
    def is_full(self) -> bool:
        """Whether no more may be open."""
        return len(self._open) >= self._most

    def check_room(self) -> None:
        """Raise PeerBusy if no more may be open."""
        if self.is_full:
            raise PeerBusy(f"{self._most} streams are open here already (streams_max)")

    def add(self, exchange: AnyExchange, *, may_be_cut: bool) -> str:
        """Keep *exchange* as a stream, and return its name.

        Args:
            may_be_cut: whether a node that ends does not wait for it: it may go on for ever.
        """
        name = secrets.token_hex(16)
        self._open[name] = _Stream(exchange, may_be_cut, trio.current_time())
        return name

    async def serve(self, head: StreamHead, data: bytes) -> Answer:
        """Do what *head* wants of a stream; the answer is not ok if it has broken off."""
        stream = self._open.get(head.stream)
        if stream is None:
            if head.what == "close":
                return Answer(ok=True)
            return Answer(ok=False, arg3=b"the stream has ended, or was cut off")
        stream.calls_count += 1
        try:
            match head.what:
                case "read":
                    return await _read(stream, head)
                case "write":
                    await stream.exchange.write(data, is_last=head.is_last)
                case "close":
                    self._end(head.stream)
            return Answer(ok=True)
        except PeerFailed as error:
            if head.what == "read":  # one that takes no more may have answered
                self._end(head.stream)
            return Answer(ok=False, arg3=str(error).encode())
        except BaseException:
            if head.what == "write":  # nobody knows how much of it was sent
                self._end(head.stream)
            raise
        finally:
            stream.calls_count -= 1
            stream.used_at = trio.current_time()

    def cut(self) -> None:
        """End the streams that may go on for ever: this node ends."""
        for name, stream in [*self._open.items()]:
            if stream.may_be_cut:
                self._end(name)

    def close(self) -> None:
        """End all streams."""
        for name in [*self._open]:
            self._end(name)

    async def run(self) -> None:
        """End the streams whose reader is gone, until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            before = trio.current_time() - UNUSED_S
            for name, stream in [*self._open.items()]:
                if not stream.calls_count and stream.used_at < before:
                    self._end(name)

    def _end(self, name: str) -> None:
        stream = self._open.pop(name, None)
        if stream is not None:
            stream.exchange.close()


async def _read(stream: _Stream, head: StreamHead) -> Answer:
    async with stream.reading:
        at = head.at
        if at == stream.read_count - 1:  # its answer was lost
            return stream.last
        if at != stream.read_count:
            return Answer(ok=False, arg3=b"the pieces of a stream are read in order")
        piece = None
        with trio.move_on_after(min(max(head.wait_s, 0.0), READ_S)):
            piece = await stream.exchange.read()
        if piece is None:
            return Answer(ok=True, arg2=encode(PieceHead(is_there=False)))
        told = PieceHead(status=piece.status, headers=piece.headers, is_last=piece.is_last)
        stream.read_count += 1
        stream.last = Answer(ok=True, arg2=encode(told), arg3=piece.data)
        return stream.last
