"""HTTP over calls, as Ringpop does it: the head in arg2 (JSON), the body in arg3.

The owner's daemon replays a request to its own local application. Where that is, is configured;
nothing in a request can choose another target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from ringpop_py.errors import BodyError
from ringpop_py.proxy.head import AnyKey, Head, KeyspaceBelief
from ringpop_py.proxy.request import Headers, HttpReply, HttpRequest
from ringpop_py.values.declared import Checksum, Meta, Text, astuple
from ringpop_py.values.go_json import GoObject, decode_go_json, go_reader
from ringpop_py.values.packed import encode_value

if TYPE_CHECKING:
    from collections.abc import Iterable

PROXY_ENDPOINT: Final = "/proxy/req"
STATUS_MAX: Final = 999
URL_CHARACTERS_MAX: Final = 16_384
HEADER_CHARACTERS_MAX: Final = 1 << 17
"""More than an HTTP/1.1 client such as httpx takes of a whole head, so that none is lost here."""

# Headers about one connection and not about the message (RFC 9110, 7.6.1), and those that the
# client that replays writes itself.
_CONNECTION_HEADERS: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_REWRITTEN_HEADERS: Final = frozenset({"host", "content-length"})
HeaderText = Annotated[str, Meta(max_length=HEADER_CHARACTERS_MAX)]

HeaderMap = dict[str, HeaderText | list[HeaderText | None] | None]


class _RequestHead(GoObject, frozen=True):
    url: Annotated[str, Meta(max_length=URL_CHARACTERS_MAX)] = ""
    headers: HeaderMap | None = None
    method: Text = ""
    ringpop_checksum: Checksum | None = None
    ringpop_keys: tuple[AnyKey | None, ...] = ()
    ringpop_keyspace: KeyspaceBelief | None = None


class _ReplyHead(GoObject, frozen=True):
    status_code: Annotated[int, Meta(ge=0, le=STATUS_MAX)]
    headers: HeaderMap | None = None


_read_request_head: Final = go_reader(_RequestHead, "head")
_read_reply_head: Final = go_reader(_ReplyHead, "head")


def end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    """*headers* without those about one connection, those named by Connection included."""
    pairs = tuple(headers)
    named = {
        token.strip().lower()
        for key, value in pairs
        if key.lower() == "connection"
        for token in value.split(",")
    }
    dropped = named | _CONNECTION_HEADERS | _REWRITTEN_HEADERS
    return tuple((key, value) for key, value in pairs if key.lower() not in dropped)


def encode_http_head(request: HttpRequest, head: Head) -> bytes:
    """The head of *request* as arg2; of *head* the keys, and what is believed of their owner."""
    value: dict[str, object] = {
        "url": request.path,
        "headers": _grouped(end_to_end(request.headers)),
        "method": request.method,
        "httpVersion": "1.1",
        "ringpopChecksum": head.ring_checksum,
        "ringpopKeys": list(head.keys),
    }
    if head.keyspace is not None:
        value["ringpopKeyspace"] = astuple(head.keyspace)
    return encode_value("json", value)


def decode_http_head(arg2: bytes, body: bytes) -> tuple[HttpRequest, Head]:
    """The request in *arg2* and *body*; of its head the keys, and what the sender believed.

    Raises:
        BodyError: if it is not one; ConfigError, which is a ValueError, where the method or
            the path cannot be.
    """
    said = _read_request_head(decode_go_json(arg2))
    request = HttpRequest(said.method, said.url, end_to_end(_pairs(said.headers)), body)
    keys = tuple(key or "" for key in said.ringpop_keys)
    head = Head(keys, said.ringpop_checksum, keyspace=said.ringpop_keyspace)
    return request, head.checked()


def encode_http_reply_head(status: int, headers: Headers) -> bytes:
    """The head of a reply as arg2."""
    return encode_value("json", {"statusCode": status, "headers": _grouped(headers)})


def decode_http_reply(arg2: bytes, body: bytes, owner: str) -> HttpReply:
    """The reply in *arg2* and *body*.

    Raises:
        BodyError: if it is not one.
    """
    said = _read_reply_head(decode_go_json(arg2))
    return HttpReply(said.status_code, tuple(_pairs(said.headers)), body, owner)


def _grouped(headers: Headers) -> dict[str, str | list[str]]:
    """Headers as a map; a name that stands several times has a list."""
    grouped: dict[str, str | list[str]] = {}
    for key, value in headers:
        name = key.lower()
        before = grouped.get(name)
        if before is None:
            grouped[name] = value
        elif isinstance(before, list):
            before.append(value)
        else:
            grouped[name] = [before, value]
    return grouped


def _pairs(headers: HeaderMap | None) -> Iterable[tuple[str, str]]:
    for key, item in (headers or {}).items():
        for text in item if isinstance(item, list) else [item]:
            checked = text or ""
            if any(c in "\r\n\0" for c in key + checked):
                raise BodyError("a header holds a line break")
            yield key, checked
