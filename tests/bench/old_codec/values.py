"""Plain values as bytes and back, and checks of their shape, as they were.

Kept for `tests.bench.codec`, which measures today's codec against it: it is how messages were
read and written, field by field, before they were declared. Frozen: it is not to be mended, nor
to follow the product, and it imports nothing of it. The product never imports it.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgpack

INTEGER_MAX: Final = (1 << 63) - 1
TEXT_CHARACTERS_MAX: Final = 4_096
SMALL_BYTES: Final = 1 << 8
PORT_MAX: Final = 65_535
HOST_CHARACTERS_MAX: Final = 253

_HOST = re.compile(r"[A-Za-z0-9._~-]+")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?")


class ConfigError(ValueError):
    pass


class BodyError(Exception):
    pass


class Address(NamedTuple):
    """A host (name, IPv4 or IPv6) and a TCP port; compares and hashes as a plain pair."""

    host: str
    port: int

    def __str__(self) -> str:
        """``host:port``, with IPv6 hosts in brackets; `parse` reads it back."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, *, what: str = "address") -> Address:
        """Read ``host:port`` or ``[ipv6]:port``.

        Raises:
            ConfigError: if *text* is neither; the message names *what* it was for.
        """
        host, separator, port_text = text.strip().rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not separator or not (_IPV6 if bracketed else _HOST).fullmatch(host):
            message = f"{what} {text!r} is not HOST:PORT (for example 127.0.0.1:3000)"
            raise ConfigError(message)
        if len(host) > HOST_CHARACTERS_MAX:
            message = f"{what}: a host name has at most {HOST_CHARACTERS_MAX} characters"
            raise ConfigError(message)
        digits = port_text.isascii() and port_text.isdigit()
        if not digits or len(port_text) > len(str(PORT_MAX)) or int(port_text) > PORT_MAX:
            message = f"{what} {text!r}: the port is not a number from 0 to {PORT_MAX}"
            raise ConfigError(message)
        return cls(host, int(port_text))


def encode_value(value: object) -> bytes:
    packed: bytes = msgpack.Packer(buf_size=SMALL_BYTES).pack(value)
    return packed


def decode_value(data: bytes) -> Any:  # noqa: ANN401 - checked by the caller
    if not data:
        return None
    try:
        return msgpack.unpackb(data, object_pairs_hook=_no_duplicates)
    except (ValueError, TypeError, RecursionError) as error:
        message = f"not a msgpack value: {type(error).__name__}"
        raise BodyError(message) from None
    except msgpack.exceptions.UnpackException as error:
        message = f"not a msgpack value: {type(error).__name__}"
        raise BodyError(message) from None


def _no_duplicates(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    sound = len(value) == len(pairs)
    for key in value:  # not `all` of a generator: this runs for each map of each message
        if not isinstance(key, str):
            sound = False
    if not sound:
        message = "a map with a key twice, or with a key that is no text"
        raise ValueError(message)
    return value


def a_map(value: object, what: str) -> dict[str, Any]:
    """*value*, which must be a map.

    Raises:
        BodyError: if it is not; so do the others here.
    """
    if not isinstance(value, dict):
        raise _wrong(what, "a map")
    return value


def a_list(value: object, what: str) -> list[Any]:
    """*value*, which must be a list; None means an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(what, "a list")
    return value


def a_row(value: object, length: int, what: str) -> list[Any]:
    """*value*, which must be a list of at least *length* (newer peers may add to its end)."""
    if not isinstance(value, list) or len(value) < length:
        raise _wrong(what, f"a row of {length}")
    return value


def a_text(value: object, what: str, *, length_max: int = TEXT_CHARACTERS_MAX) -> str:
    """*value*, which must be text."""
    if not isinstance(value, str) or len(value) > length_max:
        raise _wrong(what, f"text of at most {length_max} characters")
    return value


def some_bytes(value: object, what: str) -> bytes:
    """*value*, which must be bytes."""
    if not isinstance(value, bytes):
        raise _wrong(what, "bytes")
    return value


def an_integer(value: object, what: str, *, maximum: int = INTEGER_MAX) -> int:
    """*value*, which must be a whole number from 0 to *maximum*."""
    if type(value) is not int or not 0 <= value <= maximum:
        raise _wrong(what, f"a whole number from 0 to {maximum}")
    return value


def a_bool(value: object, what: str) -> bool:
    """*value*, which must be true or false."""
    if not isinstance(value, bool):
        raise _wrong(what, "true or false")
    return value


def an_address(host: object, port: object, what: str) -> Address:
    """The address of *host* and *port*."""
    number = an_integer(port, what, maximum=PORT_MAX)
    return address_from(str(Address(a_text(host, what), number)), what)


def address_from(text: object, what: str) -> Address:
    """The address written as ``host:port``."""
    try:
        return Address.parse(a_text(text, what), what=what)
    except ConfigError as error:
        raise BodyError(str(error)) from None


def _wrong(what: str, expected: str) -> BodyError:
    return BodyError(f"{what} is not {expected}")
