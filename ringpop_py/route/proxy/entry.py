"""What a web application and its daemon say to each other: who owns keys, and requests to forward.

`FOLLOW` asks for the ring; the answer comes at once if it is another one than the asker knows, and
else when it changes. `FORWARD` asks for an HTTP request to be answered by the owner of its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import BodyError, HandlerFailed
from ringpop_py.base.values.declared import (
    Checksum,
    Named,
    Natural,
    Text,
    decode,
    encode,
    reader,
)
from ringpop_py.net.http.message import Flow, end_to_end
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.route.proxy.failures import decode_failure, encode_failure
from ringpop_py.route.proxy.head import NO_TRIES, AnyKey, HeaderText, HttpStatus, Positive, Tries
from ringpop_py.route.proxy.http import UrlText as UrlText
from ringpop_py.route.proxy.http import has_break
from ringpop_py.route.proxy.request import (
    HttpReply,
    HttpRequest,
    OwnerReply,
    Reply,
    Request,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.route.proxy.head import HeadOptions
    from ringpop_py.route.proxy.request import AnyRequest

FOLLOW_ENDPOINT: Final = "/entry/follow"
FORWARD_ENDPOINT: Final = "/entry/forward"
ALL_ENDPOINT: Final = "/entry/all"
HERE: Final = 0
"""The status of an answer that the asker is to give itself: its host owns the key."""


class Follow(Named, frozen=True):
    """A question for the ring; *checksum* is that of the one that the asker has."""

    checksum: Checksum | None = None


class RingOwner(Named, frozen=True):
    """A member that owns keys, and where others reach it; port 0 if that is not told."""

    name: Text
    identity: Text
    host: Text = ""
    port: Natural = 0


class RingReply(Named, frozen=True):
    """The ring of the member *name*.

    Attributes:
        mark: the value of the header `MARK` in what this daemon replays.
    """

    name: Text
    mark: Text
    dialect: Text
    points_count: Natural
    checksum: Checksum
    owners: tuple[RingOwner, ...]


class ForwardHead(Named, frozen=True):
    """What stands in arg2 of a request to forward; its body is arg3.

    Attributes:
        may_be_here: whether the asker can answer itself, if its host owns the key.
        idempotent, failover, tries: see `Head`.
        keyspace: the name of the keyspace that owns the key; empty if the ring does.
        flow: see `HttpRequest`.
    """

    key: AnyKey
    method: Text
    path: UrlText
    headers: tuple[tuple[HeaderText, HeaderText], ...]
    may_be_here: bool = False
    idempotent: bool = False
    failover: Positive = 1
    tries: Tries = NO_TRIES
    keyspace: Text = ""
    flow: Flow | None = None


class AllHead(Named, frozen=True):
    """What stands in arg2 of a request for each owner of *keys*; its body is arg3.

    Attributes:
        endpoint: of the application; empty for HTTP, which has *method* and *path*.
        may_be_here: see `ForwardHead`; only of HTTP.
    """

    keys: tuple[AnyKey, ...]
    endpoint: Text = ""
    method: Text = ""
    path: UrlText = ""
    headers: tuple[tuple[HeaderText, HeaderText], ...] = ()
    may_be_here: bool = False
    idempotent: bool = False
    failover: Positive = 1
    tries: Tries = NO_TRIES


class OwnerAnswer(Named, frozen=True):
    """The answer of one owner, or that there is none.

    Attributes:
        keys: those of it, by their places in the request.
        failure: see `failures.encode_failure`; empty if there is an answer.
        status: of HTTP, or `HERE`.
    """

    owner: Text
    keys: tuple[Natural, ...]
    failure: bytes = b""
    status: HttpStatus = HERE
    headers: tuple[tuple[HeaderText, HeaderText], ...] = ()
    body: bytes = b""


class ReplyHead(Named, frozen=True):
    """The same for the answer; *owner* is who gave it, and for *stream* see `HttpReply`."""

    owner: Text
    status: HttpStatus
    headers: tuple[tuple[HeaderText, HeaderText], ...] = ()
    stream: Text = ""


_read_answers: Final = reader(list[OwnerAnswer])


def forward_call(
    key: str,
    request: HttpRequest,
    *,
    may_be_here: bool,
    options: HeadOptions,
    keyspace: str,
    ttl_s: float,
) -> Call:
    """Return the call by which a daemon is asked to forward *request*."""
    method, path, headers = request.method, request.path, end_to_end(request.headers)
    head = ForwardHead(
        key, method, path, headers, may_be_here, keyspace=keyspace, flow=request.flow, **options
    )
    return Call(NODE_SERVICE, FORWARD_ENDPOINT, encode(head), request.body, ttl_s=ttl_s)


def all_call(
    keys: Sequence[str], request: AnyRequest, *, options: HeadOptions, ttl_s: float
) -> Call:
    """Return the call by which a daemon is asked to have each owner of *keys* answer *request*."""
    if isinstance(request, HttpRequest):
        headers, path = end_to_end(request.headers), request.path
        head = AllHead((*keys,), "", request.method, path, headers, may_be_here=True, **options)
    else:
        head = AllHead((*keys,), request.endpoint, headers=request.headers, **options)
    return Call(NODE_SERVICE, ALL_ENDPOINT, encode(head), request.body, ttl_s=ttl_s)


def request_for_all(arg2: bytes, body: bytes) -> tuple[AllHead, AnyRequest]:
    """Return what is in the arguments of such a call.

    Raises:
        BodyError: they cannot be read.
        ConfigError: there can be no such request.
    """
    head = decode(AllHead, arg2)
    if head.endpoint:
        return head, Request(head.endpoint, body, head.headers)
    check_headers(head.headers)
    return head, HttpRequest(head.method, head.path, head.headers, body)


def encode_replies(replies: Sequence[OwnerReply], keys: Sequence[str], most: int) -> bytes:
    """Return *replies* to a request for *keys* as arg3 of about so many bytes at most.

    A reply that does not fit becomes an error, which says so.
    """
    places: dict[str, int] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, place)
    sent = []
    for reply in replies:
        one = _sent(reply, tuple(places[key] for key in reply.keys))
        size = len(encode(one))
        if size > most:
            failure = HandlerFailed("TooLarge", "it has run, and its answer is too large here")
            one, size = OwnerAnswer(one.owner, one.keys, encode_failure(failure)), 0
        most -= size
        sent.append(one)
    return encode(sent)


def _sent(of: OwnerReply, places: tuple[int, ...]) -> OwnerAnswer:
    match of.reply:
        case HttpReply(status, headers, body, owner):
            return OwnerAnswer(owner, places, b"", status, headers, body)
        case Reply(body, owner):
            return OwnerAnswer(owner, places, body=body)
        case _:
            failure = b"" if of.error is None else encode_failure(of.error)
            return OwnerAnswer(of.owner, places, failure)


def decode_replies(body: bytes, keys: Sequence[str], request: AnyRequest) -> list[OwnerReply]:
    """Return the replies in arg3 to *request* for *keys*. Raises BodyError."""
    return [_came(each, keys, request) for each in _read_answers(body)]


def _came(said: OwnerAnswer, keys: Sequence[str], request: AnyRequest) -> OwnerReply:
    if any(place >= len(keys) for place in said.keys):
        raise BodyError("it answers keys that were not asked")
    asked = tuple(keys[place] for place in said.keys)
    if said.failure:
        return OwnerReply(said.owner, asked, error=decode_failure(said.failure))
    if not isinstance(request, HttpRequest):
        return OwnerReply(said.owner, asked, Reply(said.body, said.owner))
    if said.status == HERE:
        return OwnerReply(said.owner, asked)
    check_headers(said.headers)
    reply = HttpReply(said.status, said.headers, said.body, said.owner)
    return OwnerReply(said.owner, asked, reply)


def forwarded_in(arg2: bytes, body: bytes) -> tuple[ForwardHead, HttpRequest]:
    """Return what is in the arguments of such a call.

    Raises:
        BodyError: they cannot be read.
        ConfigError: there can be no such request.
    """
    head = decode(ForwardHead, arg2)
    check_headers(head.headers)
    return head, HttpRequest(head.method, head.path, head.headers, body, head.flow)


def reply_in(arg2: bytes, body: bytes) -> HttpReply | None:
    """Return the reply in an answer; None if the asker is to give it. Raises BodyError."""
    head = decode(ReplyHead, arg2)
    if head.status == HERE:
        return None
    check_headers(head.headers)
    return HttpReply(head.status, head.headers, body, head.owner, head.stream)


def check_headers(headers: Sequence[tuple[str, str]]) -> None:
    """Raise BodyError if a header would begin another one."""
    for name, value in headers:
        if has_break(name) or has_break(value):
            raise BodyError("a header holds a line break")
