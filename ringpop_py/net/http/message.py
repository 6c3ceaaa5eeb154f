"""Messages of HTTP on their way between hosts, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.values.declared import Natural  # noqa: TC001 - read at run time

if TYPE_CHECKING:
    from collections.abc import Iterable

Headers = tuple[tuple[str, str], ...]
CONTINUE: Final = 100
"""The status of a reply whose application has not answered yet."""
MARK: Final = "ringpop-forwarded"
"""The header that a daemon adds to what it replays, with a secret that its application knows: such
a request has been routed, and is not forwarded again. From anybody else it means nothing."""
FORWARDED_HOST: Final = "x-forwarded-host"
"""The header with the host that a caller has named: the replayed request is for that host."""

_METHOD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
"""A token (RFC 9110, 5.6.2)."""
# `//host/path` would name another host; a control character could end the request line.
_PATH: Final = re.compile(r"/(?!/)[^\x00-\x20\x7f]*")

# Headers about one connection and not about the message (RFC 9110, 7.6.1), and three that the
# client writes itself when it replays a request. An answer that shows our mark is not to tell it.
_DROPPED_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        MARK,
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class Flow(NamedTuple):
    """How a request flows that does not have to be answered in one message.

    Attributes:
        kind: ``"answer"``: an answer that is long, or takes its time, comes in pieces;
            ``"body"``: so does the rest of the request; ``"websocket"``: it opens one.
        length: the bytes of the whole body of ``"body"``; None if they are not known yet.
    """

    kind: Literal["answer", "body", "websocket"] = "answer"
    length: Natural | None = None


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request that the owner's daemon replays to its local application.

    Attributes:
        path: path and query only; the target host is always the owner's configured one.
        flow: None if the answer comes in one message, or is an error.
    """

    method: str
    path: str
    headers: Headers = ()
    body: bytes = b""
    flow: Flow | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.body, bytes):
            raise ConfigError(not_bytes(self.body))
        for name, text in (("method", self.method), ("path", self.path)):
            if not isinstance(text, str):
                raise ConfigError(f"{name} is text, not {type(text).__name__}")
        if not _METHOD.fullmatch(self.method):
            raise ConfigError(f"{self.method!r} is not an HTTP method")
        if not _PATH.fullmatch(self.path):
            raise ConfigError(f"path {self.path!r} is not a path that begins with one '/'")


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The HTTP response of the owner's application.

    Attributes:
        status: `CONTINUE` if the application has not answered yet; only if the request has a flow.
        stream: the name of the stream at *owner* from which the rest comes; empty if this is all.
    """

    status: int
    headers: Headers
    body: bytes
    owner: str
    stream: str = ""


def not_bytes(body: object) -> str:
    """Return what is wrong with *body*, which is not bytes."""
    return f"body is bytes, not {type(body).__name__}; encode it first"


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
