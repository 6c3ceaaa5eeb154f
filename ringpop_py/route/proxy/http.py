"""HTTP over calls, as Ringpop does it: the head in arg2 (JSON), the body in arg3.

The owner's daemon replays a request to its own local application. Its address is configured, and
nothing in a request can choose another target.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import Checksum, Meta, Text, astuple
from ringpop_py.base.values.go_json import GoObject, decode_go_json, go_reader
from ringpop_py.base.values.packed import encode_value
from ringpop_py.route.proxy.head import AnyKey, Head, HeaderText, KeyspaceBelief, Positive
from ringpop_py.route.proxy.request import Headers, HttpReply, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

PROXY_ENDPOINT: Final = "/proxy/req"
STATUS_MAX: Final = 999
URL_CHARACTERS_MAX: Final = 16_384

# Headers about one connection and not about the message (RFC 9110, 7.6.1), and two that the
# client writes itself when it replays a request.
_DROPPED_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
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

has_break: Final = re.compile("[\r\n\0]").search
"""Whether a text would end its header and begin another one."""
HeaderMap = dict[str, HeaderText | list[HeaderText | None] | None]


class _RequestHead(GoObject, frozen=True):
    url: Annotated[str, Meta(max_length=URL_CHARACTERS_MAX)] = ""
    headers: HeaderMap | None = None
    method: Text = ""
    ringpop_checksum: Checksum | None = None
    ringpop_keys: tuple[AnyKey | None, ...] = ()
    ringpop_keyspace: KeyspaceBelief | None = None
    ringpop_failover: Positive = 1


class _ReplyHead(GoObject, frozen=True):
    status_code: Annotated[int, Meta(ge=0, le=STATUS_MAX)]
    headers: HeaderMap | None = None


_read_request_head: Final = go_reader(_RequestHead, "head")
_read_reply_head: Final = go_reader(_ReplyHead, "head")


def end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return *headers* without those about one connection, and those that Connection names."""
    pairs = tuple(headers)
    named = {
        token.strip().lower()
        for key, value in pairs
        if key.lower() == "connection"
        for token in value.split(",")
    }
    dropped = named | _DROPPED_HEADERS
    return tuple((key, value) for key, value in pairs if key.lower() not in dropped)


def encode_http_head(request: HttpRequest, head: Head) -> bytes:
    """Return the head of *request*, with the keys and beliefs of *head*, as arg2."""
    value: dict[str, object] = {
        "url": request.path,
        "headers": _grouped(end_to_end(request.headers)),
        "method": request.method,
        # Ringpop sends it, so its readers may expect it.
        "httpVersion": "1.1",
        "ringpopChecksum": head.ring_checksum,
        "ringpopKeys": list(head.keys),
    }
    if head.keyspace is not None:
        value["ringpopKeyspace"] = astuple(head.keyspace)
    if head.failover > 1:
        value["ringpopFailover"] = head.failover
    return encode_value("json", value)


def decode_http_head(arg2: bytes, body: bytes) -> tuple[HttpRequest, Head]:
    """Return the request in *arg2* and *body*, and its keys and beliefs as a `Head`.

    Raises:
        BodyError: it cannot be read.
        ConfigError: its method or path cannot be.
    """
    said = _read_request_head(decode_go_json(arg2))
    request = HttpRequest(said.method, said.url, end_to_end(_pairs(said.headers)), body)
    keys = tuple(key or "" for key in said.ringpop_keys)
    head = Head(
        keys, said.ringpop_checksum, keyspace=said.ringpop_keyspace, failover=said.ringpop_failover
    )
    return request, head.checked()


def encode_http_reply_head(status: int, headers: Headers) -> bytes:
    """Return the head of a reply as arg2."""
    return encode_value("json", {"statusCode": status, "headers": _grouped(headers)})


def decode_http_reply(arg2: bytes, body: bytes, owner: str) -> HttpReply:
    """Return the reply in *arg2* and *body*. Raises BodyError."""
    said = _read_reply_head(decode_go_json(arg2))
    return HttpReply(said.status_code, tuple(_pairs(said.headers)), body, owner)


def _grouped(headers: Headers) -> dict[str, str | list[str]]:
    """Return headers as a map; a name that stands several times has a list."""
    grouped: dict[str, list[str]] = {}
    for key, value in headers:
        # Names of headers are equal whatever their case; as keys of a map they are not.
        grouped.setdefault(key.lower(), []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in grouped.items()}


def _pairs(headers: HeaderMap | None) -> Iterable[tuple[str, str]]:
    for key, item in (headers or {}).items():
        for text in item if isinstance(item, list) else [item]:
            checked = text or ""
            if has_break(key) or has_break(checked):
                raise BodyError("a header holds a line break")
            yield key, checked
