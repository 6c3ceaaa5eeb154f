"""Carries out the errands of a client that is not a member: to owners, or through a daemon.

The client knows the owners, because each answer names them. What happens to a request is decided by
`ringpop_py.route.errand`: owners are asked first, and a daemon gets what they leave over.
"""

from __future__ import annotations

from collections import defaultdict, deque
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import (
    BodyError,
    CallError,
    ConnectFailed,
    KeyspaceError,
    PartitionUnavailable,
    PeerDeclined,
    RingpopError,
)
from ringpop_py.base.values.packed import encode_value
from ringpop_py.base.values.requests import decode_results
from ringpop_py.client.lines.concurrent import now, sleep
from ringpop_py.client.lines.local_daemon import peer_of
from ringpop_py.client.routes import ANY, ClientRoutes, bodies_of, wait_s
from ringpop_py.net.security.permits import check_name
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.route.errand import MICROSECONDS, DeadlinePolicy, Errand, instant_us
from ringpop_py.state.messages import (
    DESCRIBE,
    KNOWS_HASH_TAGS,
    ROUTED,
    Description,
    decode_answer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.base.address import Peer
    from ringpop_py.client.aio.client import AsyncClient
    from ringpop_py.client.lines.concurrent import AsyncPending
    from ringpop_py.route.errand import Ask, PartitionRequest

CONNECTIONS_MAX: Final = 256
"""The most connections to owners; for a further one, the oldest is closed."""


class AsyncClientDispatcher(ClientRoutes):
    """Brings the requests of one client for one keyspace to owners and daemons.

    Args:
        client: of the daemon to begin with.
        direct, peers: see `ClientRoutes`.
    """

    def __init__(
        self, client: AsyncClient, name: str, *, direct: bool, peers: Iterable[Peer | str] = ()
    ) -> None:
        if not (client.cluster_key or client.is_of_cluster):
            check_name(name)
        super().__init__(client.peer, [peer_of(peer) for peer in peers], direct=direct)
        self._client = client
        self._name = name
        self._clients: dict[Peer, AsyncClient] = {}
        self._lock = Lock()

    def _now(self) -> float:
        return now()

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
            self._know(found)
        return found

    async def look_again(self, deadline: float) -> bool:
        """Fetch the description again; return whether the keyspace was created again since."""
        before, self._description = self._description, None
        return before is None or (await self.described(deadline)).generation != before.generation

    async def _describe(self, deadline: float) -> Description:
        body = encode_value("msgpack", self._name)
        content = KNOWS_HASH_TAGS, body
        found: Description = await self._of_any(
            self._any_read, DESCRIBE, content, deadline, self._described
        )
        return found

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
        errand = Errand(numbers, self._policy(request, stale=stale), instant_us(deadline))
        while (asks := await self._next(errand)) is not None:
            if asks[0].to:
                await self._ask_owners(errand, request, asks)
            else:
                await self._ask_daemon(errand, request, asks[0])
        return errand.results

    async def _next(self, errand: Errand[int]) -> list[Ask[int]] | None:
        """Wait for the next round, and return its asks; return None when the errand is over."""
        while isinstance(step := errand.next(self, self._now_us()), int):
            await sleep(max(0, step - self._now_us()) / MICROSECONDS)
        return step

    async def _ask_owners(
        self, errand: Errand[int], request: PartitionRequest, asks: list[Ask[int]]
    ) -> None:
        began_at = now()
        # Encoded before anything is sent: a value that cannot be sent fails the whole request.
        bodies = [
            (ask, len(group), body) for ask in asks for group, body in bodies_of(request, ask.parts)
        ]
        under_way: deque[tuple[Ask[int], int, AsyncPending | CallError]] = deque()
        results: dict[int, list[Any]] = defaultdict(list)
        try:
            for ask, count, body in bodies:
                # To connect to the owners before may have taken most of it.
                left_s = began_at + wait_s(ask) - now()
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
        until = now() + wait_s(ask)
        results: list[Any] = []
        for group, body in bodies_of(request, ask.parts):
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
            if destinations or not all(isinstance(r, PartitionUnavailable) for r in results):
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
        errand = Errand((ANY,), policy, instant_us(deadline))
        while (asks := await self._next(errand)) is not None:
            (ask,) = asks
            call = Call(NODE_SERVICE, endpoint, *content, ttl_s=wait_s(ask))
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
        found = errand.results[ANY]
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
        address = self._near(partition)
        call = Call(NODE_SERVICE, endpoint, head, body, ttl_s=timeout_s)
        begun = await self._begun(address, call)
        if isinstance(begun, ConnectFailed):
            self.silent(address)
        return None if isinstance(begun, CallError) else begun

    # Connections.

    async def _daemon(self) -> AsyncClient:
        return await self._client_of(self._daemon_peer())

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


async def _results_of(pending: AsyncPending | CallError, count: int) -> Sequence[Any]:
    if isinstance(pending, CallError):
        return [pending] * count
    try:
        return decode_results((await pending.result()).arg3, count)
    except (CallError, BodyError) as error:
        return [error] * count
