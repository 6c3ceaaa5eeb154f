"""The rest of an answer in pieces: calls that fail, and answers that do not go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import CallError, ConnectionLost, DeadlineExceeded, PeerFailed
from ringpop_py.base.values.declared import encode
from ringpop_py.edge.entry.http import Options
from ringpop_py.edge.entry.pieces import RESUMED_S, Pieces
from ringpop_py.net.http.message import HttpReply
from ringpop_py.net.http.piece import Piece
from ringpop_py.net.http.stream_calls import PieceHead
from ringpop_py.net.wire.calls import Answer

if TYPE_CHECKING:
    from trio.testing import MockClock

    from ringpop_py.net.http.stream_calls import StreamHead

IDLE_S = 25.0
LIMITS = Options(idle_timeout_s=IDLE_S)
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
    pieces = Pieces(REPLY, owner, LIMITS)

    assert await pieces.read() == Piece(b"a")
    assert await pieces.read() == Piece(b"b", is_last=True)
    assert [head.at for head, _ in owner.asked] == [0, 1, 1, 1, 1]
    assert {(head.owner, head.stream) for head, _ in owner.asked} == {("owner", "name")}


async def test_it_is_not_made_again_for_ever(autojump_clock: MockClock) -> None:
    began = autojump_clock.current_time()
    with pytest.raises(ConnectionLost):
        await Pieces(REPLY, _Owner(LOST), LIMITS).read()
    assert RESUMED_S <= autojump_clock.current_time() - began < 2 * RESUMED_S


async def test_a_stream_that_has_broken_off_is_not_asked_again() -> None:
    owner = _Owner(Answer(ok=False, arg3=b"the application broke off"))
    with pytest.raises(PeerFailed, match="broke off"):
        await Pieces(REPLY, owner, LIMITS).read()
    assert len(owner.asked) == 1


class _Waiting:
    """An owner of an answer of which a piece comes at each of *times*, and then nothing more."""

    def __init__(self, *times: float) -> None:
        self._times = [*times]

    async def __call__(self, head: StreamHead, _data: bytes) -> Answer:
        now = trio.current_time()
        if self._times and self._times[0] <= now + head.wait_s:
            await trio.sleep_until(self._times.pop(0))
            return piece(b"x")
        await trio.sleep(head.wait_s)
        return NOTHING


@pytest.mark.parametrize("idle_s", [2.0, IDLE_S])  # within one call that reads, and in several
async def test_nothing_may_come_for_so_long_and_not_longer(
    autojump_clock: MockClock, idle_s: float
) -> None:
    began = autojump_clock.current_time()
    owner = _Waiting(began + idle_s / 2)
    pieces = Pieces(REPLY, owner, Options(idle_timeout_s=idle_s))
    assert await pieces.read() == Piece(b"x")
    await trio.sleep(3 * idle_s)  # a caller that takes its time is not the owner's fault
    began = autojump_clock.current_time()
    with pytest.raises(DeadlineExceeded, match=f"nothing came for {idle_s:g} s"):
        await pieces.read()
    assert autojump_clock.current_time() - began == pytest.approx(idle_s)


async def _read_all(pieces: Pieces) -> None:
    while not (await pieces.read()).is_last:
        pass


@pytest.mark.parametrize("total_s", [3.0, 31.0])
async def test_the_whole_answer_has_a_time_limit(autojump_clock: MockClock, total_s: float) -> None:
    began = autojump_clock.current_time()
    owner = _Waiting(*(began + n for n in range(1, 100)))
    pieces = Pieces(REPLY, owner, Options(total_timeout_s=total_s))
    with pytest.raises(DeadlineExceeded, match=f"has not ended within {total_s:g} s"):
        await _read_all(pieces)
    assert autojump_clock.current_time() - began == pytest.approx(total_s)


async def test_a_call_that_writes_is_made_once() -> None:
    owner = _Owner(LOST)
    with pytest.raises(ConnectionLost):
        await Pieces(REPLY, owner, LIMITS).write(b"part")
    assert [data for _, data in owner.asked] == [b"part"]


async def test_an_end_that_does_not_arrive_is_no_error() -> None:
    owner = _Owner(LOST)
    await Pieces(REPLY, owner, LIMITS).aclose()
    assert [head.what for head, _ in owner.asked] == ["close"]
