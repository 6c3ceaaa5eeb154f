"""handle_or_proxy: carries out what a `Route` decides, and serves what others forward."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Unpack, assert_never

import trio

from ringpop_py.drain import Work
from ringpop_py.errors import (
    ApplicationError,
    BadRequest,
    BodyError,
    CallError,
    ConfigError,
    ConnectFailed,
    DeadlineExceeded,
    NoOwner,
    PeerBusy,
    PeerDeclined,
    PeerFailed,
    ProxyError,
    RingpopError,
    TooManyInFlight,
)
from ringpop_py.proxy.head import (
    APPLICATION_SCHEME,
    PROXY_ERROR_PREFIX,
    RELAY_ENDPOINT,
    Head,
    decode_error,
    encode_error,
)
from ringpop_py.proxy.http import (
    PROXY_ENDPOINT,
    decode_http_head,
    decode_http_reply,
    encode_http_head,
    encode_http_reply_head,
)
from ringpop_py.proxy.owners import KeyOwners, RingOwners
from ringpop_py.proxy.request import (
    AnyReply,
    AnyRequest,
    HttpReply,
    HttpRequest,
    Reply,
    Request,
    RequestOptions,
)
from ringpop_py.proxy.schedule import (
    REFUSED_CHECKSUM,
    GiveUp,
    HandleHere,
    RetryPolicy,
    Route,
    SendTo,
)
from ringpop_py.values.packed import a_map, a_text, decode_value, encode_value
from ringpop_py.wire.calls import NODE_SERVICE, Answer, Call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.address import Address
    from ringpop_py.config.settings import ProxyConfig
    from ringpop_py.proxy.replay import HttpReplayer
    from ringpop_py.ring.hashring import HashRing
    from ringpop_py.transport.channel import Channel, IncomingCall


class AppCall(NamedTuple):
    """A request as an application's handler sees it.

    One is made for each call: a tuple, which is made fastest.

    Attributes:
        keys: those that the sender looked up; empty where a client called the handler directly.
        sender: the member that forwarded it; empty where it came from here or from a client.
    """

    endpoint: str
    body: bytes
    keys: tuple[str, ...] = ()
    sender: str = ""


Handler = Callable[[AppCall], bytes | Awaitable[bytes | None] | None]
"""Answers with bytes; None stands for none. May be a function or a coroutine function; raises
`ApplicationError` for an error of its own, which reaches the caller as it is."""


@dataclass(frozen=True, slots=True)
class OwnerReply:
    """One owner's part of `Proxy.handle_or_proxy_all`.

    Attributes:
        reply: None where these keys are to be handled here, or where *error* is set.
        error: why these keys got no answer.
    """

    owner: str
    keys: tuple[str, ...]
    reply: AnyReply | None = None
    error: RingpopError | None = None


@dataclass(slots=True)
class ProxyCounts:
    """How often things happened since the node was started."""

    handled_here: int = 0
    proxied: int = 0
    retries: int = 0
    reroutes: int = 0
    failures: int = 0
    served: int = 0
    refused_keys: int = 0
    refused_checksum: int = 0
    in_flight: int = field(default=0)


class Proxy:
    """The application's side of a node: its handlers, and requests for other owners.

    Args:
        ring: gives the ring as it is now.
        address_of: where a member listens, by name; None if it is not known any more.
        reconcile: called before a retry with the owner that refused and the keys; may wait for a
            moment for the two views of the cluster to agree.

    Attributes:
        owners_of_keyspace: who owns the keys of the keyspace of that name; None if there is none
            here. Without keyspaces there never is.
        starting: handlers are still being added, so a call of an unknown endpoint is declined: it
            may be tried again.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        local: str,
        service: str,
        config: ProxyConfig,
        ring: Callable[[], HashRing],
        address_of: Callable[[str], Address | None],
        reconcile: Callable[[str, Sequence[str]], Awaitable[None]],
        app_url: str | None = None,
    ) -> None:
        self.counts = ProxyCounts()
        self.starting = False
        self._channel = channel
        self._local = local
        self._service = service
        self._config = config
        self._ring = ring
        self._ring_owners = RingOwners(local, ring, reconcile, config.consistency)
        self.owners_of_keyspace: Callable[[str], KeyOwners | None] = lambda _name: None
        self._policy, self._policy_idempotent = (
            RetryPolicy(config.max_retries, config.retry_schedule_s, idempotent)
            for idempotent in (False, True)
        )
        self._address_of = address_of
        self._handlers: dict[str, Handler] = {}
        self._http: HttpReplayer | None = None
        if app_url is not None:
            from ringpop_py.proxy.replay import HttpReplayer  # noqa: PLC0415 - httpx loads slowly

            self._http = HttpReplayer(app_url, config.body_bytes_max)
        channel.serve(service, "*", self._serve, work=Work.REQUESTS)
        channel.serve(NODE_SERVICE, PROXY_ENDPOINT, self._serve_http, work=Work.REQUESTS)
        channel.serve(NODE_SERVICE, RELAY_ENDPOINT, self._relay, work=Work.REQUESTS)

    async def aclose(self) -> None:
        """Close what was opened to the application."""
        if self._http is not None:
            await self._http.aclose()

    def add_handler(self, endpoint: str, handler: Handler) -> None:
        """Serve *endpoint* with *handler*.

        Raises:
            ConfigError: if the endpoint is taken, or is no path.
        """
        Request(endpoint)
        if endpoint in self._handlers:
            message = f"endpoint {endpoint!r} has a handler already"
            raise ConfigError(message)
        self._handlers[endpoint] = handler

    # Outward.

    async def handle_or_proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        *,
        owners: KeyOwners | None = None,
        **options: Unpack[RequestOptions],
    ) -> AnyReply | None:
        """None if this node owns the key: handle it here. Else the owner's reply.

        Args:
            key: a key, or several that must have one owner.
            owners: who owns keys; the ring says so, if nothing is given.
            options: see `RequestOptions`.

        Raises:
            ApplicationError: the owner's handler answered with it.
            ProxyError: one of its subclasses; the request did not get through.
            NoOwner: the ring is empty, or nobody serves the key's partition.
            TooManyInFlight: this node has too many requests under way.
        """
        keys = (key,) if isinstance(key, str) else tuple(key)
        if not keys:
            message = "handle_or_proxy needs at least one key"
            raise ConfigError(message)
        deadline_at = math.inf
        if "deadline_s" in options:
            deadline_at = trio.current_time() + options["deadline_s"]
        route = Route(keys, self._local, self._policy_for(options), deadline_at)
        return await self._follow(route, owners or self._ring_owners, request, deadline_at)

    def _policy_for(self, options: RequestOptions) -> RetryPolicy:
        """Return the configured policy, which was checked once, or make that of *options*."""
        idempotent = options.get("idempotent", False)
        if "max_retries" not in options and "retry_schedule" not in options:
            return self._policy_idempotent if idempotent else self._policy
        return RetryPolicy(
            options.get("max_retries", self._config.max_retries),
            tuple(options.get("retry_schedule", self._config.retry_schedule_s)),
            idempotent,
        )

    async def handle_or_proxy_all(
        self,
        keys: Iterable[str],
        request: AnyRequest,
        **options: Unpack[RequestOptions],
    ) -> list[OwnerReply]:
        """`handle_or_proxy` for each owner of some of *keys*, all at once.

        One owner's failure is its part's `OwnerReply.error`; the others' replies still come.

        Raises:
            NoOwner: the ring is empty.
        """
        ring = self._ring()
        groups: dict[str, list[str]] = {}
        for key in dict.fromkeys(keys):
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
        return [replies[owner] for owner in groups]

    async def proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        *,
        owners: KeyOwners | None = None,
        **options: Unpack[RequestOptions],
    ) -> AnyReply:
        """As `handle_or_proxy`, but where this node is the owner its own handler is called."""
        reply = await self.handle_or_proxy(key, request, owners=owners, **options)
        if reply is not None:
            return reply
        keys = (key,) if isinstance(key, str) else tuple(key)
        return await self._handle_here(keys, request)

    async def _follow(
        self, route: Route, owners: KeyOwners, request: AnyRequest, deadline_at: float
    ) -> AnyReply | None:
        while True:
            before = route.reroute_count
            await owners.settle(route.keys, deadline_at)
            step = route.next_step(owners)
            self.counts.reroutes += route.reroute_count - before
            match step:
                case HandleHere():
                    self.counts.handled_here += 1
                    return None
                case GiveUp(error):
                    self.counts.failures += 1
                    raise error
                case SendTo(owner):
                    try:
                        return await self._send(
                            owner, owners.head(route.keys), request, deadline_at
                        )
                    except CallError as error:
                        if isinstance(error, TooManyInFlight):
                            raise
                        await self._wait_to_retry(route, owners, owner, error)
                case _:
                    assert_never(step)

    async def _wait_to_retry(
        self, route: Route, owners: KeyOwners, owner: str, error: CallError
    ) -> None:
        after = route.failed(error, trio.current_time())
        if isinstance(after, GiveUp):
            self.counts.failures += 1
            raise after.error from error
        self.counts.retries += 1
        retry_at = trio.current_time() + after.after_s
        if isinstance(error, PeerDeclined):
            await owners.reconcile(owner, route.keys)
        await trio.sleep_until(retry_at)

    async def _send(
        self, owner: str, head: Head, request: AnyRequest, deadline_at: float
    ) -> AnyReply:
        self._refuse_too_many()
        address = self._address_of(owner)
        if address is None:
            message = f"{owner} is not a member any more"
            raise ConnectFailed(message)
        if address == self._channel.host_port:
            message = f"{owner} was at this very address; it is not known yet that it is gone"
            raise ConnectFailed(message)
        ttl_s = self._config.timeout_s
        if deadline_at != math.inf:
            ttl_s = min(deadline_at - trio.current_time(), ttl_s)
            if ttl_s <= 0:
                raise DeadlineExceeded("the deadline passed before an attempt")  # noqa: TRY003, EM101
        call = self._call_for(request, head, ttl_s)
        self.counts.proxied += 1
        self.counts.in_flight += 1
        try:
            answer = await self._channel.call(address, call)
        finally:
            self.counts.in_flight -= 1
        return _reply_from(answer, request, owner)

    def _call_for(self, request: AnyRequest, head: Head, ttl_s: float) -> Call:
        if len(request.body) > self._config.body_bytes_max and isinstance(request, HttpRequest):
            message = f"an HTTP body has at most {self._config.body_bytes_max} bytes"
            raise ConfigError(message)
        if isinstance(request, HttpRequest):
            return Call(
                NODE_SERVICE,
                PROXY_ENDPOINT,
                encode_http_head(request, head),
                request.body,
                ttl_s=ttl_s,
                scheme=APPLICATION_SCHEME,
            )
        return Call(
            self._service,
            request.endpoint,
            head.encode(),
            request.body,
            ttl_s=ttl_s,
            scheme=APPLICATION_SCHEME,
        )

    # Inward.

    def _serve(self, incoming: IncomingCall) -> Answer | Awaitable[Answer]:
        """An application's call: inline where its handler is a plain function."""
        head = Head.decode(incoming.arg2)
        if head.route:
            return self._serve_client(head, incoming)
        handler = self._handler_for(incoming.endpoint)
        self._check_ownership(head)
        call = AppCall(incoming.endpoint, incoming.arg3, head.keys, head.sender)
        self._admit()
        try:
            result = handler(call)
        except ApplicationError as error:
            return Answer(ok=False, arg2=encode_error(error.kind, error.message))
        except RingpopError as error:
            raise _let_out(error) from error
        if not isinstance(result, bytes) and inspect.isawaitable(result):  # which takes long
            self.counts.in_flight += 1  # now: others may be admitted before its task begins
            return self._finish(result)
        return Answer(ok=True, arg3=result or b"")

    async def _finish(self, result: Awaitable[bytes | None]) -> Answer:
        try:
            return Answer(ok=True, arg3=await result or b"")
        except ApplicationError as error:
            return Answer(ok=False, arg2=encode_error(error.kind, error.message))
        except RingpopError as error:
            raise _let_out(error) from error
        finally:
            self.counts.in_flight -= 1

    async def _serve_client(self, head: Head, incoming: IncomingCall) -> Answer:
        """A client asked this node to bring its request to the owner."""
        if not head.keys:
            message = "a request to be routed needs a key"
            raise BadRequest(message)
        try:
            request = Request(incoming.endpoint, incoming.arg3)
        except ConfigError as error:
            raise BadRequest(str(error)) from None
        try:
            reply = await self.proxy(
                head.keys,
                request,
                owners=self._owners_for(head),
                idempotent=head.idempotent,
                deadline_s=incoming.deadline - trio.current_time(),
            )
        except ApplicationError as error:
            return Answer(ok=False, arg2=encode_error(error.kind, error.message))
        except (ProxyError, NoOwner) as error:
            # Its kind tells the client which of our errors it is.
            kind = f"{PROXY_ERROR_PREFIX}{type(error).__name__}"
            return Answer(ok=False, arg2=encode_error(kind, str(error)))
        return Answer(
            ok=True, arg2=encode_value("msgpack", {"owner": reply.owner}), arg3=reply.body
        )

    async def _serve_http(self, incoming: IncomingCall) -> Answer:
        try:
            request, head = decode_http_head(incoming.arg2, incoming.arg3)
        except ConfigError as error:
            raise BodyError(str(error)) from None
        if len(request.body) > self._config.body_bytes_max:
            message = f"an HTTP body has at most {self._config.body_bytes_max} bytes"
            raise BadRequest(message)
        self._check_ownership(head)
        self._admit()
        self.counts.in_flight += 1
        try:
            status, headers, body = await self._replayer().replay(request)
        finally:
            self.counts.in_flight -= 1
        return Answer(ok=True, arg2=encode_http_reply_head(status, headers), arg3=body)

    async def _relay(self, incoming: IncomingCall) -> Answer:
        """Pass a client's call on to the member that it names, untouched, and its answer back."""
        head = a_map(decode_value("msgpack", incoming.arg2), "head")
        owner = a_text(head.get("owner"), "owner")
        endpoint = a_text(head.get("endpoint"), "endpoint")
        address = self._address_of(owner)
        if address is None:
            message = f"{owner} is not a member here"
            raise PeerDeclined(message)
        ttl_s = incoming.deadline - trio.current_time()
        self._admit()
        self.counts.in_flight += 1
        try:
            return await self._channel.call(
                address,
                Call(
                    self._service,
                    endpoint,
                    b"",
                    incoming.arg3,
                    ttl_s=ttl_s,
                    scheme=APPLICATION_SCHEME,
                ),
            )
        finally:
            self.counts.in_flight -= 1

    async def _handle_here(self, keys: tuple[str, ...], request: AnyRequest) -> AnyReply:
        if isinstance(request, HttpRequest):
            status, headers, body = await self._replayer().replay(request)
            return HttpReply(status, headers, body, self._local)
        handler = self._handler_for(request.endpoint)
        self._refuse_too_many()
        self.counts.in_flight += 1
        try:
            result = handler(AppCall(request.endpoint, request.body, keys))
            body_or_none = await result if inspect.isawaitable(result) else result
        except ApplicationError:
            raise
        except RingpopError as error:
            raise _let_out(error) from error
        finally:
            self.counts.in_flight -= 1
        return Reply(body_or_none or b"", self._local)

    def _handler_for(self, endpoint: str) -> Handler:
        handler = self._handlers.get(endpoint)
        if handler is None:
            message = f"no handler for endpoint {endpoint!r}"
            if self.starting:
                message += " yet: the application is starting"
                raise PeerDeclined(message)
            raise BadRequest(message)
        return handler

    def _replayer(self) -> HttpReplayer:
        if self._http is None:
            message = f"{self._local} has no HTTP application (start it with --app-url)"
            raise BadRequest(message)
        return self._http

    def _refuse_too_many(self) -> None:
        if self.counts.in_flight >= self._config.in_flight_max:
            message = f"{self._config.in_flight_max} requests are under way here already"
            raise TooManyInFlight(message)

    def _admit(self) -> None:
        if self.counts.in_flight >= self._config.in_flight_max:
            message = f"{self._config.in_flight_max} requests are under way here already"
            raise PeerBusy(message)
        self.counts.served += 1

    def _owners_for(self, head: Head) -> KeyOwners:
        """Who owns the keys that *head* is about. Raises PeerDeclined."""
        if head.keyspace is None:
            return self._ring_owners
        owners = self.owners_of_keyspace(head.keyspace.name)
        if owners is None:
            message = f"{self._local} has no part in keyspace {head.keyspace.name!r}"
            raise PeerDeclined(message)
        return owners

    def _check_ownership(self, head: Head) -> None:
        """Refuse what is not ours; what the ring owns, by the rule that the configuration names."""
        message = self._owners_for(head).refusal(head)
        if message:
            checksums_differ = message.startswith(REFUSED_CHECKSUM)
            self.counts.refused_checksum += checksums_differ
            self.counts.refused_keys += not checksums_differ
            raise PeerDeclined(message)


def _reply_from(answer: Answer, request: AnyRequest, owner: str) -> AnyReply:
    try:
        if not answer.ok:
            raise decode_error(answer.arg2)
        if isinstance(request, HttpRequest):
            return decode_http_reply(answer.arg2, answer.arg3, owner)
    except BodyError as error:
        # Not the request is at fault: it has run, and must not pass for one that was refused.
        message = f"the answer cannot be read: {error}"
        raise PeerFailed(message) from None
    return Reply(answer.arg3, owner)


def _let_out(error: RingpopError) -> CallError:
    """What an error of ours that a handler let out means to its caller: that it may have run.

    Most stand for "not started on" where they come from, but a handler that got one from a call
    of its own has started. `BadRequest`, which nobody repeats, it may raise on purpose.
    """
    if isinstance(error, BadRequest):
        return error
    return PeerFailed(f"the handler let out {type(error).__name__}: {error}")
