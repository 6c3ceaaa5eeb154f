"""Bodies of requests: read within a limit, and decoded as their `Content-Type` says."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringpop_py.values.packed import decode_value
from ringpop_py.web.forms import BYTES, BYTES_TYPE, JSON, MSGPACK, MSGPACK_TYPE, MSGPACK_TYPES, Form
from ringpop_py.web.refusals import JSON_TYPE, HttpRefusal, bad_request

if TYPE_CHECKING:
    from starlette.requests import Request

    from ringpop_py.values.operations import Value

BODY_BYTES_MAX: Final = 4 << 20
_UNSUPPORTED, _TOO_LARGE = 415, 413


async def body_of(request: Request) -> bytes:
    """Return the body of *request*. Raises Refusal if it is too large."""
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


@dataclass(frozen=True, slots=True)
class Sent:
    """A value as a caller sent it, in *form*."""

    value: Value
    form: Form
    body: bytes

    @property
    def is_verbatim(self) -> bool:
        """Whether an answer with the value in the same form has the same bytes."""
        return self.form.encode(self.value) == self.body


async def value_of(request: Request, *, required: bool = True) -> Value:
    """Return the value in the body of *request*. See `sent_in`."""
    return (await sent_in(request, required=required)).value


async def sent_in(request: Request, *, required: bool = True) -> Sent:
    """Return the value in the body of *request*, with its form and its bytes.

    Args:
        required: refuse an empty body. Otherwise an empty body means None.

    Raises:
        Refusal: the content type is not supported, or the body is missing or too large.
        BodyError: the body is malformed.
    """
    body = await body_of(request)
    kind = request.headers.get("content-type", JSON_TYPE).partition(";")[0].strip().lower()
    if kind == BYTES_TYPE:
        return Sent(body, BYTES, body)
    if not body and not required:
        return Sent(None, JSON, body)
    if kind not in (JSON_TYPE, *MSGPACK_TYPES):
        message = (
            f"content-type {kind!r}: a value is {JSON_TYPE} (with curl: --json), {MSGPACK_TYPE} "
            f"or {BYTES_TYPE}"
        )
        raise HttpRefusal(_UNSUPPORTED, "UnsupportedMediaType", message)
    if not body:
        message = "the body is empty: a value is missing"
        raise bad_request(message)
    scheme, form = ("json", JSON) if kind == JSON_TYPE else ("msgpack", MSGPACK)
    return Sent(decode_value(scheme, body), form, body)


def _too_large() -> HttpRefusal:
    message = f"a body has at most {BODY_BYTES_MAX} bytes"
    return HttpRefusal(_TOO_LARGE, "TooLarge", message, {"connection": "close"})
