"""How the errors of forwarded requests travel, in answers that are not ok and in those of many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from ringpop_py.base import errors
from ringpop_py.base.errors import (
    ApplicationError,
    BodyError,
    HandlerFailed,
    NoOwner,
    ProxyError,
    RingpopError,
    TooManyInFlight,
)
from ringpop_py.base.faults import sendable
from ringpop_py.base.values.declared import Declared, Meta, decode, encode, reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROXY_ERROR_PREFIX: Final = "ringpop.proxy."
"""Begins the kind of an error of the daemon itself while it routed a request."""
HANDLER_FAILED_PREFIX: Final = "ringpop.handler."
"""Begins the kind of a `HandlerFailed`."""
ERROR_CHARACTERS_MAX: Final = 1 << 16
"""The longest kind, and the longest message, of an error; longer ones are cut by the sender."""

ErrorText = Annotated[str, Meta(max_length=ERROR_CHARACTERS_MAX)]
Failure = ApplicationError | ProxyError | NoOwner | TooManyInFlight
"""What a forwarded request may end with."""

_KINDS: Final[dict[str, Callable[[str], Failure]]] = {
    PROXY_ERROR_PREFIX + kind.__name__: kind
    for kind in (
        errors.MaxRetriesExceeded,
        errors.KeysDiverged,
        errors.Refused,
        errors.MayHaveRun,
        errors.DeadlineExceeded,
        errors.NoOwner,
        errors.TooManyInFlight,
    )
}


class _SentError(Declared, frozen=True):
    kind: ErrorText
    message: ErrorText


def _sent(error: RingpopError) -> _SentError:
    match error:
        case HandlerFailed(kind=kind):
            kind, message = f"{HANDLER_FAILED_PREFIX}{kind}", str(error.message)
        case ApplicationError():  # which an application may have made of anything
            kind, message = str(error.kind), str(error.message)
        case _:
            kind, message = f"{PROXY_ERROR_PREFIX}{type(error).__name__}", str(error)
            if kind not in _KINDS:
                known = errors.Refused if error.took_effect == "no" else errors.MayHaveRun
                kind = f"{PROXY_ERROR_PREFIX}{known.__name__}"
                message = f"{type(error).__name__}: {error}"
    # Cut here: the receiver would refuse a longer one, and lose the error.
    return _SentError(*(sendable(text[:ERROR_CHARACTERS_MAX]) for text in (kind, message)))


def _came(error: _SentError) -> Failure:
    if error.kind in _KINDS:
        return _KINDS[error.kind](error.message)
    if error.kind.startswith(HANDLER_FAILED_PREFIX):
        return HandlerFailed(error.kind.removeprefix(HANDLER_FAILED_PREFIX), error.message)
    return ApplicationError(error.kind, error.message)


def encode_failure(error: RingpopError) -> bytes:
    """Return *error* as arg2 of an answer that is not ok."""
    return encode(_sent(error))


def decode_failure(data: bytes) -> Failure:
    """Return the error in arg2, of the class that it had. Raises BodyError."""
    return _came(decode(_SentError, data))


# Of many requests in one message: a body, or an error, for each.

_TOO_LARGE: Final = (
    "it has run, and its answer does not fit into one message with those of the other keys: ask"
    " for fewer at a time (keys_max)"
)
_ROOM: Final = 192
"""The bytes that are set aside for each result: more than those of `_TOO_LARGE`."""
_read_bodies: Final = reader(list[bytes])
_read_results: Final = reader(list[bytes | _SentError])


def encode_results(results: Sequence[bytes | RingpopError], most: int) -> bytes:
    """Return *results*, a body or an error for each request, as arg3 of at most so many bytes.

    What does not fit becomes an error, which says so.
    """
    bodies = [each for each in results if isinstance(each, bytes)]
    if len(bodies) == len(results) and sum(map(len, bodies)) + _ROOM * len(bodies) <= most:
        return encode(bodies)
    left = most - _ROOM * (len(results) + 1)
    sent: list[bytes | _SentError] = []
    for result in results:
        one = _sent(result) if isinstance(result, RingpopError) else result
        size = len(one) if isinstance(one, bytes) else len(encode(one))
        if size > left:
            one = _sent(HandlerFailed("TooLarge", _TOO_LARGE))
            size = 0
        left -= size
        sent.append(one)
    return encode(sent)


def decode_results(data: bytes, count: int) -> list[bytes | RingpopError]:
    """Return the *count* results in arg3. Raises BodyError."""
    try:
        return [*decode_bodies(data, count)]  # three times as fast
    except BodyError:
        results = _read_results(data)
    _check_count(results, count)
    return [_came(each) if isinstance(each, _SentError) else each for each in results]


def decode_bodies(data: bytes, count: int) -> list[bytes]:
    """Return the bodies in arg3, one for each of *count* keys. Raises BodyError."""
    bodies = _read_bodies(data)
    _check_count(bodies, count)
    return bodies


def _check_count(found: Sequence[object], count: int) -> None:
    if len(found) != count:
        raise BodyError(f"{len(found)} bodies for {count} keys")
