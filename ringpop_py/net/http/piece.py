"""Pieces of an answer that is passed on as it comes, and messages of websockets in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol

from ringpop_py.base.values.declared import Declared, Meta, convert, encode, reader

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER_CHARACTERS_MAX: Final = 1 << 17
"""The longest header. HTTP/1.1 clients such as httpx accept less for all headers together."""
STATUS_MAX: Final = 999
HeaderText = Annotated[str, Meta(max_length=HEADER_CHARACTERS_MAX)]
HttpStatus = Annotated[int, Meta(ge=0, le=STATUS_MAX)]
CLOSE_CODE_MAX: Final = 4_999
REASON_CHARACTERS_MAX: Final = 123
SWITCHING: Final = 101
"""The status of an open websocket."""


class Piece(NamedTuple):
    """What came of an answer since the piece before.

    Attributes:
        data: bytes of the body; of a websocket, messages (`encode_messages`).
        status: of the answer, in its first piece; 0 in the others.
        headers: those of the answer, in its first piece; in the last one, its trailers.
    """

    data: bytes = b""
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    is_last: bool = False


class AnyExchange(Protocol):
    """A request and its answer, in pieces."""

    async def read(self) -> Piece:
        """Return the next piece of the answer: it has data, or it is the first or the last.

        Raises:
            PeerFailed: the application broke off.
        """

    async def write(self, data: bytes, *, is_last: bool) -> None:
        """Send more of the request. Raises PeerFailed, also if the application reads no more."""

    def close(self) -> None:
        """End the exchange, as far as it is."""


class Close(Declared, frozen=True):
    """The last message of a websocket (RFC 6455, 7.4)."""

    code: Annotated[int, Meta(ge=1_000, le=CLOSE_CODE_MAX)] = 1_000
    reason: Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)] = ""


CUT_OFF: Final = Close(1_006)
"""In place of a last message that did not come; it is never sent."""
WsMessage = str | bytes | Close
_read_messages: Final = reader(list[Any])  # msgspec tells no text from bytes in a union


def encode_messages(messages: Sequence[WsMessage]) -> bytes:
    """Return messages of a websocket as the data of a piece."""
    return encode(messages)


def decode_messages(data: bytes) -> list[WsMessage]:
    """Return the messages in *data*. Raises BodyError."""
    return [_message_in(value) for value in _read_messages(data)]


def _message_in(value: object) -> WsMessage:
    return value if isinstance(value, str | bytes) else convert(Close, value, "message")
