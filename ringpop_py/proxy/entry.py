"""What a web application and its daemon say to each other: who owns keys, and requests to forward.

`FOLLOW` asks for the ring; the answer comes at once if it is another one than the asker knows, and
else when it changes. `FORWARD` asks for an HTTP request to be answered by the owner of its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from ringpop_py.errors import BodyError
from ringpop_py.proxy.head import AnyKey, HeaderText  # noqa: TC001 - read at run time
from ringpop_py.proxy.http import STATUS_MAX, end_to_end
from ringpop_py.proxy.request import HttpReply, HttpRequest
from ringpop_py.values.declared import Checksum, Meta, Named, Natural, Text, decode, encode
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLLOW_ENDPOINT: Final = "/entry/follow"
FORWARD_ENDPOINT: Final = "/entry/forward"
MARK: Final = "ringpop-forwarded"
"""The header that a daemon adds to what it replays, with a secret that its application knows: such
a request has been routed, and is not forwarded again. From anybody else it means nothing."""
HERE: Final = 0
"""The status of an answer that the asker is to give itself: its host owns the key."""


class Follow(Named, frozen=True):
    """A question for the ring; *checksum* is that of the one that the asker has."""

    checksum: Checksum | None = None


class RingOwner(Named, frozen=True):
    """A member that owns keys."""

    name: Text
    identity: Text


class RingTold(Named, frozen=True):
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
        idempotent: whether the request may run more than once.
    """

    key: AnyKey
    method: Text
    path: Text
    headers: tuple[tuple[HeaderText, HeaderText], ...]
    may_be_here: bool = False
    idempotent: bool = False


class ReplyHead(Named, frozen=True):
    """The same for the answer; *owner* is who gave it."""

    owner: Text
    status: Annotated[int, Meta(ge=0, le=STATUS_MAX)]
    headers: tuple[tuple[HeaderText, HeaderText], ...] = ()


def forward_call(
    key: str, request: HttpRequest, *, may_be_here: bool, idempotent: bool, ttl_s: float
) -> Call:
    """Return the call by which a daemon is asked to forward *request*."""
    headers = tuple(pair for pair in end_to_end(request.headers) if pair[0].lower() != MARK)
    head = ForwardHead(key, request.method, request.path, headers, may_be_here, idempotent)
    return Call(NODE_SERVICE, FORWARD_ENDPOINT, encode(head), request.body, ttl_s=ttl_s)


def forwarded_in(arg2: bytes, body: bytes) -> tuple[ForwardHead, HttpRequest]:
    """Return what is in the arguments of such a call.

    Raises:
        BodyError: they cannot be read.
        ConfigError: there can be no such request.
    """
    head = decode(ForwardHead, arg2)
    check_headers(head.headers)
    return head, HttpRequest(head.method, head.path, head.headers, body)


def reply_in(arg2: bytes, body: bytes) -> HttpReply | None:
    """Return the reply in an answer; None if the asker is to give it. Raises BodyError."""
    head = decode(ReplyHead, arg2)
    if head.status == HERE:
        return None
    check_headers(head.headers)
    return HttpReply(head.status, head.headers, body, head.owner)


def check_headers(headers: Sequence[tuple[str, str]]) -> None:
    """Raise BodyError if a header would begin another one."""
    for pair in headers:
        if any(c in "\r\n\0" for c in "".join(pair)):
            raise BodyError("a header holds a line break")
