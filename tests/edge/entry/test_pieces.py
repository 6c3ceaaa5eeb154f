"""The rest of an answer in pieces: calls that fail, and answers that do not go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import CallError, ConnectionLost, DeadlineExceeded, PeerFailed
from ringpop_py.base.values.declared import encode
from ringpop_py.edge.entry.pieces import RESUMED_S, Pieces
from ringpop_py.net.http.message import HttpReply
from ringpop_py.net.http.piece import Piece
from ringpop_py.net.http.stream_calls import PieceHead
from ringpop_py.net.wire.calls import Answer

if TYPE_CHECKING:
    from trio.testing import MockClock

    from ringpop_py.net.http.stream_calls import StreamHead

IDLE_S = 30.0
REPLY = HttpReply(200, (), b"", "owner", "name")
NOTHING = Answer(ok=True, arg2=encode(PieceHead(is_there=False)))
LOST = ConnectionLost("the connection broke")


def piece(data: bytes, *, is_last: bool = False) -> Answer:
    return Answer(ok=True, arg2=encode(PieceHead(is_last=is_last)), arg3=data)


class _Owner:
    """Gives *outcomes*, and the last one for ever; *asked* has what was wanted of it."""

    def __init__(self, *outcomes: Answer | CallError) -> None:
        self.asked: list[tuple[StreamHead, bytes]] = []
        self._outcomes = [*outcomes]

    async def __call__(self, head: StreamHead, data: bytes) -> Answer:
        self.asked.append((head, data))
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, CallError):
            raise outcome
        return outcome


async def test_a_call_that_reads_is_made_again_for_the_same_piece(
    autojump_clock: MockClock,  # noqa: ARG001 - time runs by itself
) -> None:
    owner = _Owner(piece(b"a"), LOST, LOST, NOTHING, piece(b"b", is_last=True))
    pieces = Pieces(REPLY, owner, IDLE_S)

    assert await pieces.read() == Piece(b"a")
    assert await pieces.read() == Piece(b"b", is_last=True)
    assert [head.at for head, _ in owner.asked] == [0, 1, 1, 1, 1]
    assert {(head.owner, head.stream) for head, _ in owner.asked} == {("owner", "name")}


async def test_it_is_not_made_again_for_ever(autojump_clock: MockClock) -> None:
    began = autojump_clock.current_time()
    with pytest.raises(ConnectionLost):
        await Pieces(REPLY, _Owner(LOST), IDLE_S).read()
    assert RESUMED_S <= autojump_clock.current_time() - began < 2 * RESUMED_S


async def test_a_stream_that_has_broken_off_is_not_asked_again() -> None:
    owner = _Owner(Answer(ok=False, arg3=b"the application broke off"))
    with pytest.raises(PeerFailed, match="broke off"):
        await Pieces(REPLY, owner, IDLE_S).read()
    assert len(owner.asked) == 1


async def test_nothing_may_come_for_so_long_and_not_longer(autojump_clock: MockClock) -> None:
    now = 0.0

    async def owner(_head: StreamHead, _data: bytes) -> Answer:
        nonlocal now
        now += 10.0
        autojump_clock.jump(10.0)
        return piece(b"x") if now == 20.0 else NOTHING

    pieces = Pieces(REPLY, owner, IDLE_S)
    assert await pieces.read() == Piece(b"x")
    with pytest.raises(DeadlineExceeded, match="nothing came for 30 s"):
        await pieces.read()
    assert now == 20.0 + IDLE_S  # from the last piece


async def test_a_call_that_writes_is_made_once() -> None:
    owner = _Owner(LOST)
    with pytest.raises(ConnectionLost):
        await Pieces(REPLY, owner, IDLE_S).write(b"part")
    assert [data for _, data in owner.asked] == [b"part"]


async def test_an_end_that_does_not_arrive_is_no_error() -> None:
    owner = _Owner(LOST)
    await Pieces(REPLY, owner, IDLE_S).aclose()
    assert [head.what for head, _ in owner.asked] == ["close"]
