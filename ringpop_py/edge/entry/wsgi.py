"""The entry of WSGI applications (Flask, Django), under servers of threads or of processes."""

from __future__ import annotations

from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Final, Unpack
from urllib.parse import quote

from ringpop_py.base.errors import ConfigError, RingpopError
from ringpop_py.base.logs import log
from ringpop_py.client.sync.client import Client
from ringpop_py.edge.entry import http
from ringpop_py.edge.entry.finder import KeyFinder
from ringpop_py.edge.entry.keys import Incoming, whole_path
from ringpop_py.edge.entry.owners import Follower
from ringpop_py.route.proxy.entry import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from ringpop_py.base.address import Peer
    from ringpop_py.edge.entry.keys import KeyRule

_MARK: Final = f"HTTP_{MARK.upper().replace('-', '_')}"
_UNPREFIXED: Final = {"CONTENT_TYPE": "content-type", "CONTENT_LENGTH": "content-length"}


class RingpopWSGI:
    """A wrapper of the WSGI application *app*: the host that owns a request's key answers it.

    See `ringpop_py.edge.entry.asgi.RingpopMiddleware`, also for the arguments.
    """

    def __init__(
        self,
        app: WSGIApplication,
        *,
        key: str | KeyRule | Sequence[str | KeyRule],
        daemon: Peer | str | None = None,
        **options: Unpack[http.ForwardOptions],
    ) -> None:
        self._app = app
        self._finder = KeyFinder(key)
        self._options = http.Options(**options).checked()
        self._follower = Follower(daemon, http.MEANWHILE[self._options.away])
        self._client = Client(daemon, timeout_s=self._options.timeout_s)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request of the WSGI interface."""
        self._follower.start()
        mark = environ.pop(_MARK, None)  # the application may show what it gets to anybody
        asked = _incoming_of(environ)
        if mark is not None and self._follower.knows_mark(mark):
            _set_asker(environ, http.asker_of(asked.headers))
            return self._app(environ, start_response)
        try:
            key = self._finder.key_of(asked)
        except ConfigError as error:
            return _started(http.refusal_of(error), start_response)
        if key is not None:
            ring = self._follower.ring or self._follower.wait(http.RING_S)
            if ring is None or not ring.is_here(key):
                answer = self._answer(key, asked, environ)
                if answer is not None:
                    return _started(answer, start_response)
        return self._app(environ, start_response)

    def _answer(self, key: str, asked: Incoming, environ: WSGIEnvironment) -> http.OwnAnswer | None:
        """Return our answer; None if the application here is to answer."""
        body = _body(environ, self._options.body_bytes_max)
        if isinstance(body, http.OwnAnswer):
            return body
        client, scheme = environ.get("REMOTE_ADDR", ""), environ["wsgi.url_scheme"]
        request = http.to_forward(asked, body, client=client, scheme=scheme)
        if isinstance(request, http.OwnAnswer):
            return request
        try:
            reply = self._client.handle_or_proxy(key, request, **self._options.tries(asked.method))
        except RingpopError as error:
            if not http.may_be_answered_here(error, self._options.away):
                log.debug("request-not-forwarded", code=error.code, text=str(error))
                return http.refusal_of(error)
            reply = None
        if reply is None:
            environ["wsgi.input"] = BytesIO(body)
            environ["CONTENT_LENGTH"] = str(len(body))
            return None
        return http.OwnAnswer(reply.status, http.reply_headers(reply, asked.method), reply.body)


def _incoming_of(environ: WSGIEnvironment) -> Incoming:
    headers = [
        (name[5:].replace("_", "-").lower(), _text(value))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    headers += [(name, environ[key]) for key, name in _UNPREFIXED.items() if environ.get(key)]
    raw = environ.get("RAW_URI") or environ.get("REQUEST_URI")  # most servers give it undecoded
    root = _text(environ.get("SCRIPT_NAME", ""))
    if raw is None or not raw.startswith("/"):
        path, server_root = quote(root + _text(environ["PATH_INFO"])), ""
    else:
        came = raw.partition("?")[0]
        path = whole_path(root, came)
        # Without the root, a proxy has removed it, and says so to both hosts in a header.
        server_root = root if path != came else ""
    query = environ.get("QUERY_STRING", "")
    return Incoming(environ["REQUEST_METHOD"], path, query, headers, server_root)


def _text(value: str) -> str:
    """Return a header as text; WSGI has each of its bytes as a character."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def _set_asker(environ: WSGIEnvironment, asker: http.Asker) -> None:
    """Show the application the caller at the other host, as if the call had come here."""
    if asker.host:
        environ["HTTP_HOST"] = asker.host
    if asker.client:
        environ["REMOTE_ADDR"] = asker.client
    if asker.scheme:
        environ["wsgi.url_scheme"] = asker.scheme


def _body(environ: WSGIEnvironment, most: int) -> bytes | http.OwnAnswer:
    """Return the body, or why it cannot be forwarded."""
    stream, text = environ["wsgi.input"], environ.get("CONTENT_LENGTH") or ""
    body: bytes
    if text.isdecimal():
        size = int(text)
        if size > most:
            return http.too_long(most)
        body = stream.read(size)
        if len(body) < size:
            return http.refusal(400, "body-cut-off", "the body ended early")
        return body
    if environ.get("wsgi.input_terminated"):
        body = stream.read(most + 1)
        return body if len(body) <= most else http.too_long(most)
    if environ.get("HTTP_TRANSFER_ENCODING"):
        return http.refusal(411, "length-required", "this server does not say where a body ends")
    return b""  # without a length, there is none


def _started(answer: http.OwnAnswer, start_response: StartResponse) -> Iterable[bytes]:
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Unknown"
    headers = [(name, value.encode().decode("latin-1")) for name, value in answer.headers]
    start_response(f"{answer.status} {phrase}", headers)
    return [answer.body]
