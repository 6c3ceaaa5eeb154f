"""Checks of what a caller passes: each mistake is a `ConfigError` that names the argument.

Code that runs for each request checks nothing in advance: it fails at the first use of a wrong
value, and only then calls these functions, for the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from ringpop_py.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection


_TEXT: Final = {str}
DELAY_S_MAX: Final = 100 * 366 * 86_400
ROUTED_KEY_CHARACTERS_MAX: Final = 1 << 16
"""The longest key of a request for an owner on the ring."""


class ZonedTime(Protocol):
    """A `datetime`. This package imports no clock."""

    @property
    def tzinfo(self) -> object:
        """Its time zone; None if it has none."""

    def timestamp(self) -> float:
        """Return the seconds since 1970."""


def wrong(what: str, wanted: str, value: object) -> ConfigError:
    """Return the error that *what* is not *wanted*."""
    shown = "None" if value is None else f"{type(value).__name__}: {value!r:.100}"
    return ConfigError(f"{what} is {wanted}, not {shown}")


def checked_text(value: str, what: str) -> str:
    """Return *value*. Raises ConfigError if it is not text."""
    if not isinstance(value, str):
        raise wrong(what, "text", value)
    return value


def sendable_text(value: str, what: str) -> str:
    """Return *value*. Raises ConfigError if it is not text that UTF-8 can encode."""
    try:
        checked_text(value, what).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {value!r:.100} is not Unicode: it cannot be sent") from None
    return value


def checked_texts(values: Iterable[str], what: str, one: str) -> tuple[str, ...]:
    """Return *values*, each *one* of *what*. Raises ConfigError if they are not a list of texts."""
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Iterable):
        raise wrong(what, "a list of texts", values)
    found = tuple(values)
    if not {*map(type, found)} <= _TEXT:  # avoids a call for each in the usual case
        for value in found:
            checked_text(value, one)
    return found


def routed_key(key: str) -> str:
    """Return the *key* of a request for its owner. Raises ConfigError if no request can have it."""
    if key.__class__ is str and key.isascii() and len(key) <= ROUTED_KEY_CHARACTERS_MAX:
        return key  # most are: each request would pay for a closer look
    if len(sendable_text(key, "key")) > ROUTED_KEY_CHARACTERS_MAX:
        raise ConfigError(
            f"a key has at most {ROUTED_KEY_CHARACTERS_MAX} characters, not {len(key)}"
        )
    return key


def sendable_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """Return *keys*. Raises ConfigError if they are not a list of texts that UTF-8 can encode."""
    found = checked_texts(keys, "keys", "key")
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        for key in found:
            sendable_text(key, "key")
    _check_lengths(found)
    return found


def _check_lengths(keys: tuple[str, ...]) -> None:
    if keys and max(map(len, keys)) > ROUTED_KEY_CHARACTERS_MAX:
        for key in keys:
            routed_key(key)


def keys_of(key: str | Iterable[str]) -> tuple[str, ...]:
    """Return the keys of a request, which has one key or several. Raises ConfigError."""
    if isinstance(key, str):
        return (key,) if len(key) <= ROUTED_KEY_CHARACTERS_MAX else (routed_key(key),)
    if isinstance(key, bytes | bytearray) or not isinstance(key, Iterable):
        raise wrong("key", "a text or a list of texts", key)
    keys = checked_texts(key, "key", "key")
    if not keys:
        raise ConfigError("key is empty: a request needs at least one key")
    _check_lengths(keys)
    return keys


def checked_seconds(value: float, what: str) -> float:
    """Return *value*. Raises ConfigError if it is not a number (which may be infinite)."""
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise wrong(what, "a number of seconds", value)
    return value


def checked_kind(value: Any, kind: Any, what: str, wanted: str) -> None:  # noqa: ANN401 - of any type
    """Raise ConfigError if *value* is not of *kind*, a type or a union; *wanted* describes it."""
    if not isinstance(value, kind):
        raise wrong(what, wanted, value)


def checked_callable(value: object, what: str) -> None:
    """Raise ConfigError if *value* cannot be called."""
    if not callable(value):
        raise wrong(what, "a function", value)


def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise ConfigError for the first name of *given* that is not *known*."""
    for name in given:
        if name not in known:
            raise ConfigError(f"no {what} {name!r}; there are {', '.join(sorted(known))}")


def instant_ms(at: float | ZonedTime, name: str) -> int:
    """Return the milliseconds since 1970. Raises ConfigError, which says *name*."""
    what = "seconds since 1970, or a datetime with a time zone"
    if isinstance(at, int | float):
        return ms_of(at, name, what, 2 * DELAY_S_MAX)
    if getattr(at, "tzinfo", None) is None:
        raise ConfigError(f"{name} is {what}, not {at!r:.60}")
    return ms_of(at.timestamp(), name, what, 2 * DELAY_S_MAX)


def ms_of(
    seconds: float,
    name: str,
    what: str = "seconds above 0, at most 100 years",
    most: float = DELAY_S_MAX,
) -> int:
    """Return *seconds* in milliseconds. Raises ConfigError, which says *name*, and *what* it is."""
    sound = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not (sound and 0 < seconds <= most):
        raise ConfigError(f"{name} is {what}, not {seconds!r:.60}")
    return math.ceil(seconds * 1_000)
