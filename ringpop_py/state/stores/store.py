"""The interface of stores: four verbs on keys and bytes that outlive every node."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, Protocol

from ringpop_py.base.errors import ConfigError, StoreFull, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

PART_CHARACTERS_MAX: Final = 200  # file systems take names of 255 bytes
KEY_CHARACTERS_MAX: Final = 800  # S3 takes 1,024 bytes, including the store's own prefix

_PART: Final = rf"(?!\.\.?(?:/|\Z))[A-Za-z0-9._=%-]{{1,{PART_CHARACTERS_MAX}}}"
_KEY: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_PREFIX: Final = re.compile(rf"(?:{_PART}/)*")


class Store(Protocol):
    """A store of values under keys. Blocking; safe for use by several threads at the same time.

    `put_if_absent`, `get` and `list` are linearizable for each key: a later call, from any machine,
    sees what an earlier call has returned. A key is a path of one or more parts, joined by ``/``. A
    part has letters, digits and ``._=-%`` only, and is neither ``.`` nor ``..``. Values are put
    once and never changed, but may be deleted.

    All verbs raise `StoreUnavailable` if the store cannot be reached or fails. The outcome of such
    a put is unknown, unless it is `StoreRefused` or its subclass `StoreFull`.

    Attributes:
        quick: whether `get` of an absent key takes microseconds and may run on an event loop.
        in_memory: whether all other verbs do so, too.
    """

    quick: bool
    in_memory: bool

    @property
    def value_bytes_max(self) -> int | None:
        """The size of the largest value that a put takes; None if it takes any.

        `pieces.in_pieces` cuts larger ones.
        """

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """Put *value* if *key* is absent; return whether it was put, and so is durable."""

    def get(self, key: str) -> bytes | None:
        """Return the whole value of *key*; None if the key is absent."""

    def list(self, prefix: str) -> list[str]:
        """Return all keys that begin with *prefix*, which ends with ``/`` or is empty; sorted.

        A list need not be a snapshot, but it looks at keys in ascending order. If a key is deleted
        only after a later one was put, the list shows at least one of the two.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete *keys*. An absent key is not an error."""

    def close(self) -> None:
        """Close connections and files. The store must not be used afterwards."""


def store_error(message: str, *, is_full: bool, is_refusal: bool = False) -> StoreUnavailable:
    """Return the error that a store raises when it fails.

    Args:
        is_full: whether it certainly has no room for a put.
        is_refusal: whether it certainly refuses a put for another reason.
    """
    if is_full:
        return StoreFull(message)
    return StoreRefused(message) if is_refusal else StoreUnavailable(message)


def identity(path: str) -> tuple[int, int]:
    """Return which file or folder is at *path* now, whatever was there before.

    Raises:
        OSError: if nothing is there, or the file system does not answer.
    """
    found = os.stat(path)  # noqa: PTH116 - each put asks
    return found.st_dev, found.st_ino


def missing(what: str) -> ConfigError:
    """Return the error for a store that is not there; *what* says why."""
    return ConfigError(
        f"{what}. If this is to be a new store, make it with --create-store (Config.create_store);"
        " if it is not, is it mounted, and is this its name?"
    )


def checked_key(key: str) -> str:
    """Return *key* itself.

    Raises:
        ValueError: if it is not a key by the rules of `Store`; a bug of the caller.
    """
    if len(key) > KEY_CHARACTERS_MAX or not _KEY.fullmatch(key):
        raise ValueError(f"not a key of a store: {key[:KEY_CHARACTERS_MAX]!r}")
    return key


def checked_prefix(prefix: str) -> str:
    """Return *prefix* itself, which is empty or a key and a ``/``.

    Raises:
        ValueError: if it is neither; a bug of the caller.
    """
    if len(prefix) > KEY_CHARACTERS_MAX or not _PREFIX.fullmatch(prefix):
        raise ValueError(f"not a prefix of keys of a store: {prefix[:KEY_CHARACTERS_MAX]!r}")
    return prefix
