"""Requests that a daemon forwards for a client, as calls, and what it answers (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py import errors
from ringpop_py.arguments import keys_of, sendable_text, wrong
from ringpop_py.errors import ApplicationError, BodyError, PeerFailed, ProxyError
from ringpop_py.proxy.entry import forward_call, reply_in
from ringpop_py.proxy.head import (
    APPLICATION_SCHEME,
    PROXY_ERROR_PREFIX,
    AnswerHead,
    Head,
    decode_error,
)
from ringpop_py.proxy.request import HttpRequest, Reply, Request
from ringpop_py.values.declared import decode
from ringpop_py.wire.calls import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.address import Address
    from ringpop_py.proxy.request import AnyReply, AnyRequest
    from ringpop_py.wire.calls import Answer


def proxy_call(
    key: str | Sequence[str],
    request: AnyRequest,
    *,
    service: str,
    idempotent: bool,
    ttl_s: float,
    may_be_here: bool = False,
) -> Call:
    """Return the call that has a daemon forward *request* to the owner of *key*.

    Args:
        may_be_here: only of HTTP: whether the answer may be that the daemon's own host owns it.

    Raises:
        ConfigError: an argument is not what it has to be.
    """
    if isinstance(request, HttpRequest):
        if not isinstance(key, str):
            raise wrong("key", "text: an HTTP request has one key", key)
        return forward_call(
            sendable_text(key, "key"),
            request,
            may_be_here=may_be_here,
            idempotent=idempotent,
            ttl_s=ttl_s,
        )
    keys = (key,) if isinstance(key, str) else keys_of(key)
    try:
        head = Head(
            keys, route=True, idempotent=idempotent, headers=checked_request(request).headers
        ).encode()
    except UnicodeEncodeError:
        for each in keys:
            sendable_text(each, "key")
        raise
    return application_call(service, request, head, ttl_s)


def application_call(service: str, request: Request, head: bytes, ttl_s: float) -> Call:
    """Return a call of the application's handler. Raises ConfigError."""
    body = checked_request(request).body
    sendable_text(service, "service")
    return Call(service, request.endpoint, head, body, ttl_s=ttl_s, scheme=APPLICATION_SCHEME)


def checked_request(request: object) -> Request:
    """Return *request* itself. Raises ConfigError if it is none."""
    if not isinstance(request, Request):
        raise wrong("request", "a Request or an HttpRequest", request)
    return request


def proxy_reply(answer: Answer, request: AnyRequest, peer: Address) -> AnyReply | None:
    """Return the reply in the *answer* to a `proxy_call`; None if the asker's host owns the key.

    Raises:
        ApplicationError: the owner's handler answered with it.
        ProxyError, NoOwner: the daemon could not forward the request.
        PeerFailed: the answer cannot be read.
    """
    if not answer.ok:
        error = error_in(answer)
        kind = _PROXY_ERRORS.get(error.kind)
        raise kind(error.message) if kind is not None else error
    try:
        if isinstance(request, HttpRequest):
            return reply_in(answer.arg2, answer.arg3)
        return Reply(answer.arg3, decode(AnswerHead, answer.arg2).owner)
    except BodyError as error:
        raise PeerFailed(f"{peer}: the head of the answer: {error}") from None


def error_in(answer: Answer) -> ApplicationError:
    """Return the error in *answer*. Raises PeerFailed if it is malformed: the handler has run."""
    try:
        return decode_error(answer.arg2)
    except BodyError as error:
        raise PeerFailed(str(error)) from None


_PROXY_ERRORS: Final[dict[str, Callable[[str], ProxyError | errors.NoOwner]]] = {
    PROXY_ERROR_PREFIX + kind.__name__: kind
    for kind in (
        errors.MaxRetriesExceeded,
        errors.KeysDiverged,
        errors.Refused,
        errors.MayHaveRun,
        errors.DeadlineExceeded,
        errors.NoOwner,
    )
}
