"""JSON as Go's encoding/json reads it into structs, which is how Ringpop's nodes read each other.

A field that is missing or null is the zero of its type. A field that the struct does not have is
ignored. Names match whatever their case, and of a name that occurs twice the last one counts.
Text that is not UTF-8 has U+FFFD in its place. What Go refuses is refused: a value of another
type, a number that is not whole or does not fit the field.

Deliberately stricter than Go: a body is one value, with nothing behind it.

An object is a class with a field for each of its names; each has its zero as the default::

    class Row(GoObject, frozen=True):
        address: Text = ""
        incarnation_number: Int64 = 0

    read_row = go_reader(Row, "row")
    read_row(decode_go_json(b'{"Address":"a:1"}'))  # Row("a:1", 0)
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import Meta, converter
from ringpop_py.base.values.packed import no_constant

if TYPE_CHECKING:
    from collections.abc import Callable

Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Uint32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Texts = dict[str, str | None]
"""Text by name; these names are the sender's own, and matched exactly."""

_SURROGATES: Final = re.compile("[\ud800-\udfff]")

K = TypeVar("K", bound="GoObject")


class GoObject(msgspec.Struct, frozen=True, rename="camel"):
    """An object: its fields as the sender names them, with their types in Go."""


def decode_go_json(data: bytes) -> Any:  # noqa: ANN401 - checked by `go_reader`
    """Return the value in *data*; no bytes at all mean None, as null does.

    Raises:
        BodyError: if *data* is not one well-formed value.
    """
    if not data:
        return None
    try:
        # Go replaces each byte that is not UTF-8 separately; escaped first, they can be told apart.
        text = data.decode("utf-8", "surrogateescape")
        value = json.loads(text, parse_constant=no_constant)
        if "\\ud" in text.lower() or _SURROGATES.search(text):
            value = _replaced(value)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"not a json value: {type(error).__name__}") from None
    return value


def _replaced(value: Any) -> Any:  # noqa: ANN401 - any plain value
    """Return *value* with U+FFFD for halves of surrogate pairs, which UTF-8 cannot carry."""
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_replaced(item) for item in value]
    if isinstance(value, dict):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    return value


def go_reader(kind: type[K], what: str) -> Callable[[object], K]:
    """Return a function that makes a *kind* of an object that `decode_go_json` has read.

    It raises BodyError for anything that is neither such an object nor null.

    Args:
        what: the object's name in errors.
    """
    names = frozenset(field.encode_name for field in msgspec.structs.fields(kind))
    folded = {name.casefold(): name for name in names}  # Go ignores the case of names
    make = converter(kind, what)

    def matched(value: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = key if key in names else folded.get(key.casefold())
            if name is not None and item is not None:
                found[name] = item  # of two that match, the last one counts, as in Go
        return found

    def read(value: object) -> K:
        if isinstance(value, dict) and (not value.keys() <= names or None in value.values()):
            value = matched(value)
        message: K = make({} if value is None else value)
        return message

    return read
