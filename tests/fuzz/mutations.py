"""Ways to spoil bytes: as bytes, and as the values of msgpack that they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgpack

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

ODD_BYTES: Final = (0x00, 0x01, 0x7F, 0x80, 0xC1, 0xDB, 0xDD, 0xDF, 0xFF)
ODD_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 1 << 63, (1 << 64) - 1, -(1 << 63), 1e308, float("nan"), float("inf")),
    *("", "\x1b[2J", "é" * 300, "x" * 5_000, b"", b"\xff" * 300, [], {}, [[]], {"": []}),
    msgpack.Timestamp(0, 0),
    msgpack.ExtType(42, b"x"),
)
ODD_NUMBERS: Final = (0, -1, 1, 2, 3, 4, 5, 16, 127, 255, 4_095, 65_535, 65_536, 1 << 31, 1 << 53)
"""What takes the place of a number, or is added to it."""
INNER: Final = 0.8
"""How often a part of a value is exchanged, and not the whole."""
DEPTH: Final = 600
"""Of lists in lists, which a recursive reader would fail at."""


def spoilt(data: bytes, rng: random.Random) -> bytes:
    """Return *data* with one to six changes, of either kind."""
    if rng.random() < 0.5:
        changed = _as_values(data, rng)
        if changed is not None:
            return changed
    for _ in range(rng.randint(1, 6)):
        data = _as_bytes(data, rng)
    return data


def with_another_number(data: bytes, rng: random.Random) -> bytes:
    """Return *data* with another value of a single number in it: all else is as it was."""
    value = msgpack.unpackb(data, strict_map_key=False, use_list=True)
    places = list(_numbers(value))
    if not places:
        return data
    within, at = rng.choice(places)
    within[at] = rng.choice(ODD_NUMBERS) + (within[at] if rng.random() < 0.3 else 0)
    changed: bytes = msgpack.packb(value)
    return changed


def _numbers(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - of any type
    """Return where the integers in *value* stand: each with the list or map that it is in."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for at, each in pairs:
        if isinstance(each, list | dict):
            yield from _numbers(each)
        elif type(each) is int:
            yield value, at


def _as_bytes(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(6):
        case 0 if at < len(data):
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        case 1 if at < len(data):
            return data[:at] + bytes([rng.choice(ODD_BYTES)]) + data[at + 1 :]
        case 2:
            return data[:at] + data[at + rng.randint(1, 8) :]
        case 3:
            return data[:at] + data[at : at + rng.randint(1, 16)] + data[at:]
        case 4:
            return data[:at]
        case _:
            return data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at:]


def _as_values(data: bytes, rng: random.Random) -> bytes | None:
    """Return *data* with values in it exchanged, added or left out; None if it is no msgpack."""
    try:
        value = msgpack.unpackb(data, strict_map_key=False, use_list=True)
    except Exception:  # noqa: BLE001 - whatever else it is
        return None
    for _ in range(rng.randint(1, 6)):
        value = _exchanged(value, rng)
    if rng.random() < 0.02:
        return b"\x91" * DEPTH + b"\xc0"
    try:
        packed: bytes = msgpack.packb(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return packed


def _exchanged(value: Any, rng: random.Random) -> Any:  # noqa: ANN401 - of any type
    if rng.random() < INNER and isinstance(value, list) and value:
        return _with_another_item(value, rng)
    if rng.random() < INNER and isinstance(value, dict) and value:
        return _with_another_entry(value, rng)
    return rng.choice(ODD_VALUES)


def _with_another_item(value: list[Any], rng: random.Random) -> list[Any]:
    at = rng.randrange(len(value))
    match rng.randrange(5):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return [*value[:at], rng.choice(ODD_VALUES), *value[at:]]
        case 2:
            return [*value, *value]
        case _:
            return [*value[:at], _exchanged(value[at], rng), *value[at + 1 :]]


def _with_another_entry(value: dict[Any, Any], rng: random.Random) -> dict[Any, Any]:
    key = rng.choice(list(value))
    others = {name: each for name, each in value.items() if name != key}
    match rng.randrange(3):
        case 0:
            return others
        case 1:
            return {**value, str(rng.choice(ODD_VALUES)): key}
        case _:
            return {**others, key: _exchanged(value[key], rng)}
