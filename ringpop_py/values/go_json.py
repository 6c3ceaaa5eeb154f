"""JSON as Go's encoding/json reads it into structs, which is how Ringpop's nodes read each other.

A field that is missing or null is the zero of its type. A field that the struct does not have is
ignored. Names match whatever their case, and of a name that occurs twice the last one counts.
Text that is not UTF-8 has U+FFFD in its place. What Go refuses is refused: a value of another
type, a number that is not whole or does not fit the field.

Deliberately stricter than Go: a body is one value, with nothing behind it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from ringpop_py.errors import BodyError
from ringpop_py.values.packed import TEXT_CHARACTERS_MAX, no_constant

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
UINT32_MAX: Final = (1 << 32) - 1

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"


def decode_go_json(data: bytes) -> Any:  # noqa: ANN401 - checked by `Struct`
    """The value in *data*; no bytes at all mean None, as null does.

    Raises:
        BodyError: if *data* is not one well-formed value.
    """
    if not data:
        return None
    try:
        # Go replaces each byte that is not UTF-8 by itself; escaped first, they can be told apart.
        text = data.decode("utf-8", "surrogateescape")
        value = json.loads(text, parse_constant=no_constant)
        if "\\ud" in text.lower() or _SURROGATES.search(text):
            value = _replaced(value)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"not a json value: {type(error).__name__}") from None
    return value


def _replaced(value: Any) -> Any:  # noqa: ANN401 - any plain value
    """*value* with U+FFFD for halves of surrogate pairs, which no text can be made of."""
    if isinstance(value, str):
        return _SURROGATES.sub(_REPLACEMENT, value)
    if isinstance(value, list):
        return [_replaced(item) for item in value]
    if isinstance(value, dict):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    return value


class Struct:
    """The fields of one kind of object, by their exact names.

    Args:
        what: the object's name in errors.
    """

    def __init__(self, what: str, *names: str) -> None:
        self.what = what
        self._names = frozenset(names)
        self._folded = {name.casefold(): name for name in names}

    def read(self, value: object) -> Fields:
        """The fields of *value*.

        Raises:
            BodyError: if *value* is neither an object nor null.
        """
        if value is None:
            return Fields(self.what, {})
        if not isinstance(value, dict):
            raise BodyError(f"{self.what} is {kind_of(value)}, not an object")
        return Fields(self.what, value if value.keys() <= self._names else self._matched(value))

    def _matched(self, value: dict[str, Any]) -> dict[str, Any]:
        """The fields that we know, under their exact names."""
        matched: dict[str, Any] = {}
        for key, item in value.items():
            name = key if key in self._names else self._folded.get(key.casefold())
            if name is not None and (item is not None or name not in matched):
                matched[name] = item
        return matched


class Fields:
    """The fields of one object. Each is its zero where it is missing or null.

    All methods raise `BodyError` for a value of another type.
    """

    __slots__ = ("_values", "_what")

    def __init__(self, what: str, values: dict[str, Any]) -> None:
        self._what = what
        self._values = values

    def raw(self, name: str) -> Any:  # noqa: ANN401 - checked by the caller
        """The value as it is; None where it is missing."""
        return self._values.get(name)

    def text(self, name: str, *, length_max: int = TEXT_CHARACTERS_MAX) -> str:
        """A string of at most *length_max* characters, a limit that Go does not have."""
        value = self._values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(name, value, "text")
        if len(value) > length_max:
            raise BodyError(f"{self._what}: {name} is longer than {length_max} characters")
        return value

    def int64(self, name: str) -> int:
        """A whole number of 64 bits, with a sign."""
        return self._integer(name, INT64_MIN, INT64_MAX)

    def uint32(self, name: str) -> int:
        """A whole number of 32 bits, without a sign."""
        return self._integer(name, 0, UINT32_MAX)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._values.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def items(self, name: str) -> list[Any]:
        """A list; what is in it, is for the caller to check."""
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(name, value, "a list")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """Strings by name; these names are the sender's own, and matched exactly."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(name, value, "an object")
        for item in value.values():
            if item is not None and not isinstance(item, str):
                raise self._wrong(name, item, "text", each="one of ")
        return {key: item or "" for key, item in value.items()}

    def _integer(self, name: str, minimum: int, maximum: int) -> int:
        value = self._values.get(name)
        if value is None:
            return 0
        if type(value) is not int:
            raise self._wrong(name, value, "a whole number")
        if not minimum <= value <= maximum:
            raise BodyError(f"{self._what}: {name} is not within {minimum} to {maximum}")
        return value

    def _wrong(self, name: str, value: object, expected: str, *, each: str = "") -> BodyError:
        return BodyError(f"{self._what}: {each}{name} is {kind_of(value)}, not {expected}")


def kind_of(value: object) -> str:
    """What *value* is in JSON, with its article, for people."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "a number with a fraction or an exponent"
    kinds = {int: "a number", str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")
