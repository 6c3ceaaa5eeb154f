"""From a client that is no member to the owners of partitions: straight, or through a daemon.

The client knows whom to ask, because each answer says so. It asks owners themselves, takes one
redirect at most, and leaves what is not done then to its daemon, which has the patience for it.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from ringpop_py.address import Address
from ringpop_py.client.client import Client
from ringpop_py.client.messages import DESCRIBE, ROUTED, Description, decode_answer
from ringpop_py.errors import (
    BadOperation,
    BadRequest,
    BodyError,
    CallError,
    ConnectFailed,
    KeyspaceError,
    OutcomeUnknown,
    PartitionUnavailable,
)
from ringpop_py.placing.backoff import delay_us
from ringpop_py.placing.table import from_rows
from ringpop_py.values.declared import convert
from ringpop_py.values.packed import encode_value
from ringpop_py.values.requests import STALE_OWNER_S, Moved, decode_results, ended_with
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ringpop_py.client.client import Pending

PAUSE_US_MAX: Final = 500_000
BODY_BYTES_MAX: Final = 4 << 20
"""Of requests for several partitions; larger ones are split."""
CONNECTIONS_MAX: Final = 256
"""To owners; the oldest is closed for a further one."""
AVOID_S: Final = 5.0
"""How long an owner is not asked that could not be reached."""
STRAIGHT_SHARE: Final = 0.5
"""Of the time that is left, what an owner has; a daemon may need the rest."""
ANY_CALL_S: Final = 30.0
"""What one daemon has, where any other would do as well."""


class ClientRequest(Protocol):
    """A request that is made of parts, one a partition. A part may be done twice without harm."""

    endpoint: str
    changes_state: bool

    @property
    def stale(self) -> bool:
        """Whether it is a read that others than its owner can answer."""

    def encode(self, numbers: Sequence[int]) -> bytes:
        """The request for the partitions *numbers*."""

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """The result of the part of partition *number*. Raises BodyError."""


class _Errand:
    """One request on its way.

    Attributes:
        results: of the parts that are done.
        sent: parts that may have taken effect already.
        moved: parts that are elsewhere, as an owner said in this round.
    """

    def __init__(self, request: ClientRequest, deadline: float) -> None:
        self.request = request
        self.deadline = deadline
        self.results: dict[int, object] = {}
        self.sent: set[int] = set()
        self.moved: list[int] = []

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    @property
    def straight_s(self) -> float:
        """How long an owner has to answer."""
        share_s = self.left_s * STRAIGHT_SHARE
        return min(share_s, STALE_OWNER_S) if self.request.stale else share_s

    def failed(self, group: Sequence[int], error: CallError | BodyError) -> None:
        """No answer came, or none that makes sense."""
        if error.took_effect == "unknown":
            self.sent.update(group)

    def done(self, number: int, result: object) -> None:
        """Have *result*, or find that it cannot be read."""
        if isinstance(result, KeyspaceError):
            self.results[number] = self._error(number, result)
            return
        try:
            decoded = self.request.decode(number, result)
        except BodyError as error:
            self.sent.add(number)
            self.results[number] = OutcomeUnknown(f"the answer cannot be read: {error}")
            return
        if isinstance(decoded, list):  # of what became of each write, or of keys
            decoded = [
                self._error(number, one) if isinstance(one, KeyspaceError) else one
                for one in decoded
            ]
        self.results[number] = decoded

    def _error(self, number: int, error: KeyspaceError) -> KeyspaceError:
        """*error*, unless an attempt before it may have taken effect."""
        return ended_with(error, unsure=self.request.changes_state and number in self.sent)

    def nobody_answered(self, group: Iterable[int], why: object) -> None:
        """The time is over."""
        for number in group:
            self.done(number, PartitionUnavailable(f"no daemon answered in time: {why}"))


class ClientRouter:
    """Brings the requests of one client for one keyspace to whoever is to serve them.

    Args:
        client: the daemon to begin with; while it does not answer, others that are known serve.
        direct: whether to ask owners themselves.
        peers: others to turn to; where owners are not to be asked, nobody but them.
    """

    def __init__(
        self, client: Client, name: str, *, direct: bool, peers: Iterable[Address | str] = ()
    ) -> None:
        self._client = client
        self._name = name
        self._direct = direct
        self._peers = [Address.parse(p, what="peer") if isinstance(p, str) else p for p in peers]
        self._description: Description | None = None
        self._destinations: dict[int, tuple[str, int]] = {}
        self._addresses: dict[str, Address] = {}
        self._clients: dict[Address, Client] = {}
        self._avoid_until: dict[Address, float] = {}
        self._daemon_at = 0
        self._rng = random.Random(secrets.randbits(64))

    def close(self) -> None:
        """Close the connections that were made here."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    # What there is.

    def described(self, deadline: float) -> Description:
        """The keyspace, fetched when it is first asked for.

        Raises:
            KeyspaceUnknown: there is none of that name.
            PartitionUnavailable: no daemon answered.
        """
        if self._description is None:
            self._description = self._describe(deadline)
            self._destinations.clear()
            self._learn(self._description.routes.destinations, self._description.routes.addresses)
        return self._description

    def look_again(self, deadline: float) -> bool:
        """Fetch the description afresh. Whether the keyspace was made anew since the last time."""
        before, self._description = self._description, None
        return before is None or self.described(deadline).generation != before.generation

    def _describe(self, deadline: float) -> Description:
        body = encode_value("msgpack", self._name)
        why: object = "no time was left"
        for left_s in self._attempts(deadline):
            try:
                answer = self._daemon().call(Call(NODE_SERVICE, DESCRIBE, b"", body, ttl_s=left_s))
                (result,) = decode_results(answer.arg3, 1)
                if isinstance(result, KeyspaceError):
                    raise result
                found = convert(Description, result)
                destinations, addresses = found.routes.destinations, found.routes.addresses
            except (CallError, BodyError, PartitionUnavailable) as error:
                why = error
            else:
                if destinations:
                    return found
                why = f"{self._daemon().peer} has no store, so it has no part in the keyspace"
                self._addresses.update(addresses)  # of some that have
            self._next_daemon()
        raise PartitionUnavailable(f"no daemon answered in time: {why}")

    def _learn(
        self, destinations: Mapping[int, tuple[str, int]], addresses: Mapping[str, Address]
    ) -> None:
        self._addresses.update(addresses)
        for number, (name, epoch) in destinations.items():
            if epoch >= self._destinations.get(number, ("", 0))[1]:
                self._destinations[number] = name, epoch

    # Asking.

    def ask(
        self, request: ClientRequest, numbers: Sequence[int], deadline: float
    ) -> dict[int, object]:
        """The result of each part: what `ClientRequest.decode` makes of it, or a `KeyspaceError`.

        Raises:
            BadOperation: a value in it cannot be sent.
        """
        errand = _Errand(request, deadline)
        if self._direct and errand.left_s > 0:
            self._ask_owners(errand, numbers)
            if errand.moved and errand.left_s > 0:
                self._ask_owners(errand, errand.moved)
        rest = [number for number in numbers if number not in errand.results]
        for group, body in _bodies(request, rest):
            self._ask_daemon(errand, group, body)
        return errand.results

    def _ask_owners(self, errand: _Errand, numbers: Sequence[int]) -> None:
        """Ask the owner of each part, all at once; parts that come to nothing are left over."""
        groups: dict[Address, list[int]] = {}
        for number in numbers:
            address = self._addresses.get(self._destinations.get(number, ("", 0))[0])
            if address is not None and self._avoid_until.get(address, 0) < time.monotonic():
                groups.setdefault(address, []).append(number)
        calls = [
            (a, *call) for a, group in groups.items() for call in _bodies(errand.request, group)
        ]
        errand.moved = []
        under_way: list[tuple[list[int], Pending]] = []
        for address, group, body in calls:
            endpoint, ttl_s = errand.request.endpoint, errand.straight_s
            call = Call(NODE_SERVICE, endpoint, b"", body, ttl_s=ttl_s)
            try:
                under_way.append((group, self._client_of(address).begin(call)))
            except CallError as error:
                errand.failed(group, error)
                if isinstance(error, ConnectFailed):
                    self._avoid_until[address] = time.monotonic() + AVOID_S
        for group, pending in under_way:
            try:
                results = decode_results(pending.result().arg3, len(group))
            except (CallError, BodyError) as error:
                errand.failed(group, error)
            else:
                self._take(errand, group, results)

    def _take(self, errand: _Errand, group: list[int], results: list[Any]) -> None:
        """Have what an owner says; what passes is left over."""
        for number, result in zip(group, results, strict=True):
            if isinstance(result, Moved):
                self._redirect(result)
                errand.moved.append(number)
            elif not isinstance(result, KeyspaceError) or not result.passes:
                errand.done(number, result)
            elif result.took_effect == "unknown":
                errand.sent.add(number)

    def _redirect(self, moved: Moved) -> None:
        assert self._description is not None
        try:
            rows = from_rows(moved.row, self._description.partitions_count)
        except BodyError:
            return  # the daemon knows
        self._learn({row.partition: (row.owner, row.epoch) for row in rows}, {})

    def _ask_daemon(self, errand: _Errand, group: list[int], body: bytes) -> None:
        """Have a daemon bring the parts of *group* to their owners, until the deadline."""
        endpoint = ROUTED[errand.request.endpoint]
        why: object = "no time was left"
        for left_s in self._attempts(errand.deadline):
            try:
                answer = self._daemon().call(Call(NODE_SERVICE, endpoint, b"", body, ttl_s=left_s))
                results, destinations, addresses = decode_answer(answer.arg3, len(group))
            except BadRequest as error:
                for number in group:
                    errand.done(number, BadOperation(str(error)))
                return
            except (CallError, BodyError) as error:
                why = error
                errand.failed(group, error)
                self._next_daemon()
            else:
                if not destinations and _all_unavailable(results):
                    why = results[0]  # it has no part in the keyspace
                    self._next_daemon()
                    continue
                self._learn(destinations, addresses)
                for number, result in zip(group, results, strict=True):
                    errand.done(number, result)
                return
        errand.nobody_answered(group, why)

    def _attempts(self, deadline: float) -> Iterator[float]:
        """The time that is left, for each attempt; with pauses between them."""
        attempts_count = 0
        while (left_s := deadline - time.monotonic()) > 0:
            yield left_s
            pause_s = delay_us(attempts_count, self._rng, cap_us=PAUSE_US_MAX) / 1_000_000
            time.sleep(max(0, min(pause_s, deadline - time.monotonic())))
            attempts_count += 1

    # Of any daemon.

    def ask_any(
        self, endpoint: str, head: bytes, body: bytes, deadline: float, *, changes_state: bool
    ) -> Any:  # noqa: ANN401 - checked by who asked
        """The one result of a request that any daemon serves, and that may come twice.

        Raises:
            BadOperation: the daemon cannot make sense of it.
            KeyspaceError: what it answered, unless that passes in time.
            PartitionUnavailable: no daemon answered in time (or an `OutcomeUnknown`, if the request
                *changes_state*, and an attempt may have taken effect).
        """
        why: object = "no time was left"
        may_have_run = False
        for left_s in self._attempts(deadline):
            call = Call(NODE_SERVICE, endpoint, head, body, ttl_s=min(left_s, ANY_CALL_S))
            try:
                (result,) = decode_results(self._daemon().call(call).arg3, 1)
            except BadRequest as error:
                raise BadOperation(str(error)) from None
            except (CallError, BodyError) as error:
                why = error
                may_have_run |= error.took_effect == "unknown"
            else:
                if not isinstance(result, KeyspaceError):
                    return result
                if not result.passes:
                    raise ended_with(result, unsure=changes_state and may_have_run)
                why = result
                may_have_run |= result.took_effect == "unknown"
            self._next_daemon()
        kind = OutcomeUnknown if changes_state and may_have_run else PartitionUnavailable
        raise kind(f"no daemon did it in time: {why}")

    def begin_near(
        self, partition: int, endpoint: str, head: bytes, body: bytes, timeout_s: float
    ) -> Pending | None:
        """Begin a request that any daemon serves at the owner of *partition*, if it is known.

        None if that cannot be reached now; ask any other then.
        """
        address = self._addresses.get(self._destinations.get(partition, ("", 0))[0])
        avoided = address is not None and self._avoid_until.get(address, 0) > time.monotonic()
        near = address is not None and self._direct and not avoided
        client = self._client_of(address) if near and address is not None else self._daemon()
        try:
            return client.begin(Call(NODE_SERVICE, endpoint, head, body, ttl_s=timeout_s))
        except CallError as error:
            if isinstance(error, ConnectFailed):
                self._avoid_until[client.peer] = time.monotonic() + AVOID_S
            return None

    # Connections.

    def _daemon(self) -> Client:
        others = list(self._peers)
        if self._direct or not others:
            others += [address for _, address in sorted(self._addresses.items())]
        others = [each for each in dict.fromkeys(others) if each != self._client.peer]
        at = self._daemon_at % (1 + len(others))
        return self._client if at == 0 else self._client_of(others[at - 1])

    def _next_daemon(self) -> None:
        self._daemon_at += 1

    def _client_of(self, address: Address) -> Client:
        if address == self._client.peer:
            return self._client
        client = self._clients.get(address)
        if client is None:
            if len(self._clients) >= CONNECTIONS_MAX:
                self._clients.pop(next(iter(self._clients))).close()
            client = self._clients[address] = Client(address, timeout_s=self._client.timeout_s)
        return client


def _all_unavailable(results: Sequence[object]) -> bool:
    return all(isinstance(result, PartitionUnavailable) for result in results)


def _bodies(request: ClientRequest, numbers: Sequence[int]) -> Iterator[tuple[list[int], bytes]]:
    """*request* as bodies that are not too large, with the partitions in each."""
    if not numbers:
        return
    try:
        body = request.encode(numbers)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadOperation(f"a value cannot be sent: {type(error).__name__}: {error}") from None
    if len(body) <= BODY_BYTES_MAX or len(numbers) == 1:
        yield list(numbers), body
        return
    half = len(numbers) // 2
    yield from _bodies(request, numbers[:half])
    yield from _bodies(request, numbers[half:])
