"""Messages, declared once: the fields of a row in msgpack, in their order, with their limits.

A message is a class, and what a peer may send stands in the types of its fields::

    class Lease(Declared, frozen=True):
        keyspace: Text
        partitions: Annotated[tuple[Natural, ...], Meta(max_length=64)]
        until_ms: Natural | None
        renewed: bool = False

    encode(Lease("counts", (1, 2), None))  # the bytes of ["counts", [1, 2], null, false]
    decode(Lease, body)  # a Lease, or BodyError: "Lease: partitions[1]: Expected `int`, got `str`"

A field that was added later stands last. It has a default, which is the value if an older node does
not send it. What a newer node sends beyond the last field is ignored. Limits hold for what is read;
a message that is made here is not checked.

Rules that a type cannot express (an order, fields that depend on each other) stand in
`__post_init__`, which raises ValueError. It costs a call for each row: omit it for rows that come
in hundreds.
"""

from __future__ import annotations

import functools
import re
import threading
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta as Meta
from msgspec import Struct as Struct
from msgspec.inspect import Field, StructType, Type, UnionType, VarTupleType, type_info
from msgspec.structs import asdict as asdict
from msgspec.structs import astuple as astuple
from msgspec.structs import replace as replace

from ringpop_py.base.address import HOST_CHARACTERS_MAX, HOST_PATTERN, PORT_MAX
from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.packed import INTEGER_MAX, TEXT_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

Natural = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
"""A whole number that any peer can hold: an incarnation, a count, an instant."""
Checksum = Annotated[int, Meta(ge=0)]
"""Of 64 bits: msgpack has no greater numbers."""
Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]
Host = Annotated[
    str, Meta(min_length=1, max_length=HOST_CHARACTERS_MAX, pattern=rf"^(?:{HOST_PATTERN})\Z")
]
Port = Annotated[int, Meta(ge=0, le=PORT_MAX)]


class Declared(msgspec.Struct, frozen=True, array_like=True):
    """A message, or a row in one: a value, compared and hashed by its fields."""


class Named(msgspec.Struct, frozen=True, omit_defaults=True):
    """As `Declared`, as a map: its fields stand under their names; defaults are not sent."""


def base_of(value: object) -> object:
    """Return text or a number with a class of its own, such as NumPy's, as a plain one.

    Raises:
        TypeError: if *value* is anything else.
    """
    bases: tuple[Any, ...] = str, int, float, bytes
    for base in bases:
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"msgpack has no {type(value).__name__}")


encode: Final = msgspec.msgpack.Encoder(enc_hook=base_of).encode
"""A message, or lists and tuples of plain values, as msgpack."""


def decode(kind: type[T], body: bytes) -> T:
    """Return the message of class *kind* in *body*.

    Raises:
        BodyError: if *body* is anything else; it says what was expected where.
    """
    message: T = _reader(kind)(body)
    return message


def reader(
    kind: type[T], hook: Callable[[type[Any], Any], Any] | None = None
) -> Callable[[bytes], T]:
    """Return `decode` for *kind* alone, which is faster by a call.

    Args:
        hook: makes a value of a class that msgspec does not know from a plain value; it raises
            ValueError for one that is malformed.
    """
    return _told(kind, _decoder(kind, hook).decode)


_PREPARING: Final = threading.RLock()


def _decoder(
    kind: type[T], hook: Callable[[type[Any], Any], Any] | None = None
) -> msgspec.msgpack.Decoder[T]:
    # What msgspec finds out about a class is seen by other threads before it is complete, and those
    # read from null (0.22). So it finds out here, in one thread at a time, before the first use.
    with _PREPARING:
        return msgspec.msgpack.Decoder(kind, dec_hook=hook)


def convert(kind: type[T], value: object, what: str = "") -> T:
    """Return the message in *value*, a plain value. Raises BodyError, which calls it *what*."""
    message: T = _converter(kind, what)(value)
    return message


def _told(kind: type[T], decode_body: Callable[[Any], T], what: str = "") -> Callable[[Any], T]:
    """Return *decode_body* with its errors as BodyError, which begins with *what*."""

    def read(body: Any) -> T:  # noqa: ANN401 - bytes or a plain value
        try:
            return decode_body(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            name = what or getattr(kind, "__name__", "value").lstrip("_")
            raise BodyError(f"{name}: {_explained(kind, error)}") from None

    return read


_reader: Final[Callable[[Any], Callable[[bytes], Any]]] = functools.cache(reader)
_PLAIN: Final = (bytes,)


def converter(kind: Any, what: str = "") -> Callable[[object], Any]:  # noqa: ANN401 - a type
    """Return `convert` for *kind* alone, which is faster; *what* is its name in errors."""
    convert_one = msgspec.convert
    if isinstance(kind, type):
        _decoder(kind)
        return _told(kind, lambda value: convert_one(value, kind, builtin_types=_PLAIN), what)
    # msgspec remembers what it has found out about a type only if that is a class of its own.
    one: Any = msgspec.defstruct(what or str(kind), [("value", kind)], array_like=True)
    _decoder(one)
    return _told(one, lambda value: convert_one([value], one, builtin_types=_PLAIN).value)


_converter: Final[Callable[[Any, str], Callable[[object], Any]]] = functools.cache(converter)


_AT: Final = re.compile(r"(.*) - at (`key` in )?`\$(.*)`", re.DOTALL)
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")


def _explained(kind: type[Any], error: Exception) -> str:
    """Return the text of *error*, with the names of fields in place of their numbers."""
    if isinstance(error, RecursionError):
        return "too deep"
    found = _AT.fullmatch(str(error))
    if found is None:
        return str(error)
    inner: Type | None = type_info(kind)
    place = ""
    for name, step in _STEP.findall(found[3]):
        if isinstance(inner, UnionType):
            kinds = [t for t in inner.types if isinstance(t, StructType | VarTupleType)]
            inner = kinds[0] if len(kinds) == 1 else None
        if isinstance(inner, StructType) and step != "...":
            tag = inner.tag is not None  # in an array it stands before the fields
            field: Field | None = None
            if name:
                field = next((field for field in inner.fields if field.encode_name == name), None)
            elif int(step) >= tag:
                field = inner.fields[int(step) - tag]
            # Without a field, the place is the tag.
            place += f".{field.encode_name if field else name or 'kind'}"
            inner = field.type if field else None
        else:
            place += f".{name}" if name else f"[{step}]"
            inner = inner.item_type if isinstance(inner, VarTupleType) else None
        inner = getattr(inner, "type", inner)  # of `Metadata`
    key = "a key of " if found[2] else ""
    return f"{key}{place.removeprefix('.')}: {found[1]}"
