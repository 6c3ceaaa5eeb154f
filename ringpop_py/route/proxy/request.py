"""Requests of an application to an owner, calls of the handler there, and replies, as values."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from ringpop_py.base.errors import ConfigError, RingpopError
from ringpop_py.net.http.message import Headers as Headers
from ringpop_py.net.http.message import HttpReply as HttpReply
from ringpop_py.net.http.message import HttpRequest as HttpRequest
from ringpop_py.net.http.message import not_bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A call of the application's handler at *endpoint*.

    Attributes:
        headers: pairs of texts that travel along, such as the ids of a trace, or a tenant.
    """

    endpoint: str
    body: bytes = b""
    headers: Headers = ()

    def __post_init__(self) -> None:
        if not (isinstance(self.endpoint, str) and self.endpoint.startswith("/")):
            raise ConfigError(f"endpoint {self.endpoint!r} is not text that begins with '/'")
        if not isinstance(self.body, bytes):  # not by a call: a request is made for each key
            raise ConfigError(not_bytes(self.body))
        if self.headers:
            _check_headers(self.headers)


def _check_headers(headers: object) -> None:
    """Raise ConfigError unless *headers* are pairs of texts that can be sent."""
    sound = isinstance(headers, tuple) and all(
        isinstance(pair, tuple) and list(map(type, pair)) == [str, str] for pair in headers
    )
    if not sound:
        raise ConfigError(f"headers are a tuple of (name, value), each text, not {headers!r:.200}")
    assert isinstance(headers, tuple)
    try:
        "".join(text for pair in headers for text in pair).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"headers {headers!r:.200} are not Unicode") from None


class Reply(NamedTuple):
    """The answer of the owner's handler; *owner* is the member's name.

    One is made for each call: a tuple, which is made fastest.
    """

    body: bytes
    owner: str


@dataclass(frozen=True, slots=True)
class ManyRequest:
    """Requests of several keys: *bodies* has one for each, *keys_max* of them are in a message."""

    endpoint: str
    bodies: Sequence[bytes]
    headers: Headers = ()
    keys_max: int = 1_024


class ManyReply(NamedTuple):
    """The answers to a `ManyRequest`: a body or an error for each key."""

    results: Sequence[bytes | RingpopError]
    owner: str


class AppCall(NamedTuple):
    """A request as an application's handler sees it.

    One is made for each call: a tuple, which is made fastest.

    Attributes:
        keys: those that the sender looked up; empty if a client called the handler directly.
        sender: the member that forwarded it; empty for a request from here or from a client.
        headers: those of the request.
        deadline: when its sender stops waiting, on the scale of `trio.current_time`; infinity if
            nobody has said.
    """

    endpoint: str
    body: bytes
    keys: tuple[str, ...] = ()
    sender: str = ""
    headers: Headers = ()
    deadline: float = math.inf


Handler = Callable[[AppCall], bytes | Awaitable[bytes | None] | None]
"""A function or coroutine function that returns bytes; None stands for no bytes. It raises
`ApplicationError` for an error of its own, which the caller gets."""


class ManyCall(NamedTuple):
    """Requests of many keys as a handler of many sees them (`Ringpop.many_handler`).

    Attributes:
        keys: one for each request; a key may stand here several times.
        bodies: the body of each.
        sender, headers, deadline: see `AppCall`.
    """

    endpoint: str
    keys: tuple[str, ...]
    bodies: Sequence[bytes]
    sender: str = ""
    headers: Headers = ()
    deadline: float = math.inf


ManyHandler = Callable[[ManyCall], Sequence[bytes] | Awaitable[Sequence[bytes]]]
"""A function or coroutine function that returns the answer of each key, in the order of the keys.
It raises `ApplicationError` for an error of its own, which each of the keys gets."""

AnyRequest = Request | HttpRequest
AnyReply = Reply | HttpReply


@dataclass(frozen=True, slots=True)
class OwnerReply:
    """One owner's part of `Ringpop.handle_or_proxy_all`.

    Attributes:
        reply: None if these keys are to be handled here, or if *error* is set.
        error: why these keys got no answer.
    """

    owner: str
    keys: tuple[str, ...]
    reply: AnyReply | None = None
    error: RingpopError | None = None


class RequestOptions(TypedDict, total=False):
    """How one request is tried; an option that is not given is that of the node's configuration.

    Attributes:
        max_retries: how often it is tried again.
        retry_schedule: seconds before each retry; an index past the end uses the last.
        idempotent: whether a request that may have run may run again; by default it may not.
        deadline_s: for the whole request with its retries; by default only attempts are limited.
        failover: how many members may handle a request that may run more than once, of one key: its
            owner (1 is the default, and means it alone), and those after it on the ring
            (`lookup_n`). A retry asks the next of them immediately.
    """

    max_retries: int
    retry_schedule: Sequence[float]
    idempotent: bool
    deadline_s: float
    failover: int
