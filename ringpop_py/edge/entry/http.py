"""The common part for both kinds of web applications (pure): requests to forward, and refusals."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypedDict

from ringpop_py.base.arguments import checked_seconds, wrong
from ringpop_py.base.config.settings import EntryConfig, ProxyConfig
from ringpop_py.base.errors import ConfigError, ConnectRefused, PeerDeclined, RingpopError
from ringpop_py.base.values.packed import encode_value
from ringpop_py.edge.entry.callers import FORWARDED_FOR, FORWARDED_PROTO, is_trusted, told
from ringpop_py.edge.entry.keys import KINDS as KINDS
from ringpop_py.edge.entry.keys import below
from ringpop_py.net.http.message import FORWARDED_HOST, Flow, HttpRequest, end_to_end
from ringpop_py.route.proxy.request import RequestOptions
from ringpop_py.route.proxy.tries import check_options

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ringpop_py.edge.entry.callers import Before, Networks
    from ringpop_py.edge.entry.keys import Incoming
    from ringpop_py.route.proxy.request import HttpReply

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""The methods whose requests may be repeated (RFC 9110, 9.2.2)."""
WHOLE_BYTES_MAX: Final = ProxyConfig().body_bytes_max
_USUAL: Final = EntryConfig()
TIMEOUT_S: Final = _USUAL.timeout_s
RING_S: Final = 2.0
"""The most seconds that a first request waits for the daemon's answer."""
UNAVAILABLE: Final = 503
Kind = Literal["answer", "body", "websocket"]
Websockets = Literal["forward", "here", "refuse"]
Elsewhere = Literal["here", "refuse"]
"""The answer to requests that cannot be forwarded: of this host's application, or a refusal."""
HOPS: Final = "ringpop-hops"
"""The header that says how often a request was forwarded."""
HOPS_MAX: Final = 4
"""The most hops of a request. One is usual; more occur while programs start or rings differ."""
HOPS_DIGITS: Final = 3
LOOP_DETECTED: Final = 508
_PUBLIC: Final = {
    400: "the request cannot be passed on to the host that owns its key",
    503: "no host can take the request now; it may be sent again",
    504: "the host that owns the key has not answered in time; the request may have run",
}
_OTHER: Final = "the host that owns the key has not answered properly; the request may have run"
_NO_CONTENT, _NOT_MODIFIED = 204, 304
_SERVERS_OWN: Final = ("date", "server")


class ForwardOptions(TypedDict, total=False):
    """How a middleware forwards requests.

    Attributes:
        away: what happens to a request while the daemon cannot be reached: ``"here"``, the default,
            has this host answer, and ``"refuse"`` answers with 503.
        body_bytes_max: the most bytes of a body, whichever host answers; a longer one is refused
            with 413.
        timeout_s: the time limit until the answer of an owner begins, retries included.
        idle_timeout_s: how long nothing may come of an answer that has begun.
        total_timeout_s: the time limit until the end of the answer of an owner.
        idempotent: the methods whose requests may be repeated after they may have run.
        failover: how many hosts may answer these: the owner of the key, and the next ones on the
            ring while it does not answer. For answers that all hosts have, such as a cache's.
    """

    away: Elsewhere
    body_bytes_max: int
    timeout_s: float
    idle_timeout_s: float
    total_timeout_s: float | None
    idempotent: Collection[str]
    failover: int


class Options(NamedTuple):
    """`ForwardOptions` with their defaults.

    Attributes:
        trusted: the proxies whose headers about callers stay; None at a middleware, which believes
            its server alone.
        whole_bytes_max: a body of at most so many bytes is read before its request is forwarded; of
            a longer one, the rest follows in pieces.
    """

    away: Elsewhere = "here"
    body_bytes_max: int = _USUAL.body_bytes_max
    timeout_s: float = TIMEOUT_S
    idle_timeout_s: float = _USUAL.idle_timeout_s
    total_timeout_s: float | None = _USUAL.total_timeout_s
    idempotent: Collection[str] = IDEMPOTENT
    failover: int = 1
    trusted: Networks | None = None
    whole_bytes_max: int = WHOLE_BYTES_MAX

    def checked(self) -> Options:
        """Return the options themselves. Raises ConfigError."""
        checked_elsewhere(self.away, "away")
        if type(self.body_bytes_max) is not int or self.body_bytes_max < 0:
            raise wrong("body_bytes_max", "a whole number, 0 or more", self.body_bytes_max)
        if isinstance(self.idempotent, str):
            raise wrong("idempotent", "a list of methods", self.idempotent)
        for name in ("timeout_s", "idle_timeout_s", "total_timeout_s"):
            value = getattr(self, name)
            if (value is not None or name != "total_timeout_s") and (
                checked_seconds(value, name) <= 0
            ):
                raise ConfigError(f"{name} is above 0, not {value!r}")
        check_options(RequestOptions(idempotent=True, failover=self.failover))
        return self

    def before(self, client: str) -> Before:
        """Return what becomes of headers of proxies in a request that *client* has sent."""
        if self.trusted is None:
            return "replaced"
        return "kept" if is_trusted(client, self.trusted) else "dropped"

    def tries(self, method: str) -> RequestOptions:
        """Return how a request with *method* is tried."""
        if method not in self.idempotent:
            return RequestOptions()
        if self.failover == 1:
            return RequestOptions(idempotent=True)
        return RequestOptions(idempotent=True, failover=self.failover)


NO_LIMITS: Final = Options(idle_timeout_s=inf, total_timeout_s=None)
"""Those of a websocket, whose ends find out by pings that the other one is gone."""


def checked_elsewhere(value: object, what: str, *more: str) -> None:
    """Raise ConfigError unless *value* is one of `Elsewhere`, or of *more*."""
    may_be = (*more, "here", "refuse")
    if value not in may_be:
        raise wrong(what, f"{', '.join(map(repr, may_be[:-1]))} or 'refuse'", value)


MEANWHILE: Final = {
    "here": "every host answers for itself, also for keys of others",
    "refuse": "requests with a key are refused with 503",
}
"""What the log says of requests while the daemon is away, by `Options.away`."""


class OwnAnswer(NamedTuple):
    """An answer of ours, in place of the application's."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def refusal(status: int, code: str, message: str) -> OwnAnswer:
    """Return an answer in JSON that says why there is no other one."""
    body = encode_value("json", {"error": code, "message": message, "status": status}) + b"\n"
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    if status == UNAVAILABLE:  # the cause usually goes away within a second
        headers.append(("retry-after", "1"))
    return OwnAnswer(status, tuple(headers), body)


def refusal_of(error: RingpopError) -> OwnAnswer:
    """Return the answer for an *error* of forwarding.

    Its own text may name members and their addresses, which are nothing for the public: only what
    is wrong with the request itself (`ConfigError`) is told.
    """
    text = str(error) if isinstance(error, ConfigError) else _PUBLIC.get(error.http_status, _OTHER)
    return refusal(error.http_status, error.code, text)


def too_long(most: int) -> OwnAnswer:
    """Return the answer to a request whose body is longer than *most* bytes."""
    return refusal(413, "body-too-long", f"a body has at most {most} bytes here")


def may_be_answered_here(error: RingpopError, away: Elsewhere) -> bool:
    """Return whether this host may answer: its daemon is away or ends, so nothing has run."""
    return away == "here" and isinstance(error, ConnectRefused | PeerDeclined)


def to_forward(
    asked: Incoming,
    body: bytes,
    *,
    client: str,
    scheme: str,
    before: Before = "replaced",
    kind: Kind = "answer",
) -> HttpRequest | OwnAnswer:
    """Return a request as it is forwarded, with its caller in headers that applications read.

    A request that has no method or path that can be forwarded is answered instead. So is one that
    was forwarded too often: it goes round in a circle.

    Args:
        client: the address of the caller, as far as the server here trusts proxies.
        before: what becomes of headers of proxies before us (`callers.told`). By default ours take
            their place: the server of the owner trusts us, and must not trust the caller.
        kind: see `Flow`; with ``"body"``, more of it follows.
    """
    headers = asked.headers
    hops = [value for name, value in headers if name.lower() == HOPS]
    said_count = hops[-1] if hops else ""
    # A caller may write anything: a text too long for a count counts as too many.
    count = 1
    if said_count.isascii() and said_count.isdecimal():
        count = int(said_count[:HOPS_DIGITS]) + 1
    if count > HOPS_MAX:
        return refusal(
            LOOP_DETECTED,
            "loop-detected",
            f"this request was forwarded {HOPS_MAX} times: probably the --app-url of a daemon is "
            "not the application of its own host",
        )
    # First without those about the connection: a caller could have ours removed by naming them.
    # Servers that turn hyphens into underscores could take one with an underscore for another one.
    pairs = [pair for pair in end_to_end(headers) if "_" not in pair[0]]
    cookies = [value for name, value in pairs if name.lower() == "cookie"]
    kept, ours = told(headers, pairs, before, client, scheme)
    kept = [pair for pair in kept if pair[0].lower() not in (HOPS, "cookie")]
    if cookies:  # HTTP/2 has one in each field; applications read the first field only
        kept.append(("cookie", "; ".join(cookies)))
    kept += [*ours, (HOPS, str(count))]
    path = below(asked.server_root, asked.path) or asked.path
    target = f"{path}?{asked.query}" if asked.query else path
    try:
        length = length_in(headers) if kind == "body" else None
        return HttpRequest(asked.method, target, tuple(kept), body, Flow(kind, length))
    except ConfigError as error:
        return refusal_of(error)


def length_in(headers: Iterable[tuple[str, str]]) -> int | None:
    """Return the length of a body according to *headers*; None if they do not say it."""
    texts = [value for name, value in headers if name.lower() == "content-length"]
    if len(texts) != 1 or not (texts[0].isascii() and texts[0].isdecimal()):
        return None
    return int(texts[0])


class Asker(NamedTuple):
    """The sender of a request that another host has forwarded, according to that host."""

    client: str
    scheme: str
    host: str


def asker_of(headers: Iterable[tuple[str, str]]) -> Asker:
    """Return the sender according to the headers of a request with the daemon's mark."""
    said = {name.lower(): value for name, value in headers}
    client = said.get(FORWARDED_FOR, "").rpartition(",")[2].strip()
    return Asker(client, said.get(FORWARDED_PROTO, ""), said.get(FORWARDED_HOST, ""))


def reply_headers(reply: HttpReply, method: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of a forwarded *reply*, with its length where it has one."""
    # The server here writes its own of the others.
    kept = tuple(p for p in end_to_end(reply.headers) if p[0].lower() not in _SERVERS_OWN)
    if method == "HEAD" or reply.status == _NOT_MODIFIED or reply.stream:
        return kept + tuple(p for p in reply.headers if p[0].lower() == "content-length")
    if reply.status == _NO_CONTENT:
        return kept
    return (*kept, ("content-length", str(len(reply.body))))
