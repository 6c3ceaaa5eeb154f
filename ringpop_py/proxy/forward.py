"""handle_or_proxy: carries out what an `Errand` decides, and forwards requests to their owners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import trio

from ringpop_py.arguments import (
    check_names,
    checked_kind,
    checked_seconds,
    checked_texts,
    keys_of,
    wrong,
)
from ringpop_py.errand import MICROSECONDS, NEVER, Errand, SchedulePolicy, instant_us
from ringpop_py.errors import (
    BodyError,
    CallError,
    ConfigError,
    ConnectFailed,
    PeerDeclined,
    PeerFailed,
    RingpopError,
    TooManyInFlight,
)
from ringpop_py.proxy.head import APPLICATION_SCHEME, decode_error
from ringpop_py.proxy.http import PROXY_ENDPOINT, decode_http_reply, encode_http_head
from ringpop_py.proxy.request import AnyRequest, HttpRequest, OwnerReply, Reply, RequestOptions
from ringpop_py.wire.calls import NODE_SERVICE, Answer, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringpop_py.address import Address
    from ringpop_py.config.settings import ProxyConfig
    from ringpop_py.errand import Ask
    from ringpop_py.proxy.application import Application
    from ringpop_py.proxy.head import Head
    from ringpop_py.proxy.owners import KeyOwners, RingOwners
    from ringpop_py.proxy.request import AnyReply
    from ringpop_py.transport.channel import Channel


class Proxy:
    """Forwards requests to the owners of their keys.

    Args:
        application: handles the requests that this node owns.
        ring_owners: knows the owners of all keys that are not those of a keyspace.
        service: the service name of the application of each member.
        address_of: returns the address of a member; None if it is no longer known.

    Attributes:
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
        self._address_of = address_of

    async def handle_or_proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        *,
        owners: KeyOwners | None = None,
        **options: Unpack[RequestOptions],
    ) -> AnyReply | None:
        """Return None if this node owns the key, and the owner's reply otherwise.

        Args:
            key: a key, or several that must have one owner.
            owners: knows who owns keys; the ring by default.
            options: see `RequestOptions`.

        Raises:
            ApplicationError: the owner's handler answered with it.
            ProxyError: one of its subclasses; the request did not get through.
            NoOwner: the ring is empty, or no node serves the key's partition.
            TooManyInFlight: this node has too many requests under way.
            ConfigError: an argument or an option is not what it has to be.
        """
        keys = (key,) if isinstance(key, str) else keys_of(key)
        if not isinstance(request, AnyRequest):
            raise _no_request(request)
        policy = self._policy_for(options) if options else self._policy
        deadline_at, deadline = math.inf, NEVER
        if "deadline_s" in options:
            deadline_at = trio.current_time() + checked_seconds(options["deadline_s"], "deadline_s")
            deadline = instant_us(deadline_at)
        owners = self._ring_owners if owners is None else owners
        errand = Errand(keys if len(keys) == 1 else tuple(dict.fromkeys(keys)), policy, deadline)
        owner = ""
        while True:
            await owners.settle(keys, deadline_at)
            # Without a deadline, an attempt needs no clock.
            step = errand.next(owners, 0 if deadline == NEVER else _now())
            if step is None:
                self.counts.failures += 1
                raise errand.results[keys[0]]
            assert not isinstance(step, int), "pauses come after failures"
            (ask,) = step
            self.counts.reroutes += owner not in ("", ask.to)  # the first owner is not a change
            owner = ask.to
            if owner == self.application.local:
                self.counts.handled_here += 1
                return None
            try:
                return await self._send(owner, owners.head(keys), request, ask.wait_us)
            except TooManyInFlight:  # back-pressure is for the caller
                raise
            except CallError as error:
                await self._wait_to_retry(errand, owners, ask, error)

    def _policy_for(self, options: RequestOptions) -> SchedulePolicy:
        check_names(options, RequestOptions.__annotations__, "option")
        idempotent = options.get("idempotent", False)
        if "max_retries" not in options and "retry_schedule" not in options:
            return self._policy_idempotent if idempotent else self._policy  # were checked before
        return SchedulePolicy(
            options.get("max_retries", self._config.max_retries),
            _schedule_in(options, self._config),
            idempotent,
            self._attempt_us,
        )

    async def handle_or_proxy_all(
        self,
        keys: Iterable[str],
        request: AnyRequest,
        **options: Unpack[RequestOptions],
    ) -> list[OwnerReply]:
        """Call `handle_or_proxy` for each owner of *keys*, all at the same time.

        If one owner's part fails, the error is in its `OwnerReply.error`; the others go on.

        Raises:
            NoOwner: the ring is empty.
        """
        if not isinstance(request, AnyRequest):
            raise _no_request(request)
        self._policy_for(options)  # raises ConfigError for all of them, and not for each owner
        # One ring for all keys, so that the groups fit together.
        ring = self._ring_owners.ring()
        groups: dict[str, list[str]] = {}
        for key in dict.fromkeys(checked_texts(keys, "keys", "key")):  # once, in the order given
            groups.setdefault(ring.lookup(key), []).append(key)
        replies: dict[str, OwnerReply] = {}

        async def ask(owner: str, group: tuple[str, ...]) -> None:
            try:
                reply = await self.handle_or_proxy(group, request, **options)
                replies[owner] = OwnerReply(owner, group, reply)
            except RingpopError as error:
                replies[owner] = OwnerReply(owner, group, error=error)

        async with trio.open_nursery() as nursery:
            for owner, group in groups.items():
                nursery.start_soon(ask, owner, tuple(group))
        # In the order of the keys, not in that of the answers.
        return [replies[owner] for owner in groups]

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
        reply = await self.handle_or_proxy(key, request, owners=owners, **options)
        if reply is not None:
            return reply
        keys = (key,) if isinstance(key, str) else tuple(key)
        deadline = math.inf
        if "deadline_s" in options:  # checked there
            deadline = began_at + options["deadline_s"]
        return await self.application.handle(keys, request, deadline)

    async def _wait_to_retry(
        self, errand: Errand[str], owners: KeyOwners, ask: Ask[str], error: CallError
    ) -> None:
        errand.failed(ask, error)
        until = errand.next(owners, _now())
        if until is None:
            self.counts.failures += 1
            raise errand.results[ask.parts[0]] from error
        assert isinstance(until, int)
        self.counts.retries += 1
        if isinstance(error, PeerDeclined):
            await owners.reconcile(ask.to, ask.parts)  # its time counts as part of the wait
        await trio.sleep_until(until / MICROSECONDS)

    async def _send(self, owner: str, head: Head, request: AnyRequest, wait_us: int) -> AnyReply:
        self.application.refuse_too_many()
        address = self._address_of(owner)
        if address is None:
            raise ConnectFailed(f"{owner} is no longer a member")
        if address == self._channel.host_port:  # whose process had this address before
            raise ConnectFailed(f"{owner} has the address of this node; it is probably gone")
        call = self._call_for(request, head, wait_us / MICROSECONDS)
        self.counts.proxied += 1
        self.counts.in_flight += 1
        try:
            answer = await self._channel.call(address, call)
        finally:
            self.counts.in_flight -= 1
        return _reply_from(answer, request, owner)

    def _call_for(self, request: AnyRequest, head: Head, ttl_s: float) -> Call:
        body = request.body
        if isinstance(request, HttpRequest):
            if len(body) > self._config.body_bytes_max:
                raise ConfigError(f"an HTTP body has at most {self._config.body_bytes_max} bytes")
            service, endpoint, arg2 = NODE_SERVICE, PROXY_ENDPOINT, encode_http_head(request, head)
        else:
            service, endpoint = self.service, request.endpoint
            arg2 = head.with_headers(request.headers).encode() if request.headers else head.encode()
        return Call(service, endpoint, arg2, body, ttl_s=ttl_s, scheme=APPLICATION_SCHEME)

    async def relay(self, owner: str, endpoint: str, body: bytes, ttl_s: float) -> Answer:
        """Pass a call on to the member *owner*, unchanged and once. Raises PeerDeclined."""
        address = self._address_of(owner)
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

    def owners_for(self, head: Head) -> KeyOwners:
        """Return what knows the owners of the keys of *head*. Raises PeerDeclined."""
        if head.keyspace is None:
            return self._ring_owners
        owners = self.owners_of_keyspace(head.keyspace.name)
        if owners is None:
            raise PeerDeclined(
                f"{self.application.local} has no part in keyspace {head.keyspace.name!r}"
            )
        return owners


def _no_request(given: object) -> ConfigError:
    return wrong("request", "a Request or an HttpRequest", given)


def _schedule_in(options: RequestOptions, config: ProxyConfig) -> tuple[float, ...]:
    schedule_s = options.get("retry_schedule", config.retry_schedule_s)
    checked_kind(schedule_s, Sequence, "retry_schedule", "a list of seconds")
    return tuple(schedule_s)


def _now() -> int:
    return round(trio.current_time() * MICROSECONDS)


def _reply_from(answer: Answer, request: AnyRequest, owner: str) -> AnyReply:
    try:
        if not answer.ok:
            raise decode_error(answer.arg2)
        if isinstance(request, HttpRequest):
            return decode_http_reply(answer.arg2, answer.arg3, owner)
    except BodyError as error:
        # BodyError would say that the request was refused, but it has run.
        raise PeerFailed(f"the answer cannot be read: {error}") from None
    return Reply(answer.arg3, owner)
