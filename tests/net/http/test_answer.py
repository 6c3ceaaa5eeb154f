"""Answers to requests, from bytes that come in pieces of any size."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import PeerFailed
from ringpop_py.net.http.answer import HEAD_BYTES_MAX, AnswerReader

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


def read(data: bytes, method: str = "GET", size: int = 1 << 16) -> AnswerReader:
    """Read *data* in pieces of *size*, and then the end of the connection, if that is needed."""
    reader = AnswerReader(method)
    for start in range(0, len(data), size):
        reader.receive(data[start : start + size])
        if reader.is_whole:
            reader.keeps &= start + size >= len(data)  # the rest is found when it is idle
            return reader
    reader.end()
    return reader


@pytest.mark.parametrize("size", [1, 2, 7, 1 << 16])
@pytest.mark.parametrize(
    ("data", "body", "keeps"),
    [
        (OK + b"content-length: 2\r\n\r\nok", b"ok", True),
        (OK + b"Content-Length:  2 \t\r\n\r\nok", b"ok", True),
        (OK + b"content-length: 0\r\n\r\n", b"", True),
        (OK + b"content-length: 2\r\nconnection: close\r\n\r\nok", b"ok", False),
        (OK + b"content-length: 2\r\nconnection: x, Close\r\n\r\nok", b"ok", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok", False),
        (OK + b"\r\nuntil the end", b"until the end", False),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\n", b"ok", True),
        (CHUNKED + b"1;x=y\r\no\r\n1\r\nk\r\n0\r\nx-trailer: 1\r\n\r\n", b"ok", True),
        (CHUNKED + b"0\r\n\r\n", b"", True),
        (b"HTTP/1.1 204 No\r\n\r\n", b"", True),
        (b"HTTP/1.1 304 No\r\ncontent-length: 9\r\n\r\n", b"", True),
        (b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 103 x\r\na: b\r\n\r\n" + OK + b"\r\n", b"", False),
        (b"HTTP/1.1 100 Go\r\n\r\n" + CHUNKED + b"2\r\nok\r\n0\r\n\r\n", b"ok", True),
        # Something follows: it is no part of the answer, and of no other one.
        (OK + b"content-length: 2\r\n\r\nok\r\n", b"ok", False),
        (OK + b"content-length: 2\r\n\r\nok" + OK + b"content-length: 1\r\n\r\nx", b"ok", False),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\n\r\n", b"ok", False),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\n\n", b"ok", False),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\nH", b"ok", False),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\n" + CHUNKED + b"1\r\nx\r\n0\r\n\r\n", b"ok", False),
        (CHUNKED + b"0\r\n\r\n" + OK + b"content-length: 0\r\n\r\n", b"", False),
        (b"HTTP/1.1 204 No\r\n\r\nx", b"", False),
    ],
)
def test_an_answer_ends_where_its_head_says(
    data: bytes, body: bytes, size: int, *, keeps: bool
) -> None:
    reader = read(data, size=size)

    assert (bytes(reader.body), reader.keeps) == (body, keeps)


@pytest.mark.parametrize("size", [1, 1 << 16])
@pytest.mark.parametrize(
    "head", [b"content-length: 7\r\n", b"transfer-encoding: chunked\r\n", b"x: y\r\n"]
)
def test_an_answer_to_head_has_no_body(head: bytes, size: int) -> None:
    assert read(OK + head + b"\r\n", "HEAD", size).keeps
    assert not read(OK + head + b"\r\n1234567", "HEAD").keeps


def test_names_are_in_small_letters_and_values_are_text() -> None:
    reader = read(OK + b"Set-Cookie: a\r\nset-cookie: b\r\nX: \xc3\xa9\r\nY: \xe9\r\n\r\n")

    assert reader.headers == [("set-cookie", "a"), ("set-cookie", "b"), ("x", "é"), ("y", "é")]


@pytest.mark.parametrize("size", [1, 1 << 16])
@pytest.mark.parametrize(
    "data",
    [
        OK + b"content-length: 2\r\ncontent-length: 2\r\n\r\nok",
        OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok",
        OK + b"content-length: 2, 2\r\n\r\nok",
        OK + b"content-length: +2\r\n\r\nok",
        OK + b"content-length: 0x2\r\n\r\nok",
        OK + b"content-length:\r\n\r\nok",
        OK + b"content-length: 18446744073709551618\r\n\r\nok",
        OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK + b"transfer-encoding: chunked, gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK + b"transfer-encoding: identity\r\n\r\nok",
        OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        CHUNKED + b"0x2\r\nok\r\n0\r\n\r\n",
        CHUNKED + b"2\nok\n0\n\n",
        CHUNKED + b"2\r\nokX0\r\n\r\n",
        CHUNKED + b" 2\r\nok\r\n0\r\n\r\n",
        CHUNKED + b"-2\r\nok\r\n0\r\n\r\n",
        CHUNKED + b"fffffffffffffffff\r\nok",
        CHUNKED + b"0\r\nbad trailer\r\n\r\n",
        OK + b"a b: c\r\n\r\n",
        OK + b"a : c\r\n\r\n",
        OK + b"a: c\r\n d\r\n\r\n",
        OK + b": c\r\n\r\n",
        OK + b"abc\r\n\r\n",
        OK + b"a: c\0d\r\n\r\n",
        OK + b"a: b\nc: d\r\n\r\n",
        OK + b"a: b\rc: d\r\n\r\n",
        b"\r\n" + OK + b"content-length: 0\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"ICE/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 099 x\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 2000 x\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 101 x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        # They end too soon.
        b"",
        OK,
        b"HTTP/1.1 100 Go\r\n\r\n",
        OK + b"content-length: 3\r\n\r\nok",
        CHUNKED + b"2\r\nok\r\n",
        CHUNKED + b"2\r\nok\r\n0\r\n",
    ],
)
def test_an_ambiguous_answer_is_refused(data: bytes, size: int) -> None:
    with pytest.raises(PeerFailed, match="the application broke off") as refused:
        read(data, size=size)
    assert refused.value.took_effect == "unknown"


@pytest.mark.parametrize("came", [b"", b"H"])
def test_it_is_said_whether_anything_of_an_answer_came(came: bytes) -> None:
    with pytest.raises(PeerFailed, match="within its" if came else "without an"):
        read(came)


ENDLESS = {
    "a head": (OK + b"a: ", b"x"),
    "heads": (b"", b"HTTP/1.1 100 Go\r\n\r\n"),
    "a chunk": (CHUNKED + b"1;", b"x"),
    "trailers": (CHUNKED + b"2\r\nok\r\n0\r\n", b"a: b\r\n"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_heads_and_trailers_have_a_limit(name: str) -> None:
    begin, more = ENDLESS[name]
    reader = AnswerReader("GET")
    reader.receive(begin)
    piece = more * (4_096 // len(more))
    for _ in range(HEAD_BYTES_MAX // len(piece) - 1):
        reader.receive(piece)

    with pytest.raises(PeerFailed, match="heads or trailers"):
        reader.receive(piece * 3)
