"""Streams of a node: what calls read and write, and when a stream ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from ringpop_py.base.errors import PeerBusy, PeerFailed
from ringpop_py.net.http.piece import Piece
from ringpop_py.net.http.stream_calls import READ_S, UNUSED_S, StreamHead, piece_in
from ringpop_py.net.http.streams import LOOK_S, Streams

if TYPE_CHECKING:
    from typing import Literal

    from trio.testing import MockClock


class _Exchange:
    """An exchange whose pieces a test gives, one by one."""

    def __init__(self) -> None:
        self.written: list[tuple[bytes, bool]] = []
        self.closed = 0
        self.give, self._pieces = trio.open_memory_channel[Piece | None](10)
        self.takes = trio.Event()
        self.takes.set()

    async def read(self) -> Piece:
        piece = await self._pieces.receive()
        if piece is None:
            raise PeerFailed("the application broke off")
        return piece

    async def write(self, data: bytes, *, is_last: bool) -> None:
        self.written.append((data, is_last))
        await self.takes.wait()

    def close(self) -> None:
        self.closed += 1


class _Streams(Streams):
    """Streams with one that is open, of *exchange*."""

    def __init__(self, *, may_be_cut: bool = False) -> None:
        super().__init__(2)
        self.exchange = _Exchange()
        self.name = self.add(self.exchange, may_be_cut=may_be_cut)

    @property
    def ended(self) -> int:
        """How often the exchange was closed."""
        return self.exchange.closed

    async def read(self, at: int) -> Piece | None:
        return piece_in(await self.serve(self.head("read", at), b""))

    def head(self, what: Literal["read", "write", "close"], at: int = 0) -> StreamHead:
        return StreamHead("me", self.name, what, at)


async def test_pieces_are_read_in_order_and_the_last_one_again() -> None:
    streams = _Streams()
    for piece in (Piece(b"a", 200, (("x", "y"),)), Piece(b"b"), Piece(b"", 0, (), is_last=True)):
        await streams.exchange.give.send(piece)

    assert await streams.read(0) == Piece(b"a", 200, (("x", "y"),))
    assert await streams.read(0) == Piece(b"a", 200, (("x", "y"),))  # its answer was lost
    assert await streams.read(1) == Piece(b"b")
    with pytest.raises(PeerFailed, match="in order"):
        await streams.read(0)
    assert (await streams.read(2)) == Piece(is_last=True)
    assert (streams.ended, len(streams)) == (0, 1)

    assert (await streams.serve(streams.head("close"), b"")).ok
    assert (streams.ended, len(streams)) == (1, 0)
    assert (await streams.serve(streams.head("close"), b"")).ok
    with pytest.raises(PeerFailed, match="has ended"):
        await streams.read(3)


async def test_a_read_is_answered_though_nothing_comes_and_loses_nothing(
    autojump_clock: MockClock,  # noqa: ARG001 - time runs by itself
) -> None:
    streams = _Streams()
    began = trio.current_time()

    assert await streams.read(0) is None
    assert trio.current_time() - began == READ_S
    await streams.exchange.give.send(Piece(b"late"))
    assert await streams.read(0) == Piece(b"late")


@pytest.mark.parametrize(("wait_s", "waited_s"), [(2.0, 2.0), (1e9, READ_S), (-1.0, 0.0)])
async def test_a_read_waits_no_longer_than_its_reader_wants(
    autojump_clock: MockClock, wait_s: float, waited_s: float
) -> None:
    streams = _Streams()
    began = autojump_clock.current_time()

    answer = await streams.serve(StreamHead("me", streams.name, "read", 0, wait_s), b"")

    assert piece_in(answer) is None
    assert autojump_clock.current_time() - began == waited_s


async def test_an_application_that_breaks_off_ends_its_stream() -> None:
    streams = _Streams()
    await streams.exchange.give.send(None)

    with pytest.raises(PeerFailed, match="broke off"):
        await streams.read(0)
    assert streams.ended == 1


async def test_one_that_takes_no_more_may_still_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = _Streams()

    async def fail(_data: bytes, *, is_last: bool) -> None:
        raise PeerFailed(f"it reads no more, {is_last}")

    monkeypatch.setattr(streams.exchange, "write", fail)
    assert not (await streams.serve(streams.head("write"), b"x")).ok
    await streams.exchange.give.send(Piece(b"", 413))
    assert await streams.read(0) == Piece(b"", 413)


async def test_a_write_whose_caller_goes_away_ends_the_stream() -> None:
    """Nobody knows how much of it has reached the application."""
    streams = _Streams()
    streams.exchange.takes = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(streams.serve, streams.head("write"), b"part")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert streams.exchange.written == [(b"part", False)]
    assert streams.ended == 1


async def test_a_stream_ends_that_nobody_reads_and_not_one_that_is_read(
    autojump_clock: MockClock,  # noqa: ARG001 - time runs by itself
) -> None:
    streams = _Streams()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(streams.run)
        for _ in range(int(3 * UNUSED_S / READ_S)):  # nothing comes, and somebody waits for it
            assert await streams.read(0) is None
        assert streams.ended == 0
        await trio.sleep(UNUSED_S - LOOK_S)
        assert streams.ended == 0
        await trio.sleep(3 * LOOK_S)
        assert streams.ended == 1
        nursery.cancel_scope.cancel()


async def test_a_node_that_ends_cuts_what_may_go_on_for_ever() -> None:
    endless, other = _Streams(may_be_cut=True), _Streams()
    assert (endless.unfinished, other.unfinished) == (0, 1)

    endless.cut()
    other.cut()

    assert (endless.ended, other.ended) == (1, 0)
    other.close()
    assert other.ended == 1


async def test_there_are_so_many_streams_at_most() -> None:
    streams = _Streams()
    streams.check_room()
    streams.add(_Exchange(), may_be_cut=False)

    with pytest.raises(PeerBusy, match="2 streams are open here already"):
        streams.check_room()
