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
from ringpop_py.net.http.message import Flow, Headers, HttpReply, HttpRequest, end_to_end
from ringpop_py.route.proxy.head import (
    AnyKey,
    Head,
    HeaderText,
    HttpStatus,
    KeyspaceBelief,
    Positive,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

PROXY_ENDPOINT: Final = "/proxy/req"
FLOW_ENDPOINT: Final = "/proxy/flow"
"""That of requests whose body is not all there: a node that knows nothing of them refuses them."""
URL_CHARACTERS_MAX: Final = 16_384

UrlText = Annotated[str, Meta(max_length=URL_CHARACTERS_MAX)]

has_break: Final = re.compile("[\r\n\0]").search
"""Whether a text would end its header and begin another one."""
HeaderMap = dict[str, HeaderText | list[HeaderText | None] | None]


class _RequestHead(GoObject, frozen=True):
    url: UrlText = ""
    headers: HeaderMap | None = None
    method: Text = ""
    ringpop_checksum: Checksum | None = None
    ringpop_keys: tuple[AnyKey | None, ...] = ()
    ringpop_keyspace: KeyspaceBelief | None = None
    ringpop_failover: Positive = 1
    ringpop_flow: Flow | None = None


class _ReplyHead(GoObject, frozen=True):
    status_code: HttpStatus
    headers: HeaderMap | None = None
    ringpop_stream: Text = ""


_read_request_head: Final = go_reader(_RequestHead, "head")
_read_reply_head: Final = go_reader(_ReplyHead, "head")


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
    if request.flow is not None:
        value["ringpopFlow"] = list(request.flow)
    return encode_value("json", value)


def decode_http_head(arg2: bytes, body: bytes) -> tuple[HttpRequest, Head]:
    """Return the request in *arg2* and *body*, and its keys and beliefs as a `Head`.

    Raises:
        BodyError: it cannot be read.
        ConfigError: its method or path cannot be.
    """
    said = _read_request_head(decode_go_json(arg2))
    headers = end_to_end(_pairs(said.headers))
    request = HttpRequest(said.method, said.url, headers, body, said.ringpop_flow)
    keys = tuple(key or "" for key in said.ringpop_keys)
    head = Head(
        keys, said.ringpop_checksum, keyspace=said.ringpop_keyspace, failover=said.ringpop_failover
    )
    return request, head.checked()


def encode_http_reply_head(status: int, headers: Headers, stream: str = "") -> bytes:
    """Return the head of a reply as arg2."""
    value: dict[str, object] = {"statusCode": status, "headers": _grouped(headers)}
    if stream:
        value["ringpopStream"] = stream
    return encode_value("json", value)


def decode_http_reply(arg2: bytes, body: bytes, owner: str) -> HttpReply:
    """Return the reply in *arg2* and *body*. Raises BodyError."""
    said = _read_reply_head(decode_go_json(arg2))
    headers = tuple(_pairs(said.headers))
    return HttpReply(said.status_code, headers, body, owner, said.ringpop_stream)


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
