"""Forms of values in bodies: JSON, msgpack, or bytes as they are; and which one a caller wants.

JSON has no bytes, no infinite numbers and no NaN. A value with any of these in it is not bent to
fit: it is answered in another form that the caller accepts, or refused with the form to ask for. In
an answer of many rows each row stands for itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from ringpop_py.web.refusals import JSON_TYPE, Refusal
from ringpop_py.wire.values import encode_value

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
        suffix: of the tags of values in this form, so that no two forms share a tag.
        missing: what of a value this form cannot say; empty if it can say all of it.
    """

    media_type: str
    suffix: str
    encode: Callable[[Any], bytes]
    missing: Callable[[object], str]


def _missing_in_json(value: object) -> str:
    match value:
        case bytes():
            return "a value of bytes"
        case float() if not math.isfinite(value):
            return "an infinite number or NaN"
        case list():
            return next(filter(None, map(_missing_in_json, value)), "")
        case dict():
            return next(filter(None, map(_missing_in_json, value.values())), "")
        case None | bool() | int() | float() | str():
            return ""
        case _:
            return f"a value of kind {type(value).__name__}"


JSON: Final = Form(JSON_TYPE, "", lambda value: encode_value("json", value), _missing_in_json)
MSGPACK: Final = Form(
    MSGPACK_TYPE, ".msgpack", lambda value: encode_value("msgpack", value), lambda _value: ""
)
BYTES: Final = Form(
    BYTES_TYPE,
    ".bytes",
    bytes,
    lambda value: "" if isinstance(value, bytes) else "a value that is not bytes",
)
OF_VALUES: Final = (BYTES, JSON, MSGPACK)
"""The forms of a value that is the whole answer, in our order."""
OF_ROWS: Final = (JSON, MSGPACK)
"""The forms of all other answers, in our order."""


class Wanted:
    """The forms that the caller of *request* accepts, in its order, of those *offered*.

    Make one before anything is done: a caller that accepts none of them is refused.

    Raises:
        Refusal: it accepts none of them.
    """

    def __init__(self, request: Request, offered: Sequence[Form] = OF_ROWS) -> None:
        accepted = ",".join(request.headers.getlist("accept"))
        weights = [(_weight(accepted, form), form) for form in offered]
        self._forms = [form for weight, form in sorted(weights, key=_by_weight) if weight > 0]
        if not self._forms:
            there = " and ".join(form.media_type for form in offered)
            message = f"accept: {accepted:.200}: there are {there} here"
            raise Refusal(_UNACCEPTABLE, "NotAcceptable", message)

    def form_of(self, value: object) -> Form:
        """The first form that can say *value*. Raises Refusal if none can."""
        for form in self._forms:
            if not form.missing(value):
                return form
        raise _unsayable(value, self._forms[0])

    def part(self, value: object) -> Any:  # noqa: ANN401 - as it came
        """*value*, as part of the answer. Raises Refusal if that cannot say it."""
        form = self._forms[0]
        if form.missing(value):
            raise _unsayable(value, form)
        return value

    def answer(
        self, value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Response:
        """*value* as the answer. Raises Refusal if no form that is accepted can say it."""
        form = self.form_of(value)
        all_headers = {**VARY, **(headers or {})}
        return Response(form.encode(value), status, all_headers, media_type=form.media_type)


def _by_weight(row: tuple[float, Form]) -> float:
    return -row[0]


def _unsayable(value: object, form: Form) -> Refusal:
    message = (
        f"there is {form.missing(value)} in it, which {form.media_type} cannot say: "
        f"ask with Accept: {MSGPACK_TYPE}"
    )
    return Refusal(_UNACCEPTABLE, "NotAcceptable", message)


def _weight(accepted: str, form: Form) -> float:
    """How much *form* is wanted, from 0 to 1: by the range that says most about it (RFC 9110)."""
    if not accepted.strip():
        return 1.0
    best = (0, 0.0)
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
    """The media ranges of an Accept header and their weights; what makes no sense is left out."""
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
