"""handle_or_proxy: carries out what a `Retry` decides, and forwards requests to their owners."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import trio

from ringpop_py.base.arguments import (
    ROUTED_KEY_CHARACTERS_MAX,
    check_names,
    checked_seconds,
    keys_of,
    sendable_keys,
    wrong,
)
from ringpop_py.base.errors import (
    ApplicationError,
    BadRequest,
    BodyError,
    CallError,
    ConfigError,
    ConnectFailed,
    DeadlineExceeded,
    KeysDiverged,
    PeerDeclined,
    PeerFailed,
    Refused,
    RingpopError,
    TooManyInFlight,
)
from ringpop_py.base.values.declared import encode, replace
from ringpop_py.net.http.stream_calls import StreamHead, stream_call
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer, Call
from ringpop_py.route.errand import MICROSECONDS, NEVER, instant_us
from ringpop_py.route.proxy.failures import decode_failure, decode_results
from ringpop_py.route.proxy.head import APPLICATION_SCHEME, MANY_ENDPOINT
from ringpop_py.route.proxy.http import (
    FLOW_ENDPOINT,
    PROXY_ENDPOINT,
    decode_http_reply,
    encode_http_head,
)
from ringpop_py.route.proxy.key_groups import UNDER_WAY, Together, messages_of
from ringpop_py.route.proxy.request import (
    AnyRequest,
    HttpRequest,
    ManyReply,
    ManyRequest,
    OwnerReply,
    Reply,
    RequestOptions,
)
from ringpop_py.route.proxy.retry import Retry, SchedulePolicy, SuccessorRoutes
from ringpop_py.route.proxy.tries import schedule_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.net.transport.channel import Channel
    from ringpop_py.route.errand import Ask, PartRoutes
    from ringpop_py.route.proxy.application import Application
    from ringpop_py.route.proxy.head import Head
    from ringpop_py.route.proxy.key_groups import ManyMessage
    from ringpop_py.route.proxy.owners import KeyOwners, RingOwners
    from ringpop_py.route.proxy.request import AnyReply

E = TypeVar("E", bound=RingpopError)
_SCHEDULING: Final = {"max_retries", "retry_schedule", "failover"}
_SPLITS_MAX: Final = 3
"""So often the requests of one message that has several owners by now are grouped anew."""


@dataclass(frozen=True, slots=True)
class _Many:
    """Many requests under way.

    Attributes:
        results: of each request, as soon as it has one.
    """

    keys: Sequence[str]
    request: ManyRequest
    owners: KeyOwners
    policy: SchedulePolicy
    deadline_at: float
    results: list[bytes | RingpopError]


class Proxy:
    """Forwards requests to the owners of their keys.

    Args:
        application: handles the requests that this node owns.
        ring_owners: knows the owners of all keys that are not those of a keyspace.
        service: the service name of the application of each member.
        address_of: returns the address of a member; None if it is no longer known.

    Attributes:
        address_of: see above.
        owners_of_keyspace: returns what knows the owners of a keyspace's keys, by the keyspace's
            name; None if this node does not have the keyspace.
    """

    def __init__(
        self,
        channel: Channel,
        application: Application,
        ring_owners: RingOwners,
        *,
        service: str,
        address_of: Callable[[str], Address | None],
    ) -> None:
        config = application.config
        self.application = application
        self.counts = application.counts
        self.operations = application.operations
        self.service = service
        self.owners_of_keyspace: Callable[[str], KeyOwners | None] = lambda _name: None
        self._channel = channel
        self._config = config
        self._ring_owners = ring_owners
        # Made once: a policy checks its schedule, which each request would pay for.
        self._attempt_us = round(config.timeout_s * MICROSECONDS)
        self._policy, self._policy_idempotent = (
            SchedulePolicy(
                config.max_retries, config.retry_schedule_s, idempotent, self._attempt_us
            )
            for idempotent in (False, True)
        )
        self.address_of = address_of
        self._repeatable: dict[int, int] = {}  # calls that may run twice, and their failover

    def handle_or_proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        *,
        owners: KeyOwners | None = None,
        counts: bool = True,
        **options: Unpack[RequestOptions],
    ) -> Coroutine[Any, Any, AnyReply | None]:
        """Return None if this node owns the key, and the owner's reply otherwise.

        Args:
            key: a key, or several that must have one owner.
            owners: knows who owns keys; the ring by default.
            counts: whether a request of this node's own keys counts as done.
            options: see `RequestOptions`.

        Raises:
            ApplicationError: the owner's handler answered with it.
            ProxyError: one of its subclasses; the request did not get through.
            NoOwner: the ring is empty, or no node serves the key's partition.
            TooManyInFlight: this node has too many requests under way.
            ConfigError: an argument or an option is not what it has to be.
        """
        if isinstance(key, str) and len(key) <= ROUTED_KEY_CHARACTERS_MAX:
            keys: tuple[str, ...] = (key,)  # each request would pay for the call
        else:
            keys = keys_of(key)
        if not isinstance(request, AnyRequest):
            raise wrong("request", "a Request or an HttpRequest", request)
        owners = self._ring_owners if owners is None else owners
        if not options:
            return self._ask(keys, request, owners, self._policy, math.inf, counts=counts)
        policy = self._policy_for(options)
        if policy.failover > 1 and (len(keys) > 1 or not isinstance(owners, SuccessorRoutes)):
            raise ConfigError("failover is for one key, which the ring owns and no keyspace")
        return self._ask(keys, request, owners, policy, _deadline_in(options), counts=counts)

    async def _ask(
        self,
        keys: tuple[str, ...],
        request: AnyRequest | ManyRequest,
        owners: KeyOwners,
        policy: SchedulePolicy,
        deadline_at: float,
        routes: PartRoutes[str] | None = None,
        counts: bool = True,  # noqa: FBT001, FBT002 - see `handle_or_proxy`
    ) -> Any:  # noqa: ANN401 - as the request is
        """Return None if this node is to handle *request*, and the owner's reply otherwise.

        Args:
            routes: say where all *keys* go, as one part.
        """
        deadline = NEVER if deadline_at == math.inf else instant_us(deadline_at)
        if routes is None:
            routes = owners if len(keys) == 1 else Together(owners, keys)
        owner, failure, retry = "", None, None
        await owners.settle(keys, deadline_at)
        now = 0 if deadline == NEVER else _now()  # without a deadline, it needs no clock
        step: Ask[str] | int | RingpopError | None
        step = policy.first_ask(keys, deadline, routes, now)
        if step is None:
            retry = Retry(keys, policy, deadline)
            step = retry.next(routes, now)
        while not isinstance(step, RingpopError):
            if isinstance(step, int):
                assert retry is not None
                if isinstance(failure, PeerDeclined):
                    await owners.reconcile(owner, keys)  # its time counts as part of the wait
                await trio.sleep_until(step / MICROSECONDS)
                await owners.settle(keys, deadline_at)
                step = retry.next(routes, _now())
                continue
            ask = step
            self.counts.reroutes += owner not in ("", ask.to)  # the first owner is not a change
            owner = ask.to
            if owner == self.application.local:
                self.counts.handled_here += 1
                self.application.tally_of(request).done += counts
                return None
            try:
                head = owners.head(keys)
                return await self._send(owner, head, request, ask.wait_us, policy)
            except TooManyInFlight as error:  # back-pressure is for the caller
                if retry is not None:
                    error.took_effect = retry.took_effect
                self._given_up(request, error)
                raise
            except CallError as error:
                failure = error
                failed, name = self.counts.attempts_failed, type(error).__name__
                failed[name] = failed.get(name, 0) + 1
            retry = Retry.after(ask, policy, deadline) if retry is None else retry
            retry.failed(ask, failure)
            step = retry.next(routes, _now())
            self.counts.retries += not isinstance(step, RingpopError)
        self.counts.failures += 1
        raise self._given_up(request, step) from failure

    def _given_up(self, request: AnyRequest | ManyRequest, error: E) -> E:
        """Count *request* as failed or refused, unless it is of many keys; return *error*."""
        if not isinstance(request, ManyRequest):
            self.application.tally_of(request).fail(error)
        return error

    def _policy_for(self, options: RequestOptions) -> SchedulePolicy:
        check_names(options, RequestOptions.__annotations__, "option")
        idempotent = options.get("idempotent", False)
        if options.keys().isdisjoint(_SCHEDULING):
            return self._policy_idempotent if idempotent else self._policy  # were checked before
        return SchedulePolicy(
            options.get("max_retries", self._config.max_retries),
            schedule_in(options, self._config.retry_schedule_s),
            idempotent,
            self._attempt_us,
            options.get("failover", 1),
        )

    async def handle_or_proxy_all(
        self,
        keys: Iterable[str],
        request: AnyRequest,
        *,
        owners: KeyOwners | None = None,
        here: Callable[[tuple[str, ...], AnyRequest, float], Awaitable[AnyReply]] | None = None,
        **options: Unpack[RequestOptions],
    ) -> list[OwnerReply]:
        """Call `handle_or_proxy` for each owner of *keys*, all at the same time.

        If one owner's part fails, the error is in its `OwnerReply.error`; the others go on.

        Args:
            here: answers for the keys of this node; by default their reply is None.

        Raises:
            NoOwner: no key has an owner.
        """
        if not isinstance(request, AnyRequest):
            raise wrong("request", "a Request or an HttpRequest", request)
        owners = self._ring_owners if owners is None else owners
        policy, deadline_at = self._policy_for_many(options), _deadline_in(options)
        wanted = tuple(dict.fromkeys(sendable_keys(keys)))  # in the order given
        await owners.settle(wanted, deadline_at)
        # One view of all keys, so that the groups fit together.
        groups = owners.grouped(wanted)
        if [*groups] == [""]:
            raise owners.why_nobody(wanted[0])
        replies: dict[str, OwnerReply] = {}

        async def ask(owner: str, group: tuple[str, ...]) -> None:
            try:
                reply = await self._ask(
                    group, request, owners, policy, deadline_at, counts=here is None
                )
                if reply is None and here is not None:
                    with trio.move_on_at(deadline_at):
                        reply = await here(group, request, deadline_at)
                    if reply is None:
                        raise self._given_up(request, _too_slow_here())
                replies[owner] = OwnerReply(owner, group, reply)
            except RingpopError as error:
                replies[owner] = OwnerReply(owner, group, error=error)

        async with trio.open_nursery() as nursery:
            for owner, places in groups.items():
                nursery.start_soon(ask, owner, tuple(wanted[place] for place in places))
        # In the order of the keys, not in that of the answers.
        return [replies[owner] for owner in groups]

    async def proxy_many(
        self,
        keys: Sequence[str],
        request: ManyRequest,
        *,
        owners: KeyOwners | None = None,
        **options: Unpack[RequestOptions],
    ) -> list[bytes | RingpopError]:
        """Have the owner of each key answer its request, also this node; many travel as one.

        Returns:
            The body of each answer, or an error, in the order of *keys*.

        Raises:
            ConfigError: an argument or an option is not what it has to be.
        """
        owners = self._ring_owners if owners is None else owners
        policy, deadline_at = self._policy_for_many(options), _deadline_in(options)
        await owners.settle(keys, deadline_at)
        results: list[bytes | RingpopError] = [b""] * len(keys)
        many = _Many(keys, request, owners, policy, deadline_at, results)
        await self._scatter(many, range(len(keys)), _SPLITS_MAX)
        return results

    async def _scatter(self, many: _Many, places: Sequence[int], splits_left: int) -> None:
        """Have each owner answer its part of the requests at *places*."""
        owned_by = many.owners.owned_by
        keys = many.keys if len(places) == len(many.keys) else [many.keys[at] for at in places]
        async with trio.open_nursery() as nursery:
            for owner, found in many.owners.grouped(keys).items():
                group = found if keys is many.keys else [places[at] for at in found]
                sized = many.request.keys_max
                messages = messages_of(many.keys, many.request.bodies, group, sized)
                for _ in range(UNDER_WAY if len(group) > 1 else 1):
                    known = owned_by, owner
                    nursery.start_soon(self._send_messages, many, messages, known, splits_left)

    async def _send_messages(
        self,
        many: _Many,
        messages: Iterator[ManyMessage],
        known: tuple[object, str],
        splits_left: int,
    ) -> None:
        for places, keys, bodies in messages:  # which another task takes from, too
            request = ManyRequest(many.request.endpoint, bodies, many.request.headers)
            routes = Together(many.owners, keys, known)
            try:
                reply = await self._ask(
                    keys, request, many.owners, many.policy, many.deadline_at, routes, counts=False
                )
                if reply is None:
                    reply = await self._handle_many(keys, request, many.deadline_at)
            except RingpopError as error:
                divided = isinstance(error, KeysDiverged) and splits_left
                if divided and (error.took_effect == "no" or many.policy.idempotent):
                    await self._scatter(many, places, splits_left - 1)
                else:
                    if not isinstance(error, ApplicationError):  # which its owner has counted
                        self.operations.handler.fail(error, len(places))
                    for place in places:
                        many.results[place] = error
            else:
                for place, result in zip(places, reply.results, strict=True):
                    many.results[place] = result

    async def _handle_many(
        self, keys: tuple[str, ...], request: ManyRequest, deadline_at: float
    ) -> ManyReply:
        """Have this node's own handlers answer, within the time."""
        with trio.move_on_at(deadline_at):
            try:
                return await self.application.handle_many(keys, request, deadline_at)
            except BadRequest as error:  # as in `proxy`
                raise Refused(str(error)) from None
        raise _too_slow_here()

    def _policy_for_many(self, options: RequestOptions) -> SchedulePolicy:
        policy = self._policy_for(options) if options else self._policy
        if policy.failover > 1:
            raise ConfigError("failover is for requests of one key")
        return policy

    async def proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        *,
        owners: KeyOwners | None = None,
        **options: Unpack[RequestOptions],
    ) -> AnyReply:
        """As `handle_or_proxy`, but call this node's handler if it is the owner."""
        began_at = trio.current_time()
        reply = await self.handle_or_proxy(key, request, owners=owners, counts=False, **options)
        if reply is not None:
            return reply
        keys = (key,) if isinstance(key, str) else tuple(key)
        deadline = began_at + options.get("deadline_s", math.inf)  # checked there
        try:
            return await self.application.handle(keys, request, deadline)
        except BadRequest as error:  # as if another member were the owner
            raise Refused(str(error), (f"attempt 1 to {self.application.local}",)) from None

    async def _send(
        self,
        owner: str,
        head: Head,
        request: AnyRequest | ManyRequest,
        wait_us: int,
        policy: SchedulePolicy,
    ) -> AnyReply | ManyReply:
        self.application.refuse_too_many()
        address = self.address_of(owner)
        if address is None:
            raise ConnectFailed(f"{owner} is no longer a member")
        if address == self._channel.host_port:  # whose process had this address before
            raise ConnectFailed(f"{owner} has the address of this node; it is probably gone")
        if policy.failover > 1:
            head = replace(head, failover=policy.failover)
        call = self._call_for(request, head, wait_us / MICROSECONDS)
        self.counts.proxied += 1
        self.counts.in_flight += 1
        if policy.idempotent:
            self._repeatable[id(call)] = policy.failover
        try:
            answer = await self._channel.call(address, call)
        finally:
            self.counts.in_flight -= 1
            if policy.idempotent:
                del self._repeatable[id(call)]
        reply = _reply_from(answer, request, owner)
        self.counts.answered += 1
        return reply

    def doubt(self, address: Address, why: str, *, is_owner: bool) -> None:
        """Give up calls to a member that is believed to be gone, if their requests may run again.

        Args:
            is_owner: whether it still owns its keys, so that only failover leads elsewhere.
        """
        least = 2 if is_owner else 1
        which = {call for call, failover in self._repeatable.items() if failover >= least}
        if which:
            self._channel.give_up_calls(address, lambda call: id(call) in which, why)

    def _call_for(self, request: AnyRequest | ManyRequest, head: Head, ttl_s: float) -> Call:
        if isinstance(request, HttpRequest):
            if len(request.body) > self._config.body_bytes_max:
                raise ConfigError(f"an HTTP body has at most {self._config.body_bytes_max} bytes")
            arg2, arg3 = encode_http_head(request, head), request.body
            is_there = request.flow is None or request.flow.kind == "answer"
            service, endpoint = NODE_SERVICE, PROXY_ENDPOINT if is_there else FLOW_ENDPOINT
        else:
            service, endpoint = self.service, request.endpoint
            if isinstance(request, ManyRequest):
                head, arg3 = replace(head, endpoint=endpoint), encode(request.bodies)
                service, endpoint = NODE_SERVICE, MANY_ENDPOINT
            else:
                arg3 = request.body
            arg2 = (replace(head, headers=request.headers) if request.headers else head).encode()
        return Call(service, endpoint, arg2, arg3, ttl_s=ttl_s, scheme=APPLICATION_SCHEME)

    async def relay(self, owner: str, endpoint: str, body: bytes, ttl_s: float) -> Answer:
        """Pass a call on to the member *owner*, unchanged and once. Raises PeerDeclined."""
        address = self.address_of(owner)
        if address is None:
            # The client may ask another daemon, whose member list is newer.
            raise PeerDeclined(f"{owner} is not a member here")
        self.application.admit()
        call = Call(self.service, endpoint, b"", body, ttl_s=ttl_s, scheme=APPLICATION_SCHEME)
        self.counts.in_flight += 1
        try:
            return await self._channel.call(address, call)
        finally:
            self.counts.in_flight -= 1

    async def on_stream(self, head: StreamHead, data: bytes = b"") -> Answer:
        """Have the owner of a stream do what *head* wants of it. Raises PeerDeclined, CallError."""
        if head.owner == self.application.local:
            return await self.application.streams.serve(head, data)
        address = self.address_of(head.owner)
        if address in (None, self._channel.host_port):
            raise PeerDeclined(f"{head.owner} is not a member here")
        assert address is not None
        return await self._channel.call(address, stream_call(head, data))

    def owners_for(self, head: Head) -> KeyOwners:
        """Return what knows the owners of the keys of *head*. Raises PeerDeclined."""
        return self._ring_owners if head.keyspace is None else self.owners_in(head.keyspace.name)

    def owners_in(self, keyspace: str) -> KeyOwners:
        """As `owners_for`, by the name of a keyspace; empty for the ring."""
        if not keyspace:
            return self._ring_owners
        owners = self.owners_of_keyspace(keyspace)
        if owners is None:
            raise PeerDeclined(f"{self.application.local} has no part in keyspace {keyspace!r}")
        return owners


def _too_slow_here() -> DeadlineExceeded:
    return DeadlineExceeded("the handler of this node took longer", (), "unknown")


def _deadline_in(options: RequestOptions) -> float:
    return trio.current_time() + checked_seconds(options.get("deadline_s", math.inf), "deadline_s")


def _now() -> int:
    return round(trio.current_time() * MICROSECONDS)


def _reply_from(
    answer: Answer, request: AnyRequest | ManyRequest, owner: str
) -> AnyReply | ManyReply:
    try:
        if not answer.ok:
            raise decode_failure(answer.arg2)
        if isinstance(request, HttpRequest):
            return decode_http_reply(answer.arg2, answer.arg3, owner)
        if isinstance(request, ManyRequest):
            return ManyReply(decode_results(answer.arg3, len(request.bodies)), owner)
    except BodyError as error:
        # BodyError would say that the request was refused, but it has run.
        raise PeerFailed(f"the answer cannot be read: {error}") from None
    return Reply(answer.arg3, owner)
