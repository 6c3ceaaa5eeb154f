"""What is asked of a store: four verbs on keys and bytes, outliving every node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Store(Protocol):
    """A store of values under keys. Blocking; safe to be used by several threads at a time.

    `put_if_absent`, `get` and `list` are linearizable a key: what has returned is seen by whoever
    asks later, from any machine. A key is a path of one or more parts, joined by ``/``; a part has
    letters, digits and ``._=-%`` only, and is neither ``.`` nor ``..``. Values are never changed:
    they are put once, and may be deleted.

    All raise `StoreUnavailable` where the store cannot be reached or fails. The outcome of such a
    put is open, unless it is `StoreFull`.

    Attributes:
        quick: `get` of an absent key takes microseconds, so it may be called on an event loop.
        in_memory: so does everything else.
    """

    quick: bool
    in_memory: bool

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """Put *value* unless *key* has one. Whether it did; True means that it is durable."""

    def get(self, key: str) -> bytes | None:
        """The whole value of *key*; None if there is none."""

    def list(self, prefix: str) -> list[str]:
        """All keys that begin with *prefix*, which ends with ``/`` or is empty; sorted.

        It need be of no one moment, but looks at keys in ascending order: where one is deleted only
        after another behind it was put, it shows at least one of them.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete *keys*. Those that are not there are no error."""

    def close(self) -> None:
        """Let go of connections and files. Using the store afterwards is the caller's bug."""
