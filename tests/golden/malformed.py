"""Well-formed bodies made malformed: each value in them is replaced, left out or added to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgpack

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK: Final = "<<here goes the other value>>"
_LENGTHS: Final = (
    0,
    1,
    64,
    65,
    100,
    101,
    255,
    256,
    257,
    1024,
    1025,
    1026,
    4096,
    4097,
    65_536,
    65_537,
)
"""Of texts: the limits that there are, and one character more."""
_TEXTS: Final = {f"text{length}": "x" * length for length in _LENGTHS}
TEXTS: Final = list(_TEXTS)
_NUMBERS: Final = {
    "-1": -1,
    "0": 0,
    "1": 1,
    "2^16": 1 << 16,
    "2^32-1": (1 << 32) - 1,
    "2^32": 1 << 32,
    "2^63-1": (1 << 63) - 1,
}
_PLAIN: Final[dict[str, Any]] = {
    "null": None,
    "true": True,
    **_NUMBERS,
    "1.0": 1.0,
    **_TEXTS,
    "[]": [],
    "{}": {},
}
_OTHERS: Final[dict[str, dict[str, bytes]]] = {
    "msgpack": {
        **{name: msgpack.packb(value) for name, value in _PLAIN.items()},
        "2^64-1": msgpack.packb((1 << 64) - 1),
        "bytes": b"\xc4\x01x",
        "not-utf8": b"\xa1\xff",
        "extension": b"\xd4\x05\x00",
        "key-twice": b"\x82\xa1a\x01\xa1a\x02",
        "key-no-text": b"\x81\x01\x02",
        "{a:1}": b"\x81\xa1a\x01",
    },
    "json": {
        **{name: json.dumps(value).encode() for name, value in _PLAIN.items()},
        "2^64-1": str((1 << 64) - 1).encode(),
        "-2^63-1": str(-(1 << 63) - 1).encode(),
        "1e999": b"1e999",
        "NaN": b"NaN",
        "not-utf8": b'"\xff"',
        "half-a-pair": b'"\\ud800"',
        "key-twice": b'{"a":1,"a":2}',
        "{a:1}": b'{"a":1}',
    },
}
_WHOLE: Final = {
    "msgpack": {"never-used": b"\xc1", "deep": b"\x91" * 2_000 + b"\xc0"},
    "json": {"no-json": b"{", "deep": b"[" * 100_000 + b"]" * 100_000},
}

Path = tuple[int | str, ...]


def malformed(body: bytes, scheme: str) -> Iterator[tuple[str, str, bytes]]:
    """Where each change of *body* was made, which one, and what came of it."""
    yield "body", "empty", b""
    yield "body", "torn", body[:-1]
    yield "body", "followed", body + body[-1:]
    for name, other in _WHOLE[scheme].items():
        yield "body", name, other
    plain = msgpack.unpackb(body) if scheme == "msgpack" else json.loads(body)
    for path, value in _values_in(plain):
        place = "".join(f"[{step}]" for step in path) or "all"
        for name, other in _OTHERS[scheme].items():
            marked = _packed(_replaced(plain, path, _MARK), scheme)
            yield place, name, marked.replace(_packed(_MARK, scheme), other)
        for name, changed in _reshaped(value):
            yield place, name, _packed(_replaced(plain, path, changed), scheme)


def _values_in(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    yield path, value
    items = value.items() if isinstance(value, dict) else ()
    for step, item in enumerate(value) if isinstance(value, list) else items:
        yield from _values_in(item, (*path, step))


def _reshaped(value: object) -> Iterator[tuple[str, object]]:
    """*value* without one of its fields, or with one more."""
    if isinstance(value, list):
        yield from ((f"first-{count}", value[:count]) for count in range(1, len(value)))
        yield "one-more", [*value, None]
    if isinstance(value, dict):
        yield "one-more", {**value, "xyz": None}
        for name in value:
            yield f"without-{name}", {key: value[key] for key in value if key != name}
            yield (
                f"upper-{name}",
                {key.upper() if key == name else key: value[key] for key in value},
            )


def _replaced(value: Any, path: Path, other: object) -> object:  # noqa: ANN401 - any plain value
    if not path:
        return other
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], other)
    return copy


def _packed(value: object, scheme: str) -> bytes:
    if scheme == "msgpack":
        packed: bytes = msgpack.packb(value)
        return packed
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
