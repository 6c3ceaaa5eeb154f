"""A websocket of an application, as its client: its messages are the pieces of an exchange.

wsproto speaks the protocol (RFC 6455), without extensions: a host between the two ends would
have to inflate what it passes on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from ringpop_py.base.errors import PeerFailed
from ringpop_py.net.http.answer import broken_off
from ringpop_py.net.http.connections import ENDS, RECEIVE_BYTES, AppAddress, close
from ringpop_py.net.http.piece import SWITCHING, Close, Piece, decode_messages, encode_messages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wsproto.events import Event

    from ringpop_py.net.http.connections import Stream

PROTOCOLS: Final = "sec-websocket-protocol"
TOO_LARGE: Final = 1_009


class Denial(NamedTuple):
    """The answer of an application that wants no websocket."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class WebsocketExchange:
    """An open websocket.

    Args:
        most: the bytes of a message.

    Attributes:
        opened: the first piece: status 101, with the headers of the application's answer.
    """

    def __init__(self, stream: Stream, connection: WSConnection, opened: Piece, most: int) -> None:
        self.opened = opened
        self._stream = stream
        self._connection = connection
        self._most = most
        self._sending = trio.Lock()  # pongs are sent by who reads
        self._part: list[str | bytes] = []
        self._part_size = 0

    async def read(self) -> Piece:
        """Return the next messages; the last one is a `Close`. See `AnyExchange`."""
        while True:
            found: list[str | bytes | Close] = []
            for event in _events(self._connection):
                message = await self._taken(event)
                if message is not None:
                    found.append(message)
                if isinstance(message, Close):
                    break
            if found:
                return Piece(encode_messages(found), is_last=isinstance(found[-1], Close))
            await _receive(self._stream, self._connection)

    async def write(self, data: bytes, *, is_last: bool) -> None:  # noqa: ARG002 - `Close` says it
        """Send messages. Raises BodyError: *data* holds others; see `AnyExchange`."""
        for message in decode_messages(data):
            if isinstance(message, str):
                await self._send(TextMessage(message))
            elif isinstance(message, bytes):
                await self._send(BytesMessage(message))
            else:
                await self._send(CloseConnection(message.code, message.reason or None))

    def close(self) -> None:
        """End it. The application learns of it by the end of the connection."""
        close(self._stream)

    async def _taken(self, event: Event) -> str | bytes | Close | None:
        match event:
            case Message(data=data):
                self._part_size += len(data)
                if self._part_size > self._most:
                    text = f"a message has at most {self._most} bytes"
                    await self._send(CloseConnection(TOO_LARGE, text))
                    return Close(TOO_LARGE, text)
                self._part.append(data if isinstance(data, str) else bytes(data))
                if not event.message_finished:
                    return None
                part, self._part, self._part_size = self._part, [], 0
                return part[0][:0].join(part)  # type: ignore[arg-type] # all are of one kind
            case CloseConnection(code=code, reason=reason):
                with suppress(PeerFailed):  # it needs an answer, unless it is one
                    await self._send(event.response())
                return Close(int(code), reason or "")
            case Ping():
                await self._send(event.response())
            case _:
                pass
        return None

    async def _send(self, event: Event) -> None:
        async with self._sending:
            await _send(self._stream, self._connection, event)


async def open_websocket(
    place: AppAddress, target: bytes, headers: Iterable[tuple[bytes, bytes]], most: int
) -> WebsocketExchange | Denial:
    """Open a websocket of the application at *place*, or return why it does not.

    Raises:
        PeerBusy: the application does not listen.
        PeerFailed: it broke off.
    """
    host, extra, wanted = b"", list[tuple[bytes, bytes]](), list[str]()
    for name, value in place.headed(headers):
        if name == b"host":
            host = value
        elif name.lower() == PROTOCOLS.encode():
            wanted += [each.strip() for each in value.decode().split(",")]
        elif not name.lower().startswith(b"sec-websocket-"):
            extra.append((name, value))
    stream = await place.connect()
    connection = WSConnection(ConnectionType.CLIENT)
    request = Request(host.decode(), target.decode(), extra_headers=extra, subprotocols=wanted)
    is_open = False
    try:
        await _send(stream, connection, request)
        answer = await _answer_to(stream, connection, most)
        if isinstance(answer, AcceptConnection):
            kept = _texts(answer.extra_headers)
            if answer.subprotocol:
                kept += ((PROTOCOLS, answer.subprotocol),)
            is_open = True
            return WebsocketExchange(stream, connection, Piece(b"", SWITCHING, kept), most)
        return answer
    finally:
        if not is_open:
            close(stream)


async def _answer_to(
    stream: Stream, connection: WSConnection, most: int
) -> AcceptConnection | Denial:
    refused, body = None, bytearray()
    while True:
        for event in _events(connection):
            match event:
                case AcceptConnection():
                    return event
                case RejectConnection(status_code=status, headers=headers):
                    refused = Denial(status, _texts(headers), b"")
                    if not event.has_body:
                        return refused
                case RejectData(data=data, body_finished=is_last):
                    body += data[: most - len(body)]
                    if is_last and refused is not None:
                        return refused._replace(body=bytes(body))
                case _:
                    pass
        await _receive(stream, connection)


def _events(connection: WSConnection) -> Iterable[Event]:
    try:
        yield from connection.events()
    except ProtocolError as error:
        raise broken_off(f"its websocket is not sound: {error}") from None


async def _receive(stream: Stream, connection: WSConnection) -> None:
    try:
        data = await stream.receive_some(RECEIVE_BYTES)
        connection.receive_data(bytes(data) or None)
    except ENDS as error:
        raise broken_off(f"{error.__cause__}") from None
    except ProtocolError as error:
        raise broken_off(f"its websocket is not sound: {error}") from None
    if not data and connection.state is not ConnectionState.CLOSED:
        raise broken_off("it closed its websocket without a word")


async def _send(stream: Stream, connection: WSConnection, event: Event) -> None:
    try:
        await stream.send_all(connection.send(event))
    except ENDS as error:
        raise broken_off(f"{error.__cause__}") from None
    except ProtocolError as error:
        raise broken_off(f"nothing more can be sent to its websocket: {error}") from None


def _texts(headers: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    pairs = ((bytes(name), bytes(value)) for name, value in headers)
    return tuple((name.decode().lower(), value.decode("latin-1")) for name, value in pairs)
