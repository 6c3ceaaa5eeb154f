"""Routes requests of a client that is not a member to owners: directly, or through a daemon.

The client knows the owners, because each answer names them. It asks the owners themselves, and
follows one redirect at most. Parts without a result go to its daemon then, which waits and retries.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from ringpop_py.address import Address
from ringpop_py.client.client import Client
from ringpop_py.client.messages import DESCRIBE, ROUTED, Description, decode_answer
from ringpop_py.errand import DeadlinePolicy
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
from ringpop_py.placing.table import from_rows
from ringpop_py.values.declared import convert
from ringpop_py.values.packed import encode_value
from ringpop_py.values.requests import STALE_OWNER_S, Moved, decode_results, ended_with
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ringpop_py.client.client import Pending

BODY_BYTES_MAX: Final = 4 << 20
"""The most bytes of a request for several partitions; a larger one is split."""
CONNECTIONS_MAX: Final = 256
"""The most connections to owners; for a further one, the oldest is closed."""
AVOID_S: Final = 5.0
"""The seconds for which an owner that could not be reached is not asked."""
STRAIGHT_SHARE: Final = 0.5
"""The share of the remaining time that an owner has; a daemon may need the rest."""
ANY_CALL_S: Final = 30.0
"""The most seconds that one daemon has for a request that any other could serve as well."""


class ClientRequest(Protocol):
    """A request of parts, one for each partition. A part may be done twice without harm."""

    endpoint: str
    changes_state: bool

    @property
    def stale(self) -> bool:
        """Whether it is a read that members other than the owner can answer."""

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Return the body for the partitions *numbers*."""

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """Return the result of the part of partition *number*. Raises BodyError."""


class _Errand:
    """One request, and what is known of its parts.

    Attributes:
        results: the results of the parts that are done.
        sent: the parts that may have taken effect already.
        moved: the parts that have another owner, by an answer in this round.
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
        """The seconds that an owner has to answer."""
        share_s = self.left_s * STRAIGHT_SHARE
        # A daemon reads from the store then; a client cannot.
        return min(share_s, STALE_OWNER_S) if self.request.stale else share_s

    def failed(self, group: Sequence[int], error: CallError | BodyError) -> None:
        """Note that the parts of *group* got no answer that can be read."""
        if error.took_effect == "unknown":
            self.sent.update(group)

    def done(self, number: int, result: object) -> None:
        """Record *result* as that of partition *number*, or that it cannot be read."""
        if isinstance(result, KeyspaceError):
            self.results[number] = self._error(number, result)
            return
        try:
            decoded = self.request.decode(number, result)
        except BodyError as error:
            self.sent.add(number)
            self.results[number] = OutcomeUnknown(f"the answer cannot be read: {error}")
            return
        if isinstance(decoded, list):  # the outcome of each write, or the value of each key
            decoded = [
                self._error(number, one) if isinstance(one, KeyspaceError) else one
                for one in decoded
            ]
        self.results[number] = decoded

    def _error(self, number: int, error: KeyspaceError) -> KeyspaceError:
        """Return *error*, or that the outcome is unknown if an earlier attempt may have run."""
        return ended_with(error, unsure=self.request.changes_state and number in self.sent)

    def nobody_answered(self, group: Iterable[int], why: object) -> None:
        """Record for the parts of *group* that the time is over."""
        for number in group:
            # By way of `done`, which makes it an OutcomeUnknown for writes that were sent.
            self.done(number, PartitionUnavailable(f"no daemon answered in time: {why}"))


class ClientRouter:
    """Routes the requests of one client for one keyspace to owners and daemons.

    Args:
        client: the daemon to begin with; while it does not answer, other known daemons are asked.
        direct: whether to ask owners themselves.
        peers: other daemons. If *direct* is false and there are any, only they are asked besides.
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
        self._policy = DeadlinePolicy(random.Random(secrets.randbits(64)), changes_state=False)

    def close(self) -> None:
        """Close the connections that were made here."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    # What there is.

    def described(self, deadline: float) -> Description:
        """Return the description of the keyspace, which the first call fetches.

        Raises:
            KeyspaceUnknown: if there is no keyspace of that name.
            PartitionUnavailable: if no daemon answered in time.
        """
        if self._description is None:
            self._description = self._describe(deadline)
            # A new generation may have fewer partitions, and its epochs begin again.
            self._destinations.clear()
            self._learn(self._description.routes.destinations, self._description.routes.addresses)
        return self._description

    def look_again(self, deadline: float) -> bool:
        """Fetch the description again; return whether the keyspace was created again since."""
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
            # PartitionUnavailable is this daemon's alone: another may have the store that it lacks.
            except (CallError, BodyError, PartitionUnavailable) as error:
                why = error
            else:
                if destinations:
                    return found
                why = f"{self._daemon().peer} has no store, so it has no part in the keyspace"
                self._addresses.update(addresses)  # of members that have one
            self._next_daemon()
        raise PartitionUnavailable(f"no daemon answered in time: {why}")

    def _learn(
        self, destinations: Mapping[int, tuple[str, int]], addresses: Mapping[str, Address]
    ) -> None:
        self._addresses.update(addresses)
        for number, (name, epoch) in destinations.items():
            # Answers of several members may come in any order; one with an older table changes
            # nothing.
            if epoch >= self._destinations.get(number, ("", 0))[1]:
                self._destinations[number] = name, epoch

    # Asking.

    def ask(
        self, request: ClientRequest, numbers: Sequence[int], deadline: float
    ) -> dict[int, object]:
        """Return the result of each part, by `ClientRequest.decode`, or a `KeyspaceError`.

        Raises:
            BadOperation: if a value in it cannot be sent.
        """
        errand = _Errand(request, deadline)
        if self._direct and errand.left_s > 0:
            self._ask_owners(errand, numbers)
            # Once only: a partition that moves again soon is better left to a daemon, which can
            # wait.
            if errand.moved and errand.left_s > 0:
                self._ask_owners(errand, errand.moved)
        rest = [number for number in numbers if number not in errand.results]
        for group, body in _bodies(request, rest):
            self._ask_daemon(errand, group, body)
        return errand.results

    def _ask_owners(self, errand: _Errand, numbers: Sequence[int]) -> None:
        """Ask all owners at the same time; parts that get no result are left over."""
        groups: dict[Address, list[int]] = {}
        for number in numbers:
            address = self._addresses.get(self._destinations.get(number, ("", 0))[0])
            if address is not None and self._avoid_until.get(address, 0) < time.monotonic():
                groups.setdefault(address, []).append(number)
        # Encoded before anything is sent: a value that cannot be sent fails the whole request.
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
        # Only now, so that all owners work at the same time: without threads, answers wait here.
        for group, pending in under_way:
            try:
                results = decode_results(pending.result().arg3, len(group))
            except (CallError, BodyError) as error:
                errand.failed(group, error)
            else:
                self._take(errand, group, results)

    def _take(self, errand: _Errand, group: list[int], results: list[Any]) -> None:
        """Record the results of an owner; a part whose error passes is left over."""
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
            return  # the part goes to the daemon
        self._learn({row.partition: (row.owner, row.epoch) for row in rows}, {})

    def _ask_daemon(self, errand: _Errand, group: list[int], body: bytes) -> None:
        """Have a daemon route the parts of *group* to their owners, until the deadline."""
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
                    why = results[0]  # this daemon does not serve the keyspace
                    self._next_daemon()
                    continue
                self._learn(destinations, addresses)
                for number, result in zip(group, results, strict=True):
                    errand.done(number, result)
                return
        errand.nobody_answered(group, why)

    def _attempts(self, deadline: float) -> Iterator[float]:
        """Yield the remaining time for each attempt, with pauses between the attempts."""
        attempts_count = 0
        while (left_s := deadline - time.monotonic()) > 0:
            yield left_s
            pause_s = self._policy.pause_us(attempts_count) / 1_000_000
            time.sleep(max(0, min(pause_s, deadline - time.monotonic())))
            attempts_count += 1

    # Of any daemon.

    def ask_any(
        self, endpoint: str, head: bytes, body: bytes, deadline: float, *, changes_state: bool
    ) -> Any:  # noqa: ANN401 - checked by the caller
        """Return the one result of a request that any daemon serves, and that may run twice.

        Raises:
            BadOperation: if the daemon cannot decode it.
            KeyspaceError: if that is the answer, and it does not pass in time.
            PartitionUnavailable: if no daemon answered in time (or an `OutcomeUnknown`, if the
                request *changes_state*, and an attempt may have taken effect).
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
        """Begin a request that any daemon serves, at the owner of *partition* if it is known.

        Return None if that daemon cannot be reached now; ask any other then.
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
            # Sorted, so that the place in the list keeps its meaning from one attempt to the next.
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
                self._clients.pop(next(iter(self._clients))).close()  # a new one is made on demand
            client = self._clients[address] = Client(address, timeout_s=self._client.timeout_s)
        return client


def _all_unavailable(results: Sequence[object]) -> bool:
    return all(isinstance(result, PartitionUnavailable) for result in results)


def _bodies(request: ClientRequest, numbers: Sequence[int]) -> Iterator[tuple[list[int], bytes]]:
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
