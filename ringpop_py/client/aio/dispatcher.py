"""Carries out the errands of a client that is not a member: to owners, or through a daemon.

The client knows the owners, because each answer names them. What happens to a request is decided by
`ringpop_py.route.errand`: owners are asked first, and a daemon gets what they leave over.
"""

from __future__ import annotations

import random
import secrets
from collections import defaultdict, deque
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import (
    BadOperation,
    BodyError,
    CallError,
    ConnectFailed,
    KeyspaceError,
    PartitionUnavailable,
    PeerDeclined,
    RingpopError,
)
from ringpop_py.base.values.declared import convert
from ringpop_py.base.values.packed import encode_value
from ringpop_py.base.values.requests import STALE_OWNER_S, decode_results
from ringpop_py.client.lines.concurrent import now, sleep
from ringpop_py.client.lines.local_daemon import peer_of
from ringpop_py.net.security.permits import check_name
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.route.errand import MICROSECONDS, DeadlinePolicy, Errand, RelayPolicy, instant_us
from ringpop_py.state.messages import (
    DESCRIBE,
    KNOWS_HASH_TAGS,
    ROUTED,
    Description,
    decode_answer,
)
from ringpop_py.state.placement.table import from_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ringpop_py.base.address import Address, Peer
    from ringpop_py.client.aio.client import AsyncClient
    from ringpop_py.client.lines.concurrent import AsyncPending
    from ringpop_py.route.errand import Ask, PartitionRequest

BODY_BYTES_MAX: Final = 4 << 20
"""The most bytes of a request for several partitions; a larger one is split."""
CONNECTIONS_MAX: Final = 256
"""The most connections to owners; for a further one, the oldest is closed."""
AVOID_S: Final = 5.0
"""The seconds for which an owner that could not be reached is not asked."""
STRAIGHT_US: Final = 3_000_000
"""The most microseconds for an owner; then a daemon is asked, which knows whether it is gone."""
ANY_CALL_S: Final = 30.0
"""The most seconds that one daemon has for a request that any other could serve as well."""
NEAR_CALL_S: Final = 10.0
"""The same for the owner that gets it first: it may be paused, and others know more."""
_ANY: Final = -1
"""The one part of such a request."""


class AsyncClientDispatcher:
    """Brings the requests of one client for one keyspace to owners and daemons.

    Args:
        client: the daemon to begin with; while it does not answer, other known daemons are asked.
        direct: whether to ask owners themselves.
        peers: other daemons. If *direct* is false and there are any, only they are asked besides.
    """

    def __init__(
        self, client: AsyncClient, name: str, *, direct: bool, peers: Iterable[Peer | str] = ()
    ) -> None:
        if not (client.cluster_key or client.is_of_cluster):
            check_name(name)
        self._client = client
        self._name = name
        self._direct = direct
        self._peers = [peer_of(peer) for peer in peers]
        self._description: Description | None = None
        self._destinations: dict[int, tuple[str, int]] = {}
        self._addresses: dict[str, Address] = {}
        self._clients: dict[Peer, AsyncClient] = {}
        self._lock = Lock()
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

    async def aclose(self) -> None:
        """Close the connections that were made here."""
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            await client.aclose()

    # What there is.

    async def described(self, deadline: float) -> Description:
        """Return the description of the keyspace, which the first call fetches.

        Raises:
            KeyspaceUnknown: if there is no keyspace of that name.
            PartitionUnavailable: if no daemon answered in time.
        """
        found = self._description  # read once, as another thread may `look_again`
        if found is None:
            found = await self._describe(deadline)
            # A new generation may have fewer partitions, and its epochs begin again.
            self._destinations.clear()
            self._learn(found.routes.destinations, found.routes.addresses)
            self._description = found
        return found

    async def look_again(self, deadline: float) -> bool:
        """Fetch the description again; return whether the keyspace was created again since."""
        before, self._description = self._description, None
        return before is None or (await self.described(deadline)).generation != before.generation

    async def _describe(self, deadline: float) -> Description:
        def decode(result: object) -> Description:
            found = convert(Description, result)
            destinations, addresses = found.routes.destinations, found.routes.addresses
            if not destinations:
                self._addresses.update(addresses)  # of members that have a store
                peer = self._daemon_peer()
                raise PeerDeclined(f"{peer} has no store, so it has no part in the keyspace")
            return found

        body = encode_value("msgpack", self._name)
        content = KNOWS_HASH_TAGS, body
        found: Description = await self._of_any(self._any_read, DESCRIBE, content, deadline, decode)
        return found

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
        if number == _ANY:
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

    def _avoid(self, address: Peer) -> None:
        self._avoid_until[address] = now() + AVOID_S

    def _is_avoided(self, address: Peer) -> bool:
        return self._avoid_until.get(address, 0) > now()

    # Asking.

    async def ask(
        self,
        request: PartitionRequest,
        numbers: Sequence[int],
        deadline: float,
        *,
        stale: bool = False,
    ) -> dict[int, object]:
        """Return the result of each part, by `PartitionRequest.decode`, or a `KeyspaceError`.

        Args:
            stale: whether members other than the owner may answer.

        Raises:
            BadOperation: if a value in it cannot be sent.
        """
        policy = self._write if request.changes_state else self._read
        if stale:
            policy = self._read_stale
        errand = Errand(numbers, policy, instant_us(deadline))
        while (asks := await self._next(errand)) is not None:
            if asks[0].to:
                await self._ask_owners(errand, request, asks)
            else:
                await self._ask_daemon(errand, request, asks[0])
        return errand.results

    async def _next(self, errand: Errand[int]) -> list[Ask[int]] | None:
        """Wait for the next round, and return its asks; return None when the errand is over."""
        while isinstance(step := errand.next(self, _now_us()), int):
            await sleep(max(0, step - _now_us()) / MICROSECONDS)
        return step

    async def _ask_owners(
        self, errand: Errand[int], request: PartitionRequest, asks: list[Ask[int]]
    ) -> None:
        began_at = now()
        # Encoded before anything is sent: a value that cannot be sent fails the whole request.
        bodies = [
            (ask, len(group), body) for ask in asks for group, body in _bodies(request, ask.parts)
        ]
        under_way: deque[tuple[Ask[int], int, AsyncPending | CallError]] = deque()
        results: dict[int, list[Any]] = defaultdict(list)
        try:
            for ask, count, body in bodies:
                # To connect to the owners before may have taken most of it.
                left_s = began_at + _wait_s(ask) - now()
                call = Call(NODE_SERVICE, request.endpoint, b"", body, ttl_s=left_s)
                begun = await self._begun(self._addresses[ask.to], call, more=bool(under_way))
                under_way.append((ask, count, begun))
            # Only now, so that all owners work at the same time: answers wait here.
            while under_way:
                ask, count, pending = under_way.popleft()
                results[ask.number] += await _results_of(pending, count)
        finally:
            for _, _, pending in under_way:  # after a cancellation
                if not isinstance(pending, CallError):
                    await pending.aclose()
        for ask in asks:
            errand.answered(ask, results[ask.number], self, request.decode)

    async def _begun(
        self, address: Peer, call: Call, *, more: bool = False
    ) -> AsyncPending | CallError:
        try:
            return await (await self._client_of(address)).begin(call, more=more)
        except CallError as error:
            if isinstance(error, ConnectFailed):
                self._avoid(address)
            return error

    async def _ask_daemon(
        self, errand: Errand[int], request: PartitionRequest, ask: Ask[int]
    ) -> None:
        """Have a daemon route the parts of *ask* to their owners, until the deadline."""
        until = now() + _wait_s(ask)
        results: list[Any] = []
        for group, body in _bodies(request, ask.parts):
            results += await self._relayed(ROUTED[request.endpoint], len(group), body, until)
        errand.answered(ask, results, self, request.decode)

    async def _relayed(self, endpoint: str, count: int, body: bytes, until: float) -> Sequence[Any]:
        error: RingpopError
        try:
            call = Call(NODE_SERVICE, endpoint, b"", body, ttl_s=until - now())
            if call.ttl_s <= 0:
                raise ConnectFailed("no time was left")
            answer = await (await self._daemon()).call(call)
            results, destinations, addresses = decode_answer(answer.arg3, count)
        except (CallError, BodyError) as failure:
            error = failure
        else:
            if destinations or not _all_unavailable(results):
                self._learn(destinations, addresses)
                return results
            error = PeerDeclined(str(results[0]))  # this daemon does not serve the keyspace
        self._next_daemon()
        return [error] * count

    # Of any daemon.

    async def ask_any(
        self, endpoint: str, head: bytes, body: bytes, deadline: float, *, changes_state: bool
    ) -> Any:  # noqa: ANN401 - checked by the caller
        """Return the one result of a request that any daemon serves, and that may run twice.

        Raises:
            BadOperation: if the daemon cannot decode it.
            KeyspaceError: if that is the answer, and it does not pass in time.
            PartitionUnavailable: if no daemon answered in time (or an `OutcomeUnknown`, if the
                request *changes_state*, and an attempt may have taken effect).
        """
        policy = self._any_write if changes_state else self._any_read
        return await self._of_any(policy, endpoint, (head, body), deadline)

    async def _of_any(
        self,
        policy: DeadlinePolicy,
        endpoint: str,
        content: tuple[bytes, bytes],
        deadline: float,
        decode: Callable[[object], object] = lambda result: result,
    ) -> Any:  # noqa: ANN401 - checked by the caller
        errand = Errand((_ANY,), policy, instant_us(deadline))
        while (asks := await self._next(errand)) is not None:
            (ask,) = asks
            call = Call(NODE_SERVICE, endpoint, *content, ttl_s=_wait_s(ask))
            try:
                answer = await (await self._daemon()).call(call)
                (result,) = decode_results(answer.arg3, 1)
                if not isinstance(result, KeyspaceError):
                    result = decode(result)
            except (CallError, BodyError) as error:
                result = error
            errand.answered(ask, [result], self)
            if isinstance(result, RingpopError) and result.passes:
                self._next_daemon()
        found = errand.results[_ANY]
        if isinstance(found, KeyspaceError):
            raise found
        return found

    async def begin_near(
        self, partition: int, endpoint: str, head: bytes, body: bytes, timeout_s: float
    ) -> AsyncPending | None:
        """Begin a request that any daemon serves, at the owner of *partition* if it is known.

        Return None if that daemon cannot be reached now; ask any other then. If it does not answer
        in time, say so to `silent`.
        """
        address: Peer | None = self._addresses.get(self._destinations.get(partition, ("", 0))[0])
        if address is None or not self._direct or self._is_avoided(address):
            address = self._daemon_peer()
        call = Call(NODE_SERVICE, endpoint, head, body, ttl_s=timeout_s)
        begun = await self._begun(address, call)
        if isinstance(begun, ConnectFailed):
            self.silent(address)
        return None if isinstance(begun, CallError) else begun

    def silent(self, address: Peer) -> None:
        """Note that *address* has not answered: ask others, and fetch the description again."""
        self._avoid(address)
        self._description = None

    # Connections.

    def _daemon_peer(self) -> Peer:
        others = list(self._peers)
        if self._direct or not others:
            # Sorted, so that the place in the list keeps its meaning from one attempt to the next.
            others += [address for _, address in sorted(self._addresses.copy().items())]
        others = [each for each in dict.fromkeys(others) if each != self._client.peer]
        at = self._daemon_at % (1 + len(others))
        return self._client.peer if at == 0 else others[at - 1]

    async def _daemon(self) -> AsyncClient:
        return await self._client_of(self._daemon_peer())

    def _next_daemon(self) -> None:
        self._daemon_at += 1

    async def _client_of(self, address: Peer) -> AsyncClient:
        if address == self._client.peer:
            return self._client
        client = self._clients.get(address)
        if client is None:
            oldest = None
            with self._lock:
                if len(self._clients) >= CONNECTIONS_MAX:
                    oldest = self._clients.pop(next(iter(self._clients)))
                client = self._clients.setdefault(address, self._client.to(address))
            if oldest is not None:
                await oldest.aclose()  # a new one is made on demand
        return client


def _now_us() -> int:
    return round(now() * MICROSECONDS)


def _wait_s(ask: Ask[int]) -> float:
    return ask.wait_us / MICROSECONDS


async def _results_of(pending: AsyncPending | CallError, count: int) -> Sequence[Any]:
    if isinstance(pending, CallError):
        return [pending] * count
    try:
        return decode_results((await pending.result()).arg3, count)
    except (CallError, BodyError) as error:
        return [error] * count


def _all_unavailable(results: Sequence[object]) -> bool:
    return all(isinstance(result, PartitionUnavailable) for result in results)


def _bodies(request: PartitionRequest, numbers: Sequence[int]) -> Iterator[tuple[list[int], bytes]]:
    """Yield bodies of *request* that are not too large, with the partitions in each."""
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
    yield from _bodies(request, numbers[:half])
    yield from _bodies(request, numbers[half:])
