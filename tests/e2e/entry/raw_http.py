"""HTTP/1.1 as bytes: a caller that takes answers apart, and an application that sends any bytes."""

from __future__ import annotations

import base64
import json
import socket
import socketserver
import threading
import zlib
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import BufferedIOBase

    from ringpop_py.base.address import Address

TIMEOUT_S = 15.0
Pairs = list[tuple[bytes, bytes]]
PROBE = b"GET /probe HTTP/1.1\r\nHost: probe\r\nX-Key: k\r\nConnection: close\r\n\r\n"
PING, COMPRESSED = 0x89, 0x40
FRAME = b"\x81\x80abcd"
"""A websocket's empty text."""


class WireAnswer(NamedTuple):
    """One answer as it came; *interim* are the statuses before it."""

    version: bytes
    status: int
    reason: bytes
    headers: Pairs
    body: bytes
    trailers: Pairs
    interim: list[int]

    def values(self, name: bytes) -> list[bytes]:
        return [value for each, value in self.headers if each.lower() == name]


class Heard(NamedTuple):
    """The answers on one connection, and whether it takes another request after them."""

    answers: list[WireAnswer]
    keeps: bool


def ask(address: Address, parts: Sequence[bytes], methods: Sequence[str], *, probe: bool) -> Heard:
    """Send requests with *methods*; each part after the first waits for an interim answer.

    Args:
        probe: whether to send one more, to see whether the connection is kept.
    """
    with socket.create_connection((address.host, address.port), timeout=TIMEOUT_S) as caller:
        left = list(parts)
        caller.sendall(left.pop(0))
        reader, answers = caller.makefile("rb"), list[WireAnswer]()
        for method in methods:
            answer = _read(caller, reader, method, left)
            if answer is None:
                return Heard(answers, keeps=False)
            answers.append(answer)
        if not probe:
            return Heard(answers, keeps=False)
        try:
            caller.sendall(PROBE)
            return Heard(answers, keeps=bool(reader.readline()))
        except OSError:
            return Heard(answers, keeps=False)


def _read(
    caller: socket.socket, reader: BufferedIOBase, method: str, left: list[bytes]
) -> WireAnswer | None:
    interim = list[int]()
    while line := _line(reader):
        version, _, rest = line.rstrip(b"\r\n").partition(b" ")
        status, _, reason = rest.partition(b" ")
        headers = _pairs(reader)
        if not 100 <= int(status) < 200 or int(status) == 101:
            answer = WireAnswer(version, int(status), reason, headers, b"", [], interim)
            if int(status) == 101:
                caller.sendall(FRAME)
                return answer._replace(body=_frame(reader) + b"|" + _frame(reader))
            return _with_body(answer, reader, method)
        interim.append(int(status))
        if left:
            caller.sendall(left.pop(0))
    return None


def _with_body(answer: WireAnswer, reader: BufferedIOBase, method: str) -> WireAnswer:
    if method == "HEAD" or answer.status in (204, 304):
        return answer
    if answer.values(b"transfer-encoding"):
        body = b""
        while size := int(_line(reader).partition(b";")[0] or b"0", 16):
            body += reader.read(size)
            reader.readline()
        return answer._replace(body=body, trailers=_pairs(reader))
    lengths = answer.values(b"content-length")
    return answer._replace(body=reader.read(int(lengths[0])) if lengths else reader.read())


def _pairs(reader: BufferedIOBase) -> Pairs:
    found: Pairs = []
    while line := _line(reader).rstrip(b"\r\n"):
        name, _, value = line.partition(b":")
        found.append((name, value.strip(b" \t")))
    return found


def _line(reader: BufferedIOBase) -> bytes:
    try:
        return reader.readline()
    except ConnectionResetError:
        return b""


def _frame(reader: BufferedIOBase) -> bytes:
    first, size = reader.read(2)
    if first == PING:
        return _frame(reader)
    if size == 126:
        size = int.from_bytes(reader.read(2))
    data = reader.read(size)
    if first & COMPRESSED:
        data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data + b"\0\0\xff\xff")
    return b"%x " % (first & ~COMPRESSED) + data


class RawApp(socketserver.ThreadingTCPServer):
    """An application that sends the bytes in ``X-Answer`` (base64), or else what came.

    With ``X-Close`` it closes the connection after them.
    """

    daemon_threads = allow_reuse_address = True

    def __init__(self, address: Address) -> None:
        super().__init__((address.host, address.port), _RawHandler)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self.server_close()


class _RawHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while line := _line(self.rfile):
            headers = _pairs(self.rfile)
            known = {name.lower(): value for name, value in headers}
            if b"x-answer" in known:
                self.rfile.read(int(known.get(b"content-length", 0)))
                self.wfile.write(base64.b64decode(known[b"x-answer"]))
            else:
                texts = [[name.decode(), value.decode("latin-1")] for name, value in headers]
                method, target, _ = line.decode("latin-1").split(" ")
                said = {"method": method, "raw_path": target, "headers": texts, "body": "0"}
                seen = json.dumps(said).encode()
                self.wfile.write(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(seen) + seen
                )
            if b"x-close" in known:
                return
