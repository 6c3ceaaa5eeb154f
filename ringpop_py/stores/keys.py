"""The keys and prefixes that every store takes, so that a keyspace can move between stores."""

from __future__ import annotations

import re
from typing import Final

PART_CHARACTERS_MAX: Final = 200
"""The longest part of a key: file systems take names of 255 bytes."""

KEY_CHARACTERS_MAX: Final = 800
"""The longest key: S3 takes 1,024 bytes, including the store's own prefix."""

_PART: Final = rf"(?!\.\.?(?:/|\Z))[A-Za-z0-9._=%-]{{1,{PART_CHARACTERS_MAX}}}"
_KEY: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_PREFIX: Final = re.compile(rf"(?:{_PART}/)*")


def checked_key(key: str) -> str:
    """Return *key* itself.

    Raises:
        ValueError: if it is not a key by the rules of `Store`; a bug of the caller.
    """
    if len(key) > KEY_CHARACTERS_MAX or not _KEY.fullmatch(key):
        message = f"not a key of a store: {key[:KEY_CHARACTERS_MAX]!r}"
        raise ValueError(message)
    return key


def checked_prefix(prefix: str) -> str:
    """Return *prefix* itself, which is empty or a key and a ``/``.

    Raises:
        ValueError: if it is neither; a bug of the caller.
    """
    if len(prefix) > KEY_CHARACTERS_MAX or not _PREFIX.fullmatch(prefix):
        message = f"not a prefix of keys of a store: {prefix[:KEY_CHARACTERS_MAX]!r}"
        raise ValueError(message)
    return prefix
