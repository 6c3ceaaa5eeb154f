"""Forms of values in bodies: JSON, msgpack, or raw bytes; and which one a caller wants.

JSON has no bytes, no infinite numbers and no NaN. A value that contains any of these is never
converted: the reply has another form that the caller accepts, or is an error that names the form to
ask for. A reply of many rows has one form; a row that this form cannot represent is an error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from ringpop_py.base.values.packed import encode_value
from ringpop_py.base.values.requests import value_of
from ringpop_py.edge.web.refusals import (
    JSON_TYPE,
    LINE_END,
    REFUSALS,
    HttpRefusal,
    error_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from starlette.requests import Request

MSGPACK_TYPE: Final = "application/msgpack"
BYTES_TYPE: Final = "application/octet-stream"
MSGPACK_TYPES: Final = (MSGPACK_TYPE, "application/x-msgpack", "application/vnd.msgpack")
_UNACCEPTABLE: Final = 406
VARY: Final = {"vary": "accept"}


@dataclass(frozen=True, slots=True)
class Form:
    """A form of values.

    Attributes:
        suffix: the end of the tags of values in this form, so that no two forms share a tag.
        encode: returns a value as bytes in this form.
        missing: returns what a value contains that this form cannot represent; empty if nothing.
    """

    media_type: str
    suffix: str
    encode: Callable[[Any], bytes]
    missing: Callable[[object], str]


def _missing_in_json(value: object) -> str:
    match value:
        case bytes():
            return "bytes"
        case float() if not math.isfinite(value):
            return "an infinite number or NaN"
        case list():
            return next(filter(None, map(_missing_in_json, value)), "")
        case dict():
            return next(filter(None, map(_missing_in_json, value.values())), "")
        case None | bool() | int() | float() | str():
            return ""
        case _:  # an application's own aggregation can return anything
            return f"a {type(value).__name__}"


JSON: Final = Form(JSON_TYPE, "", lambda value: encode_value("json", value), _missing_in_json)
MSGPACK: Final = Form(
    MSGPACK_TYPE, ".msgpack", lambda value: encode_value("msgpack", value), lambda _value: ""
)
BYTES: Final = Form(
    BYTES_TYPE,
    ".bytes",
    bytes,
    lambda value: "" if isinstance(value, bytes) else "something other than bytes",
)
OF_VALUES: Final = (BYTES, JSON, MSGPACK)
"""The forms of a value that is the whole reply, in this node's order of preference."""
OF_ROWS: Final = (JSON, MSGPACK)
"""The forms of all other replies, in this node's order of preference."""


class Wanted:
    """The *offered* forms that the caller of *request* accepts, its favourite first.

    Make one before anything is changed, so that no write is done whose reply is then refused. A
    caller that accepts none of them gets *otherwise*; without it, Refusal is raised.
    """

    def __init__(
        self, request: Request, offered: Sequence[Form] = OF_ROWS, *, otherwise: Form | None = None
    ) -> None:
        accepted = ",".join(request.headers.getlist("accept"))
        weights = [(_weight(accepted, form), form) for form in offered]
        weights.sort(key=itemgetter(0), reverse=True)  # stable: equal ones keep their order
        self._forms = [form for weight, form in weights if weight > 0]
        # Replies other than a key's value are read at a terminal, too; a value is sent as it is.
        self._line_end = b"" if BYTES in offered else LINE_END
        if not self._forms and otherwise is not None:
            self._forms = [otherwise]
        if not self._forms:
            there = " and ".join(form.media_type for form in offered)
            message = f"accept: {accepted:.200}: this path offers only {there}"
            raise HttpRefusal(_UNACCEPTABLE, "NotAcceptable", message)

    def form_of(self, value: object) -> Form:
        """Return the first form that can represent *value*. Raises Refusal if none can."""
        return _first_for(value, self._forms)

    def part(self, value: object) -> Any:  # noqa: ANN401 - as it came
        """Return *value* as part of a reply. Raises Refusal if the form cannot represent it."""
        _first_for(value, self._forms[:1])
        return value

    def row(self, key: str, packed: bytes) -> dict[str, Any]:
        """Return the value of *key* as part of a row, or the error in its place."""
        try:
            return {"value": self.part(value_of(key, packed))}
        except REFUSALS as error:
            return error_fields(error)

    def answer(
        self, value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Return the reply with *value*. Raises Refusal if no accepted form can represent it."""
        form = self.form_of(value)
        all_headers = {**VARY, **(headers or {})}
        body = form.encode(value) + (self._line_end if form is JSON else b"")
        return Response(body, status, all_headers, media_type=form.media_type)


def _first_for(value: object, forms: Sequence[Form]) -> Form:
    for form in forms:
        if not form.missing(value):
            return form
    message = (
        f"the value contains {forms[0].missing(value)}, which {forms[0].media_type} cannot "
        f"represent: ask with Accept: {MSGPACK_TYPE}"
    )
    raise HttpRefusal(_UNACCEPTABLE, "NotAcceptable", message)


def _weight(accepted: str, form: Form) -> float:
    """Return how much *form* is wanted, from 0 to 1, by its most specific range (RFC 9110)."""
    if not accepted.strip():
        return 1.0
    best = (0, 0.0)  # how specific its range is, which counts first, and its weight
    for media_range, weight in _ranges(accepted):
        names = MSGPACK_TYPES if form is MSGPACK else (form.media_type,)
        if media_range in names:
            best = max(best, (3, weight))
        elif media_range == "application/*":
            best = max(best, (2, weight))
        elif media_range in ("*/*", "*"):  # the second is what some old clients send
            best = max(best, (1, weight))
    return best[1]


def _ranges(accepted: str) -> Iterator[tuple[str, float]]:
    """Yield the media ranges of an Accept header with their weights; skip malformed ones."""
    for item in accepted.lower().split(","):
        media_range, *parameters = (part.strip() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            name, _, text = parameter.partition("=")
            if name.strip() == "q":
                try:
                    weight = float(text)
                except ValueError:
                    weight = math.nan
        if 0 <= weight <= 1:
            yield media_range, weight
