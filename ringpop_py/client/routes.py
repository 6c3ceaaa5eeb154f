"""The owners and daemons that a client of one keyspace knows; nothing here waits for an answer."""

from __future__ import annotations

import random
import secrets
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import BadOperation, PartitionUnavailable, PeerDeclined
from ringpop_py.base.values.declared import convert
from ringpop_py.base.values.requests import STALE_OWNER_S
from ringpop_py.route.errand import MICROSECONDS, DeadlinePolicy, RelayPolicy
from ringpop_py.state.messages import Description
from ringpop_py.state.placement.table import from_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ringpop_py.base.address import Address, Peer
    from ringpop_py.route.errand import Ask, PartitionRequest

BODY_BYTES_MAX: Final = 4 << 20
"""The most bytes of a request for several partitions; a larger one is split."""
AVOID_S: Final = 5.0
"""The seconds for which an owner that could not be reached is not asked."""
STRAIGHT_US: Final = 3_000_000
"""The most microseconds for an owner; then a daemon is asked, which knows whether it is gone."""
ANY_CALL_S: Final = 30.0
"""The most seconds that one daemon has for a request that any other could serve as well."""
NEAR_CALL_S: Final = 10.0
"""The same for the owner that gets it first: it may be paused, and others know more."""
ANY: Final = -1
"""The one part of such a request."""


class ClientRoutes(ABC):
    """Whom to ask about a partition: its owner, as answers name them, or a daemon.

    Args:
        own: the daemon to begin with; while it does not answer, other known daemons are asked.
        peers: other daemons. If *direct* is false and there are any, only they are asked besides.
        direct: whether to ask owners themselves.
    """

    def __init__(self, own: Peer, peers: Sequence[Peer], *, direct: bool) -> None:
        self._own = own
        self._peers = peers
        self._direct = direct
        self._description: Description | None = None
        self._destinations: dict[int, tuple[str, int]] = {}
        self._addresses: dict[str, Address] = {}
        self._avoid_until: dict[Peer, float] = {}
        self._daemon_at = 0
        rng, any_call_us = random.Random(secrets.randbits(64)), round(ANY_CALL_S * MICROSECONDS)
        self._read, self._write = (
            RelayPolicy(rng, changes_state=writes, straight_us=STRAIGHT_US)
            for writes in (False, True)
        )
        # A daemon reads from the store then; a client cannot.
        self._read_stale = replace(self._read, straight_us=round(STALE_OWNER_S * MICROSECONDS))
        self._any_read, self._any_write = (
            DeadlinePolicy(rng, changes_state=writes, attempt_us=any_call_us, asked="daemon")
            for writes in (False, True)
        )

    @abstractmethod
    def _now(self) -> float:
        """Return the instant, in seconds of the clock that deadlines are of."""

    def _now_us(self) -> int:
        return round(self._now() * MICROSECONDS)

    def _policy(self, request: PartitionRequest, *, stale: bool) -> RelayPolicy:
        if stale:
            return self._read_stale
        return self._write if request.changes_state else self._read

    # What there is.

    def _described(self, result: object) -> Description:
        """Return the description in a daemon's answer. Raises BodyError, PeerDeclined."""
        found = convert(Description, result)
        if not found.routes.destinations:
            self._addresses.update(found.routes.addresses)  # of members that have a store
            peer = self._daemon_peer()
            raise PeerDeclined(f"{peer} has no store, so it has no part in the keyspace")
        return found

    def _know(self, found: Description) -> None:
        # A new generation may have fewer partitions, and its epochs begin again.
        self._destinations.clear()
        self._learn(found.routes.destinations, found.routes.addresses)
        self._description = found

    def _learn(
        self, destinations: Mapping[int, tuple[str, int]], addresses: Mapping[str, Address]
    ) -> None:
        self._addresses.update(addresses)
        for number, (name, epoch) in destinations.items():
            # Answers of several members may come in any order; one with an older table changes
            # nothing.
            if epoch >= self._destinations.get(number, ("", 0))[1]:
                self._destinations[number] = name, epoch

    # The routes of errands.

    def destination(self, number: int) -> str:
        """Return the member to ask about partition *number*; empty if a daemon has to."""
        if number == ANY:
            return str(self._daemon_peer())
        name = self._destinations.get(number, ("", 0))[0]
        address = self._addresses.get(name) if self._direct else None
        return "" if address is None or self._is_avoided(address) else name

    def why_nobody(self, number: int) -> PartitionUnavailable:
        """Return an error that no errand of a client asks for: a daemon always knows more."""
        return PartitionUnavailable(f"the owner of partition {number} is not known here")

    def learn(self, row: list[Any]) -> None:
        """Note the new owner that a redirect names. Raises BodyError."""
        description = self._description
        if description is None:  # another thread is fetching it again
            return
        rows = from_rows(row, description.partitions_count)
        self._learn({each.partition: (each.owner, each.epoch) for each in rows}, {})

    def silent(self, address: Peer) -> None:
        """Note that *address* has not answered: ask others, and fetch the description again."""
        self._avoid(address)
        self._description = None

    def _avoid(self, address: Peer) -> None:
        self._avoid_until[address] = self._now() + AVOID_S

    def _is_avoided(self, address: Peer) -> bool:
        return self._avoid_until.get(address, 0) > self._now()

    def _near(self, partition: int) -> Peer:
        """Return the owner of *partition*, if it is known and can be asked, or a daemon."""
        address = self._addresses.get(self._destinations.get(partition, ("", 0))[0])
        if address is None or not self._direct or self._is_avoided(address):
            return self._daemon_peer()
        return address

    def _daemon_peer(self) -> Peer:
        others = list(self._peers)
        if self._direct or not others:
            # Sorted, so that the place in the list keeps its meaning from one attempt to the next.
            others += [address for _, address in sorted(self._addresses.copy().items())]
        others = [each for each in dict.fromkeys(others) if each != self._own]
        at = self._daemon_at % (1 + len(others))
        return self._own if at == 0 else others[at - 1]

    def _next_daemon(self) -> None:
        self._daemon_at += 1


def wait_s(ask: Ask[int]) -> float:
    """Return how long to wait for the answer to *ask*."""
    return ask.wait_us / MICROSECONDS


def bodies_of(
    request: PartitionRequest, numbers: Sequence[int]
) -> Iterator[tuple[list[int], bytes]]:
    """Yield bodies of *request* that are not too large, with the partitions in each.

    Raises:
        BadOperation: a value in it cannot be sent.
    """
    if not numbers:
        return
    try:
        body = request.encode(numbers)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadOperation(f"a value cannot be sent: {type(error).__name__}: {error}") from None
    if len(body) <= BODY_BYTES_MAX or len(numbers) == 1:
        yield list(numbers), body
        return
    # Halves, because the size of a part is known only once it is encoded.
    half = len(numbers) // 2
    yield from bodies_of(request, numbers[:half])
    yield from bodies_of(request, numbers[half:])
