"""What an application sends to an owner, and what it gets back, as values."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - read at run time
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from ringpop_py.errors import ConfigError

Headers = tuple[tuple[str, str], ...]

HTTP_METHODS_MAX_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Request:
    """A call of the application's handler at *endpoint*."""

    endpoint: str
    body: bytes = b""

    def __post_init__(self) -> None:
        if not self.endpoint.startswith("/"):
            message = f"endpoint {self.endpoint!r} does not begin with '/'"
            raise ConfigError(message)


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
            message = f"{self.method!r} is not an HTTP method"
            raise ConfigError(message)
        # `//host/path` would name another host; a control character could end the request line.
        sound = self.path.startswith("/") and not self.path.startswith("//")
        if not sound or any(ord(c) <= 32 or ord(c) == 127 for c in self.path):  # noqa: PLR2004
            message = f"path {self.path!r} is not a path that begins with one '/'"
            raise ConfigError(message)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The HTTP response of the owner's application."""

    status: int
    headers: Headers
    body: bytes
    owner: str


AnyRequest = Request | HttpRequest
AnyReply = Reply | HttpReply


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
