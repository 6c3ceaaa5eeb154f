"""Requests of many keys: grouped by owner, and sent in messages that hold many of them (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.arguments import checked_kind, sendable_keys, sendable_text, wrong
from ringpop_py.base.errors import ConfigError, KeysDiverged
from ringpop_py.route.proxy.request import ManyRequest, Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringpop_py.base.errors import RingpopError
    from ringpop_py.route.proxy.owners import KeyRoutes
    from ringpop_py.route.proxy.request import Headers

KEYS_MAX: Final = 1_024
"""The most requests in one message."""
BYTES_MAX: Final = 1 << 20
"""The most bytes of bodies, and characters of keys, in one message with several requests."""
UNDER_WAY: Final = 2
"""So many messages are under way to one owner: it serves one while the next is on its way."""


class ManyMessage(NamedTuple):
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
    found = sendable_keys(keys)
    if isinstance(bodies, str | bytes | bytearray) or not isinstance(bodies, Iterable):
        raise wrong("bodies", "a list of bytes, one for each key", bodies)
    listed = bodies if isinstance(bodies, list | tuple) else [*bodies]
    if len(found) != len(listed):
        raise ConfigError(f"{len(found)} keys have {len(listed)} bodies, not one each")
    if not {*map(type, listed)} <= {bytes}:
        raise wrong("a body", "bytes", next(body for body in listed if type(body) is not bytes))
    return found, listed


def checked_request(
    endpoint: str, bodies: Sequence[bytes], headers: Headers, keys_max: int
) -> ManyRequest:
    """Return the request. Raises ConfigError."""
    sendable_text(Request(endpoint, b"", headers).endpoint, "endpoint")
    checked_kind(keys_max, int, "keys_max", f"a number from 1 to {KEYS_MAX}")
    if not 0 < keys_max <= KEYS_MAX:
        raise ConfigError(f"keys_max is 1 to {KEYS_MAX}, not {keys_max}")
    return ManyRequest(endpoint, bodies, headers, keys_max)


def messages_of(
    keys: Sequence[str], bodies: Sequence[bytes], places: Sequence[int], keys_max: int = KEYS_MAX
) -> Iterator[ManyMessage]:
    """Yield the requests at *places* as messages, none of them too large."""
    start, end = 0, len(places)
    while start < end:
        part = places[start : start + keys_max]
        if len(part) == 1:
            only = part[0]
            yield ManyMessage(part, (keys[only],), [bodies[only]])
            start += 1
            continue
        take = itemgetter(*part)
        these_keys: tuple[str, ...] = take(keys)
        these: tuple[bytes, ...] = take(bodies)
        if sum(map(len, these)) + sum(map(len, these_keys)) > BYTES_MAX:
            fitting = _fitting(these_keys, these)
            part, these_keys, these = part[:fitting], these_keys[:fitting], these[:fitting]
        yield ManyMessage(part, these_keys, these)
        start += len(part)


def _fitting(keys: Sequence[str], bodies: Sequence[bytes]) -> int:
    size = 0
    for count, (key, body) in enumerate(zip(keys, bodies, strict=True)):
        size += len(key) + len(body)
        if size > BYTES_MAX:
            return max(count, 1)
    return len(bodies)


class Together:
    """Where several keys go that must have one owner. See `PartRoutes`.

    Args:
        known: what decided (`KeyRoutes.owned_by`), and the owner that it gave to all of *keys*.
    """

    def __init__(
        self, owners: KeyRoutes, keys: Sequence[str], known: tuple[object, str] | None = None
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
