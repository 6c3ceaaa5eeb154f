"""What an application sends to an owner, what reaches the handler there, and replies, as values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from ringpop_py.errors import ConfigError, RingpopError

Headers = tuple[tuple[str, str], ...]

HTTP_METHODS_MAX_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Request:
    """A call of the application's handler at *endpoint*."""

    endpoint: str
    body: bytes = b""

    def __post_init__(self) -> None:
        if not self.endpoint.startswith("/"):
            raise ConfigError(f"endpoint {self.endpoint!r} does not begin with '/'")


class Reply(NamedTuple):
    """What the owner's handler answered; *owner* is the member's name.

    One is made for each call: a tuple, which is made fastest.
    """

    body: bytes
    owner: str


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request that the owner's daemon replays to its local application.

    Attributes:
        path: path and query only; the target host is always the owner's configured one.
    """

    method: str
    path: str
    headers: Headers = ()
    body: bytes = b""

    def __post_init__(self) -> None:
        if not self.method.isalpha() or len(self.method) > HTTP_METHODS_MAX_LENGTH:
            raise ConfigError(f"{self.method!r} is not an HTTP method")
        # `//host/path` would name another host; a control character could end the request line.
        sound = self.path.startswith("/") and not self.path.startswith("//")
        if not sound or any(ord(c) <= 32 or ord(c) == 127 for c in self.path):  # noqa: PLR2004
            raise ConfigError(f"path {self.path!r} is not a path that begins with one '/'")


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The HTTP response of the owner's application."""

    status: int
    headers: Headers
    body: bytes
    owner: str


class AppCall(NamedTuple):
    """A request as an application's handler sees it.

    One is made for each call: a tuple, which is made fastest.

    Attributes:
        keys: those that the sender looked up; empty where a client called the handler directly.
        sender: the member that forwarded it; empty where it came from here or from a client.
    """

    endpoint: str
    body: bytes
    keys: tuple[str, ...] = ()
    sender: str = ""


Handler = Callable[[AppCall], bytes | Awaitable[bytes | None] | None]
"""Answers with bytes; None stands for none. May be a function or a coroutine function; raises
`ApplicationError` for an error of its own, which reaches the caller as it is."""


AnyRequest = Request | HttpRequest
AnyReply = Reply | HttpReply


@dataclass(frozen=True, slots=True)
class OwnerReply:
    """One owner's part of `Ringpop.handle_or_proxy_all`.

    Attributes:
        reply: None where these keys are to be handled here, or where *error* is set.
        error: why these keys got no answer.
    """

    owner: str
    keys: tuple[str, ...]
    reply: AnyReply | None = None
    error: RingpopError | None = None


class RequestOptions(TypedDict, total=False):
    """How one request is tried; what is not given is as the node is configured.

    Attributes:
        max_retries: how often it is tried again.
        retry_schedule: seconds before each retry; an index past the end uses the last.
        idempotent: whether what may already have run may run again; it may not by default.
        deadline_s: for the whole, retries included; by default only each attempt is limited.
    """

    max_retries: int
    retry_schedule: Sequence[float]
    idempotent: bool
    deadline_s: float
