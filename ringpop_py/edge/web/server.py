"""HTTP beside the daemon: an ASGI application, which hypercorn serves on a socket."""

from __future__ import annotations

import re
import socket
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from urllib.parse import quote

import hypercorn.protocol
import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio import run, serve
from hypercorn.trio.tcp_server import TCPServer
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ringpop_py.base.address import Address, is_numeric
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import keep_running
from ringpop_py.edge.web.callers import SHOWN, Callers, Shown
from ringpop_py.edge.web.overview import Overview
from ringpop_py.edge.web.refusals import REFUSALS, HttpRefusal, bad_request, refused
from ringpop_py.edge.web.routes import Endpoint, HttpRoutes
from ringpop_py.net.security.identity import PROGRAMS, refusal_of
from ringpop_py.net.security.proof import LASTING
from ringpop_py.net.security.site import SiteCertificate, contexts_of
from ringpop_py.net.security.users import is_this_machine
from ringpop_py.net.transport.channel import LinkTable
from ringpop_py.node.end import ENDING_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from ssl import SSLContext

    import h11
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send

    from ringpop_py.base.config.settings import Config
    from ringpop_py.net.security.credentials import KeyCredentials
    from ringpop_py.net.security.identity import Identity
    from ringpop_py.node.end import Ending
    from ringpop_py.node.ringpop import Ringpop

LOCAL: Final = "localhost"
READING: Final = ("GET", "HEAD")
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:@\[\]/]+))(?::\d{1,5})?")
_ORIGIN: Final = re.compile(r"^https?://")


def hosts_of(config: Config) -> frozenset[str]:
    """Return the names in `Host` for which requests are served, besides addresses."""
    own = (config.http, config.listen, config.advertise)
    names = (LOCAL, *config.http_hosts, *(address.host for address in own if address is not None))
    return frozenset(name.lower() for name in names)


def check_request(method: str, headers: Mapping[str, str], hosts: Collection[str]) -> None:
    """Check the headers of a request before it is served.

    Args:
        headers: by their names in lower case.
        hosts: names in `Host` that are served, in lower case.

    Raises:
        HttpRefusal: the request is refused.
    """
    check_length(headers)
    host = headers.get("host", "").lower()  # HTTP/1.0 needs none, and browsers do not use it
    if host and not _is_served(host, hosts):
        name = _name_in(host)
        text = f"no requests are answered for the host {name!r:.100}; --http-host NAME permits one"
        raise HttpRefusal(421, "WrongHost", text)
    site = headers.get("sec-fetch-site")
    if site == "cross-site":
        raise HttpRefusal(403, "CrossSite", "cross-origin requests are refused")
    # Browsers say this only over TLS, and to `localhost`. So it is safe also behind a proxy that
    # replaces `Host`: for a name that was made to resolve there, the proxy has no certificate.
    if method in READING or site == "same-origin":
        return
    # What the browser has called a proxy, which may call us something else. Other pages would need
    # our consent to send this header; and names that are not ours count for nothing here, either.
    forwarded = headers.get("x-forwarded-host", "").partition(",")[0].strip().lower()
    own = {host, forwarded} if _is_served(forwarded, hosts) else {host}
    origin = headers.get("origin")
    if origin is not None and _ORIGIN.sub("", origin.lower()) not in own:
        text = (
            f"cross-origin requests are refused: {origin!r:.100} is not {host!r:.100}; "
            "a proxy has to pass on its Host, which --http-host NAME permits"
        )
        raise HttpRefusal(403, "CrossSite", text)


def _name_in(host: str) -> str:
    """Return the name in a `Host`; all of it if it is malformed."""
    found = _HOST.fullmatch(host)
    return host if found is None else found[1] or found[2]


def _is_served(host: str, hosts: Collection[str]) -> bool:
    name = _name_in(host)
    return name in hosts or is_numeric(name)


def check_length(headers: Collection[str]) -> None:
    """Raise HttpRefusal for two lengths: a proxy before us may count otherwise where it ends."""
    if "content-length" in headers and "transfer-encoding" in headers:
        text = "a body has Content-Length or Transfer-Encoding, not both"
        raise HttpRefusal(400, "BadRequest", text, {"connection": "close"})


REQUESTS_MAX: Final = 1_000
"""The most requests that are open at the same time; others are refused with 503 `Busy`."""
HOW_IT_IS: Final = ("/alive", "/ready")
"""The paths that are answered for any caller, however many requests are open: they tell nothing,
and a healthy process must not be taken for dead."""
HANDSHAKE: Final = 0x16
"""The first byte of TLS, which no request begins with."""
CLEARTEXT_REFUSED: Final = "2"
NO_HTTP_2: Final = "HTTP/2 is not spoken: a proxy that passes it on without TLS cannot see requests"
BODY_S_MAX: Final = 30.0
"""Seconds that a caller may take to send each MiB of a body. A slower one is refused with 408
`TooSlow`."""
MIB: Final = 1 << 20
PING_S: Final = 20.0
"""So often a caller with a websocket has to show that it is there."""
BACKLOG: Final = 1_024
UNREAD_MS_MAX: Final = 10_000
"""Milliseconds that a reply may stay unread; then the system drops the connection."""
FAREWELL_S: Final = 1.0
"""Seconds that open requests have once the node ends; then they are cut."""


class App:
    """The ASGI application of *ringpop*.

    Attributes:
        under_way: the number of open requests.
        overview: what the console shows; `run` keeps it up to date.
    """

    def __init__(self, ringpop: Ringpop) -> None:
        self.under_way = 0
        self.overview = Overview(ringpop)
        self._ending = ringpop.ending
        self._hosts = hosts_of(ringpop.config)
        config, address = ringpop.config, ringpop.http_address
        self._callers = Callers(
            ringpop.credentials,
            config.cluster,
            plain=config.accept_plain or config.insecure or address is None or address.is_loopback,
            anybody=config.accept_plain,
        )
        self._handlers = ringpop.channel.handlers
        self._served_count = 0
        self._starlette = Starlette(
            routes=HttpRoutes(ringpop, self.overview).all(self._guarded),
            exception_handlers={HTTPException: _no_such_route},
        )
        self._starlette.router.redirect_slashes = False  # a key may end with a slash

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of the ASGI interface."""
        if scope["type"] != "http":  # hypercorn announces start and end
            await self._starlette(scope, receive, send)
            return
        if scope["http_version"] == CLEARTEXT_REFUSED:
            await refused(HttpRefusal(505, "HttpVersion", NO_HTTP_2))(scope, receive, send)
            return
        # Routes see the path percent-encoded, so that a key may have a slash in it.
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        scope = {**scope, "path": raw.decode("latin-1")}
        send = with_close(send, self._ending)
        self.under_way += 1  # until the last byte is sent: a node that ends waits for that
        try:
            await self._starlette(scope, in_time(receive), send)
        finally:
            self.under_way -= 1

    async def run(self) -> None:
        """Have the console's overview made, while somebody looks at it."""
        await keep_running("the overview of the console", self.overview.run)

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """Return *endpoint* with a reply for each error that it raises."""

        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            # Not `request.url`, into which older versions of starlette put what `Host` says.
            asks_how_it_is = request.scope["path"] in HOW_IT_IS
            request.state.identity = None
            if self._served_count >= REQUESTS_MAX and not asks_how_it_is:
                message = f"{REQUESTS_MAX} requests are open here already"
                return refused(HttpRefusal(503, "Busy", message))
            self._served_count += 1  # before it is sent: slow readers do not count
            try:
                if not asks_how_it_is:
                    check_request(request.method, request.headers, self._hosts)
                    request.state.identity = self._callers.identify(request)
                    request.state.callers = self._callers
                    self._check_limits(request.state.identity)
                # `/alive`, `/ready` and `/health` are answered to the end.
                if self._ending.closing and request.scope["path"].startswith("/keyspaces"):
                    return refused(HttpRefusal(503, "Ending", ENDING_TEXT))
                return self._noted(await endpoint(request), request)
            except REFUSALS as error:
                return refused(error)
            except ClientDisconnect:
                return refused(bad_request("the body ended early"))  # to nobody
            except Exception:  # our bug, which must not end the server
                log.exception("http-request-failed", path=request.url.path)
                return refused(HttpRefusal(500, "Internal", "the node failed; its log says how"))
            finally:
                self._served_count -= 1

        return guarded

    def _check_limits(self, caller: Identity | None) -> None:
        """Raise HttpRefusal if *caller* has had what it may."""
        limits = self._handlers.limits
        if limits is not None and (why := limits.why_over(caller, trio.current_time())):
            self._handlers.refused["limit"] += 1
            raise HttpRefusal(429, "Busy", why, {"retry-after": "1"})

    def _noted(self, response: Response, request: Request) -> Response:
        """Return *response*, and note its bytes and those of the request."""
        if (limits := self._handlers.limits) is not None:
            size = len(response.body) + getattr(request.state, "body_bytes", 0)
            limits.note_bytes(request.state.identity, size, trio.current_time())
        return response


def with_close(send: Send, ending: Ending) -> Send:
    """Return *send* with `Connection: close` added to replies while the node drains."""

    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start" and ending.draining:
            message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        await send(message)

    return closing


def in_time(receive: Receive) -> Receive:
    """Return *receive* such that it refuses a body that takes longer than `BODY_S_MAX`.

    Only the time counts in which somebody waits for it: a slow reader is not the caller's fault.
    """
    left_s, left_bytes, complete = BODY_S_MAX, MIB, False

    async def bounded() -> Any:  # noqa: ANN401 - starlette's messages are maps of anything
        nonlocal left_s, left_bytes, complete
        if complete:
            return await receive()
        began_at = trio.current_time()
        with trio.move_on_after(left_s):
            message = await receive()
            complete = not message.get("more_body", False)
            left_s -= trio.current_time() - began_at
            left_bytes -= len(message.get("body", b""))
            if left_bytes <= 0:
                left_s, left_bytes = BODY_S_MAX, MIB
            return message
        text = f"the body did not arrive within {BODY_S_MAX:g} s"
        raise HttpRefusal(408, "TooSlow", text, {"connection": "close"})

    return bounded


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kinds = {404: "NoSuchPath", 405: "MethodNotAllowed"}
    message = f"{request.method} {request.url.path:.200}: {error.detail}"
    headers = dict(error.headers or {})
    if "Allow" in headers:
        headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))
        message += f"; this path allows {headers['Allow']}"
    kind = kinds.get(error.status_code, "Http")
    return refused(HttpRefusal(error.status_code, kind, message, headers))


class HttpApp(Protocol):
    """An ASGI application."""

    @property
    def under_way(self) -> int:
        """The number of open requests."""

    async def run(self) -> None:
        """Do the application's background work, until cancelled."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI interface."""


class _Connection(TCPServer):
    """A connection of hypercorn whose failure ends nothing else.

    Hypercorn (0.18) lets some errors out, for example if a peer sends a malformed chunk while it is
    being answered. They would end the server, and with it the node.

    With keys or a certificate, the first byte says whether the peer speaks TLS.
    """

    config: _Config

    async def run(self) -> None:
        """Serve it until it ends."""
        try:
            if self.config.context is None or await self._looked(self.config.context):
                await super().run()
            else:
                await trio.aclose_forcefully(self.stream)
        except Exception as error:  # noqa: BLE001 - whatever it is
            log.debug("http-connection-failed", reason=repr(error))

    async def _looked(self, context: Callable[[], SSLContext]) -> bool:
        """Do the TLS handshake if the peer begins one; return whether to serve the connection."""
        plain = cast(trio.SocketStream, self.stream)
        with trio.move_on_after(self.config.keep_alive_timeout):
            first = await plain.socket.recv(1, socket.MSG_PEEK)
            if first != bytes([HANDSHAKE]):
                SHOWN.set(Shown(is_secure=False))
                return bool(first)
            host, links = plain.socket.getpeername()[0], self.config.links
            if not (links.newcomers.have_place_for(host) or is_this_machine(host)):
                links.refused_count += 1
                links.refused_at = trio.current_time()
                return False
            self.stream = trio.SSLStream(plain, context(), server_side=True, https_compatible=True)
            with links.newcomers.holding(self, host):
                await self.stream.do_handshake()
            keys = self.config.credentials  # without, callers are not asked for a certificate
            proof = keys.proof_in(self.stream.getpeercert()) if keys else LASTING
            who = proof.identity
            if keys and who and refusal_of(who, keys.identity.cluster, PROGRAMS):
                return False
            SHOWN.set(Shown(is_secure=True, proof=proof))
            return True
        return False


class _Config(HypercornConfig):
    """Also says whether connections may use TLS."""

    context: Callable[[], SSLContext] | None = None
    credentials: KeyCredentials | None = None
    links: LinkTable


class _Http1(H11Protocol):
    """HTTP/1.1 without the upgrade to HTTP/2 that some clients offer with each first request.

    Java's does. We would refuse whatever it asks for after the upgrade.
    """

    async def _check_protocol(self, event: h11.Request) -> None:
        if event.method == b"PRI":  # HTTP/2 without an upgrade, which is refused with an answer
            await super()._check_protocol(event)


# There is no other way to choose them.
run.TCPServer = _Connection  # type: ignore[attr-defined]
hypercorn.protocol.H11Protocol = _Http1  # type: ignore[attr-defined]


class HttpServer:
    """Serves HTTP; listens from its construction. Raises ConfigError if it cannot listen.

    Args:
        flag: the flag that gave *address*, for errors.
        site: the certificate that connections with TLS show; by default that of the keys.

    Attributes:
        credentials: the cluster's keys, if callers are judged by them.
        links: the connections of the node, whose `Newcomers` those that begin here are as well.
    """

    def __init__(
        self, address: Address, flag: str = "--http", site: SiteCertificate | None = None
    ) -> None:
        self.flag, self.site = flag, site
        self.credentials: KeyCredentials | None = None
        self.links = LinkTable(WireLimits())
        self._socket = _listening(address, flag)
        self.address = Address(*self._socket.getsockname()[:2])
        self._app: HttpApp | None = None
        self._told_to_end = trio.Event()
        self._ended = trio.Event()

    @property
    def under_way(self) -> int:
        """The number of open requests."""
        return self._app.under_way if self._app is not None else 0

    async def run(
        self, app: HttpApp, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve *app* until `end`."""
        config = _Config()
        config.context = contexts_of(self.credentials, self.site)
        config.credentials, config.links = self.credentials, self.links
        config.bind = [f"fd://{self._socket.detach()}"]  # hypercorn's from here on
        config.backlog = BACKLOG
        config.accesslog = config.errorlog = None  # our application logs errors
        config.include_server_header = False
        config.graceful_timeout = FAREWELL_S
        config.websocket_ping_interval = PING_S
        config.websocket_max_message_size = MIB
        self._app = app
        log.info("serving http", address=str(self.address))
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(self._serve, app, config, nursery.cancel_scope))
                nursery.start_soon(app.run)
                task_status.started()
        finally:
            self._ended.set()

    async def _serve(
        self,
        app: HttpApp,
        config: _Config,
        scope: trio.CancelScope,
        *,
        task_status: trio.TaskStatus[list[str]],
    ) -> None:
        """Serve until `end`; then cancel *scope*, in which the application runs."""
        await serve(
            cast(Any, app),  # hypercorn has another name for the same type
            config,
            shutdown_trigger=self._told_to_end.wait,
            mode="asgi",
            task_status=task_status,
        )
        scope.cancel()

    async def end(self) -> None:
        """Accept no more requests. Return when open ones are done, or after `FAREWELL_S`."""
        self._told_to_end.set()
        with trio.move_on_after(2 * FAREWELL_S):
            await self._ended.wait()

    def close(self) -> None:
        """Close the socket, if it was never served on."""
        self._socket.close()


def _listening(address: Address, flag: str) -> socket.socket:
    try:
        family, kind, number, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )[0]
        sock = socket.socket(family, kind, number)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it from their listener
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS_MAX)
            sock.bind(where)
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{flag} {address}: cannot listen there: {reason}") from None
    return sock
