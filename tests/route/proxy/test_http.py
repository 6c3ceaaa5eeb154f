"""HTTP over calls: heads and headers."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import BodyError, ConfigError
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.net.http.message import end_to_end
from ringpop_py.route.proxy.head import Head, KeyspaceBelief
from ringpop_py.route.proxy.http import decode_http_head, decode_http_reply, encode_http_head
from ringpop_py.route.proxy.request import HttpReply, HttpRequest


def test_headers_of_one_connection_are_dropped_those_that_connection_names_too() -> None:
    headers = (
        ("Host", "evil.example"),
        ("Connection", "close, X-Hop"),
        ("X-Hop", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "5"),
        ("Upgrade", "h2c"),
        ("Accept", "text/plain"),
        ("X-Many", "1"),
        ("X-Many", "2"),
    )

    kept = end_to_end(headers)

    assert kept == (("Accept", "text/plain"), ("X-Many", "1"), ("X-Many", "2"))


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://other.host/"},
        {"url": "//other.host/"},
        {"method": "GET / HTTP/1.1\r\n"},
        {"headers": {"X": "1\r\nY: 2"}},
        {"headers": {"X": 5}},
        {"headers": []},
        {"ringpopKeys": "k"},
        {"ringpopChecksum": -1},
        {"url": None},
    ],
)
def test_a_hostile_head_is_refused(change: dict[str, object]) -> None:
    value = {"url": "/x", "headers": {}, "method": "GET", "ringpopKeys": ["k"], **change}

    with pytest.raises((BodyError, ConfigError)):
        decode_http_head(encode_value("json", value), b"")


HEAD = {
    "url": "/x",
    "headers": {"accept": "a"},
    "method": "GET",
    "httpVersion": "1.1",
    "ringpopChecksum": 7,
    "ringpopKeys": ["k"],
}


@pytest.mark.parametrize("unset", ["missing", "null"])
@pytest.mark.parametrize(
    ("name", "request_", "head"),
    [
        ("headers", HttpRequest("GET", "/x"), Head(("k",), 7)),
        ("httpVersion", HttpRequest("GET", "/x", (("accept", "a"),)), Head(("k",), 7)),
        ("ringpopChecksum", HttpRequest("GET", "/x", (("accept", "a"),)), Head(("k",), None)),
        ("ringpopKeys", HttpRequest("GET", "/x", (("accept", "a"),)), Head((), 7)),
    ],
)
def test_a_field_of_a_head_that_is_not_set_is_its_zero(
    unset: str, name: str, request_: HttpRequest, head: Head
) -> None:
    value = {key: item for key, item in HEAD.items() if key != name}
    if unset == "null":
        value |= {name: None}

    assert decode_http_head(encode_value("json", value), b"") == (request_, head)


@pytest.mark.parametrize("name", ["url", "method"])
def test_a_request_without_method_or_path_is_no_request(name: str) -> None:
    value = {key: item for key, item in HEAD.items() if key != name}

    with pytest.raises(ConfigError, match="'' is not"):
        decode_http_head(encode_value("json", value), b"")


def test_fields_of_heads_are_found_whatever_their_case_and_others_are_ignored() -> None:
    upper = {key.upper(): item for key, item in HEAD.items()}

    request, head = decode_http_head(encode_value("json", {**upper, "new": 1}), b"")
    reply = decode_http_reply(b'{"STATUSCODE":200,"Headers":null,"new":[]}', b"", "b")

    assert (request, head) == decode_http_head(encode_value("json", HEAD), b"")
    assert reply == HttpReply(200, (), b"", "b")


def test_null_among_keys_and_headers_is_empty_text() -> None:
    value = {**HEAD, "ringpopKeys": ["k", None], "headers": {"a": None, "b": ["c", None]}}

    request, head = decode_http_head(encode_value("json", value), b"")

    assert head.keys == ("k", "")
    assert request.headers == (("a", ""), ("b", "c"), ("b", ""))


@pytest.mark.parametrize(
    "head", [b"", b"null", b"{}", b'{"statusCode":null}', b'{"statusCode":""}']
)
def test_a_reply_without_a_status_is_no_reply(head: bytes) -> None:
    with pytest.raises(BodyError, match=r"head: .*statusCode"):
        decode_http_reply(head, b"", "b")


def test_a_request_comes_back_as_it_went() -> None:
    request = HttpRequest("POST", "/users/42?x=1", (("accept", "a"), ("accept", "b")), b"body")

    head = Head(("user:42",), 7, keyspace=KeyspaceBelief("users", 3, (12,)))

    assert decode_http_head(encode_http_head(request, head), b"body") == (request, head)


def test_the_head_has_the_names_that_ringpop_uses() -> None:
    head = encode_http_head(HttpRequest("GET", "/x"), Head(("k",), 7))

    assert decode_value("json", head) == {
        "url": "/x",
        "headers": {},
        "method": "GET",
        "httpVersion": "1.1",
        "ringpopChecksum": 7,
        "ringpopKeys": ["k"],
    }
