"""Spoilt answers of an application, for the client that replays requests to it."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import h11
import trio

from ringpop_py.base.errors import ApplicationError, PeerFailed
from ringpop_py.net.http.answer import AnswerReader
from ringpop_py.net.http.connections import AppAddress, HttpConnections
from tests.fuzz.mutations import spoilt

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST: Final = 2_000
PIECES_MAX: Final = 4
PATIENCE_S: Final = 60.0
"""An answer that ends has a result long before."""
OK: Final = b"HTTP/1.1 200 OK\r\n"
SOUND: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nsound"
CHUNKS: Final = b"4\r\nbody\r\n3;a=b\r\nend\r\n0\r\n"
SAMPLES: Final = (
    SOUND,
    OK
    + b"connection: keep-alive\r\nset-cookie: a=1\r\nset-cookie: b=2\r\ncontent-length: 0\r\n\r\n",
    OK + b"connection: close\r\ncontent-length: 4\r\n\r\nbody",
    OK + b"transfer-encoding: chunked\r\n\r\n" + CHUNKS + b"\r\n",
    OK + b"transfer-encoding: chunked\r\ntrailer: x\r\n\r\n" + CHUNKS + b"x: y\r\n\r\n",
    OK + b"\r\nuntil the end",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + SOUND,
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nx: \xc3\xa9\r\ncontent-length: 1999\r\n\r\n" + bytes(1_999),
)
LINES: Final = (
    *(b"content-length: 0", b"content-length: 5", b"content-length: 5, 5", b"content-length: -1"),
    *(b"transfer-encoding: chunked", b"transfer-encoding: gzip", b"Transfer-Encoding : chunked"),
    *(b"connection: close", b"connection: upgrade", b"upgrade: x", b" folded", b"", b"\t", b"\r"),
    *(b"HTTP/1.1 100 Go", b"HTTP/1.1 101 Go", b"HTTP/1.1 200 OK", b"0", b"5", b"ffffffffffffffff"),
    *(b"x" * 3_000 + b": y", b"x: " + b"y" * 200_000, b": y", b"x: \0", b"x:y"),
)
"""What is put between lines, or takes the place of one."""


class Answers(NamedTuple):
    """How many were accepted and refused, and each bug with how often it was found."""

    accepted: Counter[str]
    refused: Counter[str]
    bugs: Counter[str]


def answers_of(count: int, seed: int) -> Iterator[tuple[str, list[bytes]]]:
    """Return *count* spoilt answers in pieces, each with the method of its request."""
    rng = random.Random(seed)
    for _ in range(count):
        data = rng.choice(SAMPLES)
        data = _with_other_lines(data, rng) if rng.random() < 0.6 else spoilt(data, rng)
        if rng.random() < 0.2:
            data += rng.choice((SOUND, b"\r\n", b"x", rng.choice(SAMPLES)))
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(PIECES_MAX)))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        yield rng.choice(("GET", "GET", "GET", "HEAD")), [piece for piece in pieces if piece]


def _with_other_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\r\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines) + 1)
        lines[at : at + rng.randrange(3)] = [rng.choice(LINES)] * rng.randint(0, 2)
    if rng.random() < 0.1:
        at = rng.randrange(len(lines) + 1)
        return b"\r\n".join(lines[:at]) + rng.choice((b"\n", b"\r")) + b"\r\n".join(lines[at:])
    return b"\r\n".join(lines)


def read_spoilt(count: int, seed: int) -> Answers:
    """Read *count* spoilt answers. What h11 accepts, too, has to be the same to both."""
    found = Answers(Counter(), Counter(), Counter())
    for method, pieces in answers_of(count, seed):
        reader = AnswerReader(method)
        try:
            for place, piece in enumerate(pieces):
                reader.receive(piece)
                if reader.is_whole:
                    reader.keeps &= place == len(pieces) - 1  # the rest is seen before it is used
                    break
            else:
                reader.end()
        except (PeerFailed, ApplicationError) as error:
            found.refused[str(error)[:60]] += 1
            continue
        except Exception as error:  # noqa: BLE001 - what is looked for
            found.bugs[f"{type(error).__name__}: {error}"[:200]] += 1
            continue
        found.accepted[str(reader.status)] += 1
        other = _by_h11(method, b"".join(pieces))
        lowered = "transfer-encoding"  # by h11
        headers = [(name, v.lower() if name == lowered else v) for name, v in reader.headers]
        ours = (reader.status, bytes(reader.body), headers)
        if other is not None and (ours != other[0] or (reader.keeps and other[1])):
            found.bugs[f"{ours[:2]!r:.80} is {other!r:.120} to h11"] += 1
    return found


def _by_h11(
    method: str, data: bytes
) -> tuple[tuple[int, bytes, list[tuple[str, str]]], bytes] | None:
    """Return what h11 makes of *data*, and what it leaves; None if it refuses it."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    try:
        connection.receive_data(data)
        connection.receive_data(b"")
        status, body, headers = 0, bytearray(), list[tuple[str, str]]()
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status = event.status_code
                headers = [(name.decode(), _text(value)) for name, value in event.headers]
            elif isinstance(event, h11.Data):
                body += event.data
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.RemoteProtocolError:
        return None
    return (status, bytes(body), headers), connection.trailing_data[0]


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


async def ask_for_spoilt(count: int, seed: int) -> Answers:
    """Send *count* requests that get spoilt answers, each followed by one with a sound answer."""
    found, pieces = Answers(Counter(), Counter(), Counter()), list[bytes]()

    async def serve(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            while request := await stream.receive_some():
                if b"/sound" in request:
                    await stream.send_all(SOUND)
                    continue
                for piece in pieces:
                    await stream.send_all(piece)
                break
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        port = listener.socket.getsockname()[1]
        ours = HttpConnections(AppAddress(f"http://127.0.0.1:{port}"), 9)
        for method, spoilt_pieces in answers_of(count, seed):
            pieces[:] = spoilt_pieces
            try:
                with trio.fail_after(PATIENCE_S):
                    status, _ = await _ask(ours, method, b"/spoilt")
                found.accepted[str(status)] += 1
            except (PeerFailed, ApplicationError) as error:
                found.refused[str(error)[:60]] += 1
            except Exception as error:  # noqa: BLE001 - what is looked for
                found.bugs[f"{type(error).__name__}: {error}"[:200]] += 1
            try:
                answer = await _ask(ours, "GET", b"/sound")
            except PeerFailed:  # the end of the connection came after it was looked for
                answer = await _ask(ours, "GET", b"/sound")
            if answer != (200, b"sound"):
                found.bugs[f"the next answer is {answer!r:.100}"] += 1
        await ours.aclose()
        nursery.cancel_scope.cancel()
    return found


async def _ask(ours: HttpConnections, method: str, target: bytes) -> tuple[int, bytes]:
    exchange = await ours.begin(method, target, [], b"")
    try:
        await exchange.gather(MOST, or_begin=False)
    finally:
        exchange.close()
    return exchange.answer.status, exchange.answer.take()
