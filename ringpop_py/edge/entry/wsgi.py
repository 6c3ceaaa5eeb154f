"""The entry of WSGI applications (Flask, Django), under servers of threads or of processes."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from io import BufferedReader, BytesIO, RawIOBase
from typing import IO, TYPE_CHECKING, Any, Final, Unpack
from urllib.parse import quote

from ringpop_py.base.errors import CallError, ConfigError, RingpopError
from ringpop_py.base.logs import log
from ringpop_py.client.sync.client import Client
from ringpop_py.edge.entry import http
from ringpop_py.edge.entry.finder import KeyFinder
from ringpop_py.edge.entry.keys import Incoming, whole_path
from ringpop_py.edge.entry.owners import Follower
from ringpop_py.edge.entry.pieces import BlockingPieces
from ringpop_py.net.http.message import CONTINUE, MARK, HttpReply
from ringpop_py.net.http.stream_calls import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
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
        answer: Iterable[bytes] | None = None
        if (http.length_in(asked.headers) or 0) > self._options.body_bytes_max:
            return _started(http.too_long(self._options.body_bytes_max), start_response)
        if key is not None:
            answer = self._elsewhere(key, asked, environ, start_response)
        return self._app(environ, start_response) if answer is None else answer

    def _elsewhere(
        self, key: str, asked: Incoming, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes] | None:
        """Return our answer, or the owner's; None if the application here is to answer."""
        ring = self._follower.ring or self._follower.wait(http.RING_S)
        if ring is not None and ring.is_here(key):
            return None
        body = _Body(environ, self._options.body_bytes_max)
        began = body.read(http.WHOLE_BYTES_MAX)
        request = body.refused or http.to_forward(
            asked,
            began,
            client=environ.get("REMOTE_ADDR", ""),
            scheme=environ["wsgi.url_scheme"],
            kind="answer" if body.is_over else "body",
        )
        if isinstance(request, http.OwnAnswer):
            return _started(request, start_response)
        try:
            reply = self._client.handle_or_proxy(key, request, **self._options.tries(asked.method))
        except RingpopError as error:
            if not http.may_be_answered_here(error, self._options.away):
                return _refused(error, start_response)
            reply = None
        if reply is None:
            body.put_back(began)
            return None
        return self._passed_on(reply, body, asked.method, start_response)

    def _passed_on(
        self, reply: HttpReply, body: _Body, method: str, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Return the answer that *reply* begins, after the rest of *body* was sent."""
        if not reply.stream:
            headers = http.reply_headers(reply, method)
            return _started(http.OwnAnswer(reply.status, headers, reply.body), start_response)
        pieces = BlockingPieces(reply, self._client, self._options)
        try:
            if reply.status == CONTINUE:
                with suppress(CallError):  # it may have answered before it has read all
                    while not body.is_over and body.refused is None:
                        pieces.write(body.read(PIECE_BYTES), is_last=body.is_over)
                if body.refused is not None:
                    pieces.close()
                    return _started(body.refused, start_response)
                first = pieces.read()
                reply = HttpReply(first.status, first.headers, first.data, "", reply.stream)
        except RingpopError as error:
            pieces.close()
            return _refused(error, start_response)
        headers = http.reply_headers(reply, method)
        _started(http.OwnAnswer(reply.status, headers, b""), start_response)
        return _Rest(reply.body, pieces)


class _Rest:
    """The rest of an answer, as the server takes it."""

    def __init__(self, began: bytes, pieces: BlockingPieces) -> None:
        self._began = began
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        """Yield its pieces. Raises RingpopError: it has broken off."""
        yield self._began
        is_last = False
        while not is_last:
            piece = self._pieces.read()
            is_last = piece.is_last
            yield piece.data

    def close(self) -> None:
        """See the interface of WSGI: the server needs no more."""
        self._pieces.close()


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


class _Body:
    """The body of a request, as far as its server says where it ends.

    Attributes:
        refused: why it cannot be forwarded, if it cannot.
        is_over: whether all of it has been read.
    """

    def __init__(self, environ: WSGIEnvironment, most: int) -> None:
        self.refused: http.OwnAnswer | None = None
        self._environ = environ
        self._stream = environ["wsgi.input"]
        self._most, self._too_long = most, http.too_long(most)
        text = environ.get("CONTENT_LENGTH") or ""
        self._left = int(text) if text.isdecimal() else None
        self.is_over = False
        if self._left is not None:
            self.is_over = not self._left
            self.refused = self._too_long if self._left > most else None
        elif not environ.get("wsgi.input_terminated"):
            self.is_over = True  # a body without a length is empty
            if environ.get("HTTP_TRANSFER_ENCODING"):
                text = "this server does not say where a body ends"
                self.refused = http.refusal(411, "length-required", text)

    def read(self, most: int) -> bytes:
        """Return the next bytes: as many as *most*, or all that are left; or refuse it."""
        if self.is_over or self.refused is not None:
            return b""
        wanted = most if self._left is None else min(most, self._left)
        data: bytes = self._stream.read(wanted)
        self._most -= len(data)
        if self._most < 0:
            self.refused = self._too_long
        if self._left is not None:
            self._left -= len(data)
            if len(data) < wanted:
                self.refused = http.refusal(400, "body-cut-off", "the body ended early")
        self.is_over = not self._left if self._left is not None else len(data) < wanted
        return data

    def put_back(self, began: bytes) -> None:
        """Have the application here read *began*, and then the rest."""
        if self.is_over:
            self._environ["wsgi.input"] = BytesIO(began)
            self._environ["CONTENT_LENGTH"] = str(len(began))
        else:
            self._environ["wsgi.input"] = BufferedReader(_Again(began, self._stream, self._left))


class _Again(RawIOBase):
    """A body whose beginning has been read, from its beginning."""

    def __init__(self, began: bytes, stream: IO[bytes], left: int | None) -> None:
        self._began = BytesIO(began)
        self._stream = stream
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - of any kind that has bytes
        most = len(buffer)
        data = self._began.read(most)
        if not data:
            data = self._stream.read(most if self._left is None else min(most, self._left))
            self._left = None if self._left is None else self._left - len(data)
        buffer[: len(data)] = data
        return len(data)


def _refused(error: RingpopError, start_response: StartResponse) -> Iterable[bytes]:
    log.debug("request-not-forwarded", code=error.code, text=str(error))
    return _started(http.refusal_of(error), start_response)


def _started(answer: http.OwnAnswer, start_response: StartResponse) -> Iterable[bytes]:
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Unknown"
    headers = [(name, value.encode().decode("latin-1")) for name, value in answer.headers]
    start_response(f"{answer.status} {phrase}", headers)
    return [answer.body]
