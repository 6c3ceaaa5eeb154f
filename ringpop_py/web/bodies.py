"""Bodies of requests: read within a limit, in the form that the caller says it has."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from ringpop_py.web.forms import BYTES_TYPE, MSGPACK_TYPE, MSGPACK_TYPES
from ringpop_py.web.refusals import JSON_TYPE, Refusal, bad_request
from ringpop_py.wire.values import decode_value

if TYPE_CHECKING:
    from starlette.requests import Request

    from ringpop_py.partitions.operations import Value

BODY_BYTES_MAX: Final = 4 << 20
_UNSUPPORTED, _TOO_LARGE = 415, 413


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


def _too_large() -> Refusal:
    message = f"a body has at most {BODY_BYTES_MAX} bytes"
    return Refusal(_TOO_LARGE, "TooLarge", message, {"connection": "close"})
