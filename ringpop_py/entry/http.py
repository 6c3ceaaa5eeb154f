"""What both kinds of web applications have in common (pure): requests to forward, and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ringpop_py.arguments import checked_seconds, wrong
from ringpop_py.config.settings import ProxyConfig
from ringpop_py.entry.keys import KINDS as KINDS
from ringpop_py.errors import CallError, ConfigError, ConnectFailed, RingpopError
from ringpop_py.proxy.entry import MARK
from ringpop_py.proxy.request import HttpRequest
from ringpop_py.values.packed import encode_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ringpop_py.proxy.request import HttpReply

DAEMON: Final = "127.0.0.1:3000"
IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""The methods whose requests may be repeated (RFC 9110, 9.2.2)."""
BODY_BYTES_MAX: Final = ProxyConfig().body_bytes_max
TIMEOUT_S: Final = 10.0
RING_S: Final = 2.0
"""So long a first request waits for the daemon's word."""
UNAVAILABLE: Final = 503
Elsewhere = Literal["here", "refuse"]
"""What becomes of what cannot be forwarded: this host's application answers, or nobody."""
_NO_LENGTH: Final = (204, 304)
_SERVERS_OWN: Final = ("date", "server")


class Options(NamedTuple):
    """How requests are forwarded.

    Attributes:
        away: what becomes of requests while the daemon of this host is away.
        body_bytes_max: of a request; longer ones are refused with 413.
        timeout_s: for the answer of an owner, with all that is repeated.
        idempotent: the methods whose requests may be repeated.
    """

    away: Elsewhere = "here"
    body_bytes_max: int = BODY_BYTES_MAX
    timeout_s: float = TIMEOUT_S
    idempotent: Collection[str] = IDEMPOTENT

    def checked(self) -> Options:
        """Return the options themselves. Raises ConfigError."""
        checked_elsewhere(self.away, "away")
        if checked_seconds(self.timeout_s, "timeout_s") <= 0:
            raise ConfigError(f"timeout_s is above 0, not {self.timeout_s!r}")
        return self


def checked_elsewhere(value: object, what: str) -> None:
    """Raise ConfigError unless *value* is one of `Elsewhere`."""
    if value not in ("here", "refuse"):
        raise wrong(what, "'here' or 'refuse'", value)


class Refusal(NamedTuple):
    """An answer of ours, in place of the application's."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def refusal(status: int, code: str, message: str) -> Refusal:
    """Return an answer in JSON that says why there is no other one."""
    body = encode_value("json", {"error": code, "message": message, "status": status}) + b"\n"
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    if status == UNAVAILABLE:  # the cause usually goes away within a second
        headers.append(("retry-after", "1"))
    return Refusal(status, tuple(headers), body)


def refusal_of(error: RingpopError) -> Refusal:
    """Return the answer for an *error* of forwarding."""
    return refusal(error.http_status, error.code, str(error))


def too_long(most: int) -> Refusal:
    """Return the answer to a request whose body is longer than *most* bytes."""
    return refusal(413, "body-too-long", f"what is forwarded has at most {most} bytes")


def may_be_answered_here(error: RingpopError, away: Elsewhere) -> bool:
    """Return whether this host may answer, after the daemon could not be asked: nothing has run."""
    return away == "here" and isinstance(error, ConnectFailed) and isinstance(error, CallError)


def to_forward(
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    client: str,
    scheme: str,
) -> HttpRequest:
    """Return a request as it is forwarded: who asked stands in its ``X-Forwarded`` headers.

    Args:
        target: path and query.
        client: the address of the caller; empty if it is not known.

    Raises:
        ConfigError: it has no method or path that can be forwarded.
    """
    pairs = [(name, value) for name, value in headers if name.lower() != MARK]
    known = {name.lower(): value for name, value in pairs}
    if client:
        before = known.get("x-forwarded-for")
        pairs = [pair for pair in pairs if pair[0].lower() != "x-forwarded-for"]
        pairs.append(("x-forwarded-for", f"{before}, {client}" if before else client))
    if "x-forwarded-proto" not in known:
        pairs.append(("x-forwarded-proto", scheme))
    if "host" in known and "x-forwarded-host" not in known:
        pairs.append(("x-forwarded-host", known["host"]))
    return HttpRequest(method, target, tuple(pairs), body)


def reply_headers(reply: HttpReply, method: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of a forwarded *reply*, with its length where it has one."""
    # The server here writes its own of the others.
    kept = tuple(pair for pair in reply.headers if pair[0].lower() not in _SERVERS_OWN)
    if method == "HEAD" or reply.status in _NO_LENGTH:
        return kept
    return (*kept, ("content-length", str(len(reply.body))))
