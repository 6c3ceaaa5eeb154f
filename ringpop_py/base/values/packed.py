"""Plain values as bytes and back, in the two schemes: JSON and msgpack.

What comes from a peer decodes to plain values or to `BodyError`; nothing else can be built.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgpack

from ringpop_py.base.errors import BodyError

if TYPE_CHECKING:
    from collections.abc import Callable

INTEGER_MAX: Final = (1 << 63) - 1
TEXT_CHARACTERS_MAX: Final = 4_096
PACKER_BYTES: Final = 1 << 16
SMALL_BYTES: Final = 1 << 8
_INSTEAD: Final = {
    **dict.fromkeys(("datetime", "date", "time"), "its isoformat()"),
    **dict.fromkeys(("Decimal", "UUID", "Fraction"), "its str()"),
    **dict.fromkeys(("set", "frozenset", "tuple"), "a list"),
    "timedelta": "its total_seconds()",
    "ndarray": "its tolist()",
}
_MSGPACK_CONTAINERS: Final = frozenset(range(0x80, 0xA0)) | frozenset(range(0xDC, 0xE0))
"""With which bytes a list or a map begins. A scalar has no map inside that would have to be checked
while it is read."""


def encode_value(scheme: str, value: object) -> bytes:
    """Return *value* (None, bool, int, float, str, list, dict; bytes in msgpack) as bytes."""
    if scheme == "msgpack":
        # `packb` does the same, but first reserves 256 KiB, which takes longer than packing.
        packed: bytes = msgpack.Packer(buf_size=SMALL_BYTES, default=_refuse).pack(value)
        return packed
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def cannot_be_stored(kind: type) -> str:
    """Return what to say of a value of a *kind* that cannot be stored, and what to do."""
    use = _INSTEAD.get(kind.__name__)
    return f"a {kind.__name__} cannot be stored" + (f"; use {use}" if use else "")


def _refuse(value: object) -> NoReturn:
    if isinstance(value, int):
        raise OverflowError("Integer value out of range")
    raise TypeError(cannot_be_stored(type(value)))


def make_packer() -> Callable[[object], bytes]:
    """Return a function that packs a value as `encode_value` does, several times as fast.

    It has a buffer of its own, which grows to its largest value; only one thread may use it.
    """
    pack: Callable[[object], bytes] = msgpack.Packer(buf_size=PACKER_BYTES).pack
    return pack


def decode_value(scheme: str, data: bytes) -> Any:  # noqa: ANN401 - checked by the caller
    """Return the value in *data*; None for no bytes.

    Raises:
        BodyError: *data* is not one well-formed value.
    """
    if not data:
        return None
    try:
        if scheme == "msgpack" and data[0] not in _MSGPACK_CONTAINERS:
            return msgpack.unpackb(data)
        if scheme == "msgpack":
            return msgpack.unpackb(data, object_pairs_hook=_no_duplicates)
        # Decoded first: for bytes, `json.loads` guesses UTF-16 and lets lone surrogates pass.
        text = data.decode()
        value = _read_json(text)
        if "\\ud" in text.lower():  # perhaps half of a pair, which nobody could write again
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise BodyError(f"not a {scheme} value: {type(error).__name__}") from None
    return value


def _no_duplicates(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    sound = len(value) == len(pairs)
    for key in value:  # not `all` of a generator: this runs for each map of each message
        if not isinstance(key, str):
            sound = False
    if not sound:
        raise ValueError("a map with a key twice, or with a key that is not text")
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a map with a key twice")
    return value


def no_constant(name: str) -> NoReturn:
    """Raise ValueError: *name* is ``NaN`` or ``Infinity``, which only Python reads."""
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):  # Python reads 1e999 as infinity
        raise BodyError(f"not a json value: {text:.50} is too large for a number of 64 bits")
    return value


# Made once: `json.loads` makes one for each call, which takes as long as reading a short value.
_read_json: Final = json.JSONDecoder(
    object_pairs_hook=_each_once, parse_constant=no_constant, parse_float=_finite
).decode


# Checks of shape: each returns the value, or raises BodyError with its name, *what*.


def a_map(value: object, what: str) -> dict[str, Any]:
    """Return *value*, a map."""
    if not isinstance(value, dict):
        raise _wrong(what, "a map")
    return value


def a_list(value: object, what: str) -> list[Any]:
    """Return *value*, a list; None means an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(what, "a list")
    return value


def a_row(value: object, length: int, what: str) -> list[Any]:
    """Return *value*, a list of *length* or more: newer peers may add to its end."""
    if not isinstance(value, list) or len(value) < length:
        raise _wrong(what, f"a row of {length}")
    return value


def a_text(value: object, what: str) -> str:
    """Return *value*, a text of limited length."""
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
        raise _wrong(what, f"text of at most {TEXT_CHARACTERS_MAX} characters")
    return value


def _wrong(what: str, expected: str) -> BodyError:
    return BodyError(f"{what} is not {expected}")
