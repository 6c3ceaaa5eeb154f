"""Requests of many keys: grouped by owner, and sent in messages that hold many of them (pure)."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.arguments import checked_texts, wrong
from ringpop_py.errors import ConfigError, KeysDiverged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ringpop_py.errors import RingpopError
    from ringpop_py.proxy.owners import KeyOwners

KEYS_MAX: Final = 1_024
"""The most requests in one message."""
BYTES_MAX: Final = 1 << 20
"""The most bytes of bodies in one message, not counting the first."""
UNDER_WAY: Final = 2
"""So many messages are under way to one owner: it serves one while the next is on its way."""


class Message(NamedTuple):
    """Some of many requests, in one message.

    Attributes:
        places: which of the requests, by number.
    """

    places: Sequence[int]
    keys: tuple[str, ...]
    bodies: Sequence[bytes]


def checked_many(
    keys: Iterable[str], bodies: Iterable[bytes]
) -> tuple[tuple[str, ...], Sequence[bytes]]:
    """Return *keys* and *bodies*. Raises ConfigError unless there is one body for each key."""
    found = checked_texts(keys, "keys", "key")
    if isinstance(bodies, str | bytes | bytearray):
        raise wrong("bodies", "a list of bytes, one for each key", bodies)
    listed = bodies if isinstance(bodies, list | tuple) else [*bodies]
    if len(found) != len(listed):
        raise ConfigError(f"{len(found)} keys have {len(listed)} bodies, not one each")
    if not {*map(type, listed)} <= {bytes}:
        raise wrong("a body", "bytes", next(body for body in listed if type(body) is not bytes))
    return found, listed


def messages_of(
    keys: Sequence[str], bodies: Sequence[bytes], places: Sequence[int]
) -> Iterator[Message]:
    """Yield the requests at *places* as messages, none of them too large."""
    start, end = 0, len(places)
    while start < end:
        part = places[start : start + KEYS_MAX]
        if len(part) == 1:
            only = part[0]
            yield Message(part, (keys[only],), [bodies[only]])
            return
        take = itemgetter(*part)
        these_keys: tuple[str, ...] = take(keys)
        these: tuple[bytes, ...] = take(bodies)
        if sum(map(len, these)) > BYTES_MAX:
            fitting = _fitting(these)
            part, these_keys, these = part[:fitting], these_keys[:fitting], these[:fitting]
        yield Message(part, these_keys, these)
        start += len(part)


def _fitting(bodies: Sequence[bytes]) -> int:
    size = 0
    for count, body in enumerate(bodies):
        size += len(body)
        if size > BYTES_MAX:
            return max(count, 1)
    return len(bodies)


class Together:
    """Where several keys go that must have one owner, as one part of an errand. See `PartRoutes`.

    Args:
        known: what decided (`KeyOwners.owned_by`), and the owner that it gave to all of *keys*.
    """

    def __init__(
        self, owners: KeyOwners, keys: Sequence[str], known: tuple[object, str] | None = None
    ) -> None:
        self._owners = owners
        self._keys = keys
        self._known = known

    def destination(self, _part: str) -> str:
        """Return the owner of all keys; empty if they have none, or several."""
        if self._known is not None and self._known[0] is self._owners.owned_by:
            return self._known[1]
        names = {*self._owners.owners_of(self._keys)}
        return names.pop() if len(names) == 1 else ""

    def why_nobody(self, _part: str) -> RingpopError:
        """See `PartRoutes`."""
        owners = self._owners.owners_of(self._keys)
        if "" in owners:
            return self._owners.why_nobody(self._keys[owners.index("")])
        names = sorted({*owners})
        return KeysDiverged(f"its keys now have {len(names)} owners: {', '.join(names)}")
