"""Calls for answers that are passed on as they come.

An answer that is long, or takes its time, does not fit into the answer to one call. It stays a
stream at the owner, under a name that nobody can guess. The host that has asked reads its pieces by
calls (`StreamHead`) and writes what belongs to the request, such as the rest of its body, or
messages of a websocket. So nothing is sent before somebody wants it, at any of the hosts between.

Each piece has a number, and the owner keeps the last one that was read: a call that reads can be
made again if its connection breaks. One that writes cannot, and ends its stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from ringpop_py.base.errors import PeerFailed
from ringpop_py.base.values.declared import Named, Natural, Text, decode, encode
from ringpop_py.net.http.piece import HeaderText, HttpStatus, Piece
from ringpop_py.net.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from ringpop_py.net.wire.calls import Answer

STREAM_ENDPOINT: Final = "/proxy/stream"
PIECE_BYTES: Final = 128 * 1024
"""About the most bytes that one call writes."""
READ_S: Final = 10.0
"""A call that reads is answered after this long, also if there is nothing yet; or before, if its
reader's time is over."""
UNUSED_S: Final = 60.0
"""A stream from which nobody has read for so long is ended: its reader is gone. So is one whose
application has not taken for so long what was written."""
TTL_S: Final = {"read": READ_S + 5, "write": UNUSED_S, "close": 5.0}


class StreamHead(Named, frozen=True):
    """What a call wants of a stream.

    Attributes:
        owner: the member that has the stream; another one passes the call on to it.
        at: the number of the piece to be read, from 0.
        wait_s: how long the call that reads it waits for it, at most `READ_S`.
        is_last: whether nothing more will be written.
    """

    owner: Text
    stream: Text
    what: Literal["read", "write", "close"]
    at: Natural = 0
    wait_s: float = READ_S
    is_last: bool = False


class PieceHead(Named, frozen=True):
    """What stands in arg2 of the answer to one that reads; see `Piece`, whose data is arg3.

    Attributes:
        is_there: whether it is a piece; otherwise there is nothing yet.
    """

    is_there: bool = True
    status: HttpStatus = 0
    headers: tuple[tuple[HeaderText, HeaderText], ...] = ()
    is_last: bool = False


def stream_call(head: StreamHead, data: bytes = b"") -> Call:
    """Return a call for a stream."""
    return Call(NODE_SERVICE, STREAM_ENDPOINT, encode(head), data, ttl_s=TTL_S[head.what])


def piece_in(answer: Answer) -> Piece | None:
    """Return the piece in the answer to a call that reads; None if it has not come yet.

    Raises:
        PeerFailed: the stream has broken off.
        BodyError: the answer cannot be read.
    """
    if not answer.ok:
        raise PeerFailed(answer.arg3.decode(errors="replace"))
    head = decode(PieceHead, answer.arg2)
    if not head.is_there:
        return None
    return Piece(answer.arg3, head.status, head.headers, head.is_last)
