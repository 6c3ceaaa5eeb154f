"""Values as bodies, in what the caller speaks: JSON, msgpack, or bytes as they are.

JSON has no bytes, no infinite numbers and no NaN. A value with any of these in it is not bent to
fit: whoever asks for it as JSON is told to ask for msgpack. A value that *is* bytes travels as it
is. In an answer of many rows each row stands for itself.
"""

from __future__ import annotations

import math
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from ringpop_py.web.refusals import JSON_TYPE, Refusal, bad_request
from ringpop_py.wire.values import decode_value, encode_value

if TYPE_CHECKING:
    from starlette.requests import Request

    from ringpop_py.partitions.operations import Value

MSGPACK_TYPE: Final = "application/msgpack"
BYTES_TYPE: Final = "application/octet-stream"
MSGPACK_TYPES: Final = (MSGPACK_TYPE, "application/x-msgpack", "application/vnd.msgpack")
BODY_BYTES_MAX: Final = 4 << 20
_UNSUPPORTED, _UNACCEPTABLE, _TOO_LARGE = 415, 406, 413


async def body_of(request: Request) -> bytes:
    """The body of *request*. Raises Refusal if it is too large."""
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > BODY_BYTES_MAX:
        raise _too_large()
    chunks = []
    size = 0
    async with aclosing(request.stream()) as stream:
        async for chunk in stream:
            size += len(chunk)
            if size > BODY_BYTES_MAX:
                raise _too_large()
            chunks.append(chunk)
    return b"".join(chunks)


async def value_of(request: Request, *, required: bool = True) -> Value:
    """The value in the body of *request*, which says how it is written.

    Args:
        required: else no body at all means None.

    Raises:
        Refusal: it is written in another way, or not at all.
        BodyError: it is malformed.
    """
    body = await body_of(request)
    kind = request.headers.get("content-type", JSON_TYPE).partition(";")[0].strip().lower()
    if kind == BYTES_TYPE:
        return body
    if not body and not required:
        return None
    if kind not in (JSON_TYPE, *MSGPACK_TYPES):
        message = (
            f"content-type {kind!r}: a value is {JSON_TYPE} (with curl: --json), {MSGPACK_TYPE} "
            f"or {BYTES_TYPE}"
        )
        raise Refusal(_UNSUPPORTED, "UnsupportedMediaType", message)
    if not body:
        message = "there is no value in the body"
        raise bad_request(message)
    value: Value = decode_value("json" if kind == JSON_TYPE else "msgpack", body)
    return value


def answer(request: Request, value: Any, *, status: int = 200) -> Response:  # noqa: ANN401
    """*value* as *request* would have it. Raises Refusal if that cannot say it."""
    wanted = _wanted(request)
    if _wants_msgpack(request):
        return Response(encode_value("msgpack", value), status, media_type=MSGPACK_TYPE)
    if isinstance(value, bytes) and (BYTES_TYPE in wanted or JSON_TYPE not in wanted):
        return Response(value, status, media_type=BYTES_TYPE)
    return Response(encode_value("json", _in_json(value)), status, media_type=JSON_TYPE)


def part(request: Request, value: Value) -> Value:
    """*value*, as part of an answer to *request*. Raises Refusal if that cannot say it."""
    return value if _wants_msgpack(request) else _in_json(value)


def _wanted(request: Request) -> str:
    return request.headers.get("accept", "*/*").lower()


def _wants_msgpack(request: Request) -> bool:
    return any(kind in _wanted(request) for kind in MSGPACK_TYPES)


def _in_json(value: Value) -> Value:
    """*value*, which JSON has a form for. Raises Refusal."""
    what = _unsayable(value)
    if what:
        message = f"there is {what} in it, which JSON cannot say: ask with Accept: {MSGPACK_TYPE}"
        raise Refusal(_UNACCEPTABLE, "NotAcceptable", message)
    return value


def _unsayable(value: object) -> str:
    """What of *value* JSON cannot say; empty if all is well."""
    match value:
        case bytes():
            return "a value of bytes"
        case float() if not math.isfinite(value):
            return "an infinite number or none at all"
        case list():
            return next(filter(None, map(_unsayable, value)), "")
        case dict():
            return next(filter(None, map(_unsayable, value.values())), "")
        case None | bool() | int() | float() | str():
            return ""
        case _:
            return f"a value of kind {type(value).__name__}"


def _too_large() -> Refusal:
    message = f"a body has at most {BODY_BYTES_MAX} bytes"
    return Refusal(_TOO_LARGE, "TooLarge", message, {"connection": "close"})
