"""Which keys and prefixes all stores take, so that what one store took, the next one takes, too."""

from __future__ import annotations

import re
from typing import Final

PART_CHARACTERS_MAX: Final = 200
"""What a part may have: file systems take names of 255 bytes."""

KEY_CHARACTERS_MAX: Final = 800
"""What a key may have: S3 takes 1,024 bytes, and a store's own prefix comes before it."""

_PART: Final = rf"(?!\.\.?(?:/|\Z))[A-Za-z0-9._=%-]{{1,{PART_CHARACTERS_MAX}}}"
_KEY: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_PREFIX: Final = re.compile(rf"(?:{_PART}/)*")


def checked_key(key: str) -> str:
    """*key* itself.

    Raises:
        ValueError: if it is none, by the rules of `Store`; a bug of the caller.
    """
    if len(key) > KEY_CHARACTERS_MAX or not _KEY.fullmatch(key):
        message = f"no key of a store: {key[:KEY_CHARACTERS_MAX]!r}"
        raise ValueError(message)
    return key


def checked_prefix(prefix: str) -> str:
    """*prefix* itself, which is empty, or a key and a ``/``.

    Raises:
        ValueError: if it is neither; a bug of the caller.
    """
    if len(prefix) > KEY_CHARACTERS_MAX or not _PREFIX.fullmatch(prefix):
        message = f"no prefix of keys of a store: {prefix[:KEY_CHARACTERS_MAX]!r}"
        raise ValueError(message)
    return prefix
