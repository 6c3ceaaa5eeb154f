"""The answer to one request of HTTP/1.1, read from bytes: strictly, and within limits (pure).

llhttp parses heads and chunks. Where a body ends is decided here (RFC 9112, 6.3). The answer to a
HEAD, and one with status 204 or 304, has none. Otherwise it ends after the trailers of its chunks
or after its length, and without these with the connection. What leaves room for doubt is refused:
several lengths, a length and an encoding, or another encoding. Bytes after the end are no part of
an answer, nor of the next one.
"""

from __future__ import annotations

from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ringpop_py.base.errors import PeerFailed

HEAD_BYTES_MAX: Final = 100 * 1024
"""The most bytes of all heads of an answer, and of what is between chunks or after them."""
BLANK: Final = b"\r\n\r\n"
INFORMATIONAL, SWITCHING, FINAL = 100, 101, 200
_WITHOUT_BODY: Final = (204, 304)


class AnswerReader:
    """Reads the answer to one request with *method*.

    Attributes:
        status: 0 until the head of the answer is there, with its headers.
        headers: with names in small letters, without trailers.
        body: what came of it, and was not taken.
        is_whole: whether nothing is missing.
        keeps: whether the connection can take another request; it has a meaning at the end.
    """

    def __init__(self, method: str) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.body = bytearray()
        self.is_whole = False
        self.keeps = False
        self._is_head = method == "HEAD"
        self._head = bytearray()
        self._overhead_bytes = 0
        self._left: int | None = None  # of the body; None if its head does not say
        self._chunks: tuple[HttpResponseParser, _Parsed] | None = None
        self._tail = b""

    def receive(self, data: bytes) -> None:
        """Take in what came.

        Raises:
            PeerFailed: it is not HTTP, or its end is open to doubt.
        """
        try:
            self._take_body(data) if self.status else self._take_heads(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            raise broken_off(str(error)) from None

    @property
    def bytes_known(self) -> int:
        """The bytes of the body that are here, or are said to come."""
        return len(self.body) + (self._left or 0)

    @property
    def trailers(self) -> list[tuple[str, str]]:
        """The headers after the last chunk."""
        if self._chunks is None:
            return []
        named = self._chunks[1].headers[len(self.headers) :]
        return [(name.decode().lower(), _text(value)) for name, value in named]

    def take(self) -> bytes:
        """Return what came of the body, and forget it."""
        taken = bytes(self.body)
        self.body.clear()
        return taken

    def end(self) -> None:
        """Note the end of the connection. Raises PeerFailed if something is missing."""
        if not self.status or self._left is not None or self._chunks is not None:
            began = self.status or self._overhead_bytes
            raise broken_off(f"it closed {'within its' if began else 'without an'} answer")
        self.is_whole = True

    def _take_heads(self, data: bytes) -> None:
        searched = max(len(self._head) - len(BLANK), 0)
        self._head += data
        while not self.status:
            end = self._head.find(BLANK, searched) + len(BLANK)
            if end < len(BLANK):
                self._count(data)
                return
            head, searched = bytes(self._head[:end]), 0
            del self._head[:end]
            self._take_head(head)
        self._take_body(bytes(self._head))

    def _take_head(self, head: bytes) -> None:
        parser = HttpResponseParser(parsed := _Parsed())
        parser.feed_data(head)
        status = parser.get_status_code()
        # The parser also takes other protocols, and passes over blank lines.
        if not head.startswith(b"HTTP/1.") or status < INFORMATIONAL or status == SWITCHING:
            raise broken_off(f"it answered {head[:40]!r}")
        if status < FINAL:
            return
        self.status = status
        self.headers = [(name.decode().lower(), _text(value)) for name, value in parsed.headers]
        length, coding, options = (
            ",".join(value.lower() for name, value in self.headers if name == wanted)
            for wanted in ("content-length", "transfer-encoding", "connection")
        )
        is_current = parser.get_http_version() == "1.1"
        self.keeps = is_current and "close" not in map(str.strip, options.split(","))
        if self._is_head or status in _WITHOUT_BODY:
            self._left = 0
        elif coding:
            if coding != "chunked" or not is_current:
                raise broken_off(f"its answer has the encoding {coding!r:.80}")
            self._chunks, self.body = (parser, parsed), parsed.body
        elif length:
            self._left = int(length)
        else:
            self.keeps = False

    def _take_body(self, data: bytes) -> None:
        if self._chunks is not None:
            self._take_chunks(*self._chunks, data)
        elif self._left is None:
            self.body += data
        else:
            self.body += data[: self._left]
            self.keeps &= len(data) <= self._left
            self._left = max(self._left - len(data), 0)
            self.is_whole = not self._left

    def _take_chunks(self, parser: HttpResponseParser, parsed: _Parsed, data: bytes) -> None:
        before = len(self.body)
        self._tail = (self._tail + data)[-5:]
        try:
            parser.feed_data(data)
        except HttpParserError:
            if not parsed.is_whole:
                raise
            self.keeps = False
        self.is_whole = parsed.is_whole
        # The parser passes over line breaks after the end without a word.
        is_end = self._tail.endswith(BLANK) and not self._tail.startswith(b"\n")
        self.keeps &= not (self.is_whole and (parsed.has_more or not is_end))
        if len(self.body) == before:
            self._count(data)
        else:  # a stream of events may go on for days
            self._overhead_bytes = 0

    def _count(self, data: bytes) -> None:
        self._overhead_bytes += len(data)
        if self._overhead_bytes > HEAD_BYTES_MAX:
            raise broken_off(f"it sent more than {HEAD_BYTES_MAX} bytes of heads or trailers")


class _Parsed:
    """What the parser has found."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        self.is_whole = self.has_more = False

    def on_message_begin(self) -> None:
        self.has_more = self.is_whole

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, data: bytes) -> None:
        if not self.is_whole:
            self.body += data

    def on_message_complete(self) -> None:
        self.is_whole = True


def broken_off(why: str) -> PeerFailed:
    """Return the error of a request without a proper answer; it may have run."""
    return PeerFailed(f"the application broke off: {why}")


def _text(value: bytes) -> str:
    value = value.strip(b" \t")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
