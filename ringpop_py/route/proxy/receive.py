"""The receiving side of handle_or_proxy: serves what members forward, and what clients send."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

import trio

from ringpop_py.base.errors import (
    ApplicationError,
    BadRequest,
    BodyError,
    CallError,
    ConfigError,
    HandlerFailed,
    NoOwner,
    PeerDeclined,
    PeerFailed,
    ProxyError,
    Refused,
)
from ringpop_py.base.logs import log
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.member.drain import Work
from ringpop_py.net.http.stream_calls import STREAM_ENDPOINT, StreamHead
from ringpop_py.net.transport.serving import ANY_ENDPOINT
from ringpop_py.net.wire.calls import NODE_SERVICE, SHARD_KEY_HEADER, Answer
from ringpop_py.route.proxy.failures import decode_bodies, encode_failure, encode_results
from ringpop_py.route.proxy.head import MANY_ENDPOINT, RELAY_ENDPOINT, AnswerHead, Head, RelayHead
from ringpop_py.route.proxy.http import (
    FLOW_ENDPOINT,
    PROXY_ENDPOINT,
    decode_http_head,
    encode_http_reply_head,
)
from ringpop_py.route.proxy.key_groups import KEYS_MAX
from ringpop_py.route.proxy.owners import REFUSED_CHECKSUM
from ringpop_py.route.proxy.request import AppCall, ManyCall, ManyRequest, Request
from ringpop_py.route.proxy.tries import received_options, time_for_parts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from ringpop_py.base.errors import RingpopError
    from ringpop_py.net.transport.channel import Channel, IncomingCall
    from ringpop_py.route.proxy.forward import Proxy


class ProxyServer:
    """Serves what members forward, with the application here; *proxy* routes what clients send."""

    def __init__(self, channel: Channel, proxy: Proxy) -> None:
        self._proxy = proxy
        self._application = proxy.application
        self._counts = proxy.counts
        self._operations = proxy.operations
        serve = partial(channel.serve, proxy.service, handler=self._serve, work=Work.REQUESTS)
        serve(ANY_ENDPOINT)  # which refuses
        self._application.on_handler = serve  # each is counted by itself
        for endpoint in (PROXY_ENDPOINT, FLOW_ENDPOINT):
            channel.serve(NODE_SERVICE, endpoint, self._serve_http, work=Work.REQUESTS)
        channel.serve(NODE_SERVICE, STREAM_ENDPOINT, self._serve_stream)
        channel.serve(NODE_SERVICE, MANY_ENDPOINT, self._serve_many, work=Work.REQUESTS)
        channel.serve(NODE_SERVICE, RELAY_ENDPOINT, self._relay, work=Work.REQUESTS)

    def _serve(self, incoming: IncomingCall) -> Answer | Awaitable[Answer]:
        """Serve an application's call; a handler that is a plain function is called inline."""
        transport_headers = incoming.event.head.headers
        if SHARD_KEY_HEADER in transport_headers:
            return self._serve_sharded(transport_headers[SHARD_KEY_HEADER], incoming)
        head = Head.decode(incoming.arg2)
        if head.route:
            return self._serve_client(head, incoming)
        handler = self._application.handler_for(incoming.endpoint)
        self._check_ownership(head)
        # All refusals come before the handler, so that a refused request certainly did not run.
        deadline = incoming.deadline
        call = AppCall(
            incoming.endpoint, incoming.arg3, head.keys, head.sender, head.headers, deadline
        )
        self._application.admit()
        try:
            result = handler(call)
            # The usual case, without a call; and `isawaitable` takes long.
            if not isinstance(result, bytes) or len(result) > self._application.reply_bytes_max:
                if inspect.isawaitable(result):
                    self._counts.in_flight += 1  # now: others may come before its task begins
                    return self._finish(result, incoming)
                result = self._application.body_of(result, call.endpoint)
        except BaseException as error:  # noqa: BLE001 - looked at there
            return self._failed(error, call.endpoint)
        self._operations.handler.done += 1
        if incoming.timed_from is not None:
            self._operations.handler.seconds.observe(trio.current_time() - incoming.timed_from)
        return Answer(ok=True, arg3=result)

    async def _serve_many(self, incoming: IncomingCall) -> Answer:
        """Serve requests of many keys: route those of a client; handle others, which are ours."""
        head = Head.decode(incoming.arg2)
        if not 0 < len(head.keys) <= KEYS_MAX:
            raise BadRequest(
                f"a message has requests of 1 to {KEYS_MAX} keys, not {len(head.keys)}"
            )
        bodies = decode_bodies(incoming.arg3, len(head.keys))
        try:
            request = ManyRequest(Request(head.endpoint).endpoint, bodies, head.headers)
        except ConfigError as error:
            raise BadRequest(str(error)) from None
        if head.route:
            return await self._route_many(head, request, incoming)
        self._check_ownership(head)
        call = ManyCall(
            head.endpoint, head.keys, bodies, head.sender, head.headers, incoming.deadline
        )
        self._application.admit()
        self._counts.in_flight += 1
        try:
            results = await self._application.results_of(call)
        except BaseException as error:  # noqa: BLE001 - looked at there
            return self._failed(error, call.endpoint, len(bodies))
        finally:
            self._counts.in_flight -= 1
        self._operations.handler.add(results)
        return self._answer_of_many(results)

    async def _route_many(self, head: Head, request: ManyRequest, incoming: IncomingCall) -> Answer:
        ttl_s = time_for_parts(incoming.deadline - trio.current_time())
        options = received_options(head, ttl_s)
        owners = self._proxy.owners_for(head)
        try:
            results = await self._proxy.proxy_many(head.keys, request, owners=owners, **options)
        except ConfigError as error:  # its options
            raise BadRequest(str(error)) from None
        return self._answer_of_many(results)

    def _answer_of_many(self, results: Sequence[bytes | RingpopError]) -> Answer:
        most = self._application.joint_bytes_max
        return Answer(ok=True, arg3=encode_results(results, most))

    async def _finish(self, result: Awaitable[bytes | None], incoming: IncomingCall) -> Answer:
        try:
            body = self._application.body_of(await result, incoming.endpoint)
        except BaseException as error:  # noqa: BLE001 - looked at there
            return self._failed(error, incoming.endpoint)
        finally:
            self._counts.in_flight -= 1
        self._operations.handler.done += 1
        if incoming.timed_from is not None:
            self._operations.handler.seconds.observe(trio.current_time() - incoming.timed_from)
        return Answer(ok=True, arg3=body)

    def _failed(self, error: BaseException, endpoint: str, count: int = 1) -> Answer:
        """Count, and return the answer for, what a handler has raised for so many requests.

        Raises what is not for the caller: the node that has forwarded the request counts it.
        """
        failure = self._application.failure(error, endpoint)
        if not isinstance(failure, ApplicationError):
            raise failure
        self._operations.handler.fail(failure, count)
        if isinstance(failure, HandlerFailed):
            log.error("a handler failed", endpoint=endpoint, exc_info=error)
        return Answer(ok=False, arg2=encode_failure(failure))

    async def _serve_client(self, head: Head, incoming: IncomingCall) -> Answer:
        """Route a client's request to the owner."""
        if not head.keys:
            raise BadRequest("a request to be routed needs a key")
        try:
            request = Request(incoming.endpoint, incoming.arg3, head.headers)
            owners = self._proxy.owners_for(head)
            # The client waits no longer, so a retry after that would be wasted.
            options = received_options(head, incoming.deadline - trio.current_time())
            reply = await self._proxy.proxy(head.keys, request, owners=owners, **options)
        except ConfigError as error:  # the request, or its options
            raise BadRequest(str(error)) from None
        except (ApplicationError, ProxyError, NoOwner) as error:
            # By its kind, the client knows which of our errors it is.
            return Answer(ok=False, arg2=encode_failure(error))
        return Answer(ok=True, arg2=encode(AnswerHead(reply.owner)), arg3=reply.body)

    async def _serve_sharded(self, key: str, incoming: IncomingCall) -> Answer:
        """Route a plain call of TChannel, of a program that knows nothing of us, by its shard key.

        Its arg2 is of its own encoding; handlers do not get it.
        """
        try:
            request = Request(incoming.endpoint, incoming.arg3)
        except ConfigError as error:
            raise BadRequest(str(error)) from None
        deadline_s = incoming.deadline - trio.current_time()
        try:
            reply = await self._proxy.proxy(key, request, deadline_s=deadline_s)
        except ApplicationError as error:
            return Answer(ok=False, arg2=encode_failure(error))
        except (ProxyError, NoOwner) as error:
            # As an error of TChannel, whose codes say whether the call may be repeated.
            kind: type[CallError] = PeerDeclined if error.took_effect == "no" else PeerFailed
            kind = BadRequest if isinstance(error, Refused) else kind
            raise kind(f"{type(error).__name__}: {error}") from None
        return Answer(ok=True, arg3=reply.body)

    async def _serve_http(self, incoming: IncomingCall) -> Answer:
        try:
            request, head = decode_http_head(incoming.arg2, incoming.arg3)
        except ConfigError as error:
            # It is the sender's fault: a ConfigError would blame this node.
            raise BodyError(str(error)) from None
        if len(request.body) > self._application.config.body_bytes_max:
            raise BadRequest(
                f"an HTTP body has at most {self._application.config.body_bytes_max} bytes"
            )
        self._check_ownership(head)
        self._application.admit()
        self._counts.in_flight += 1
        try:
            reply = await self._application.replay(request)
        except ApplicationError as error:
            self._operations.entry.fail(error)
            return Answer(ok=False, arg2=encode_failure(error))
        finally:
            self._counts.in_flight -= 1
        self._operations.entry.end(reply.status)
        if incoming.timed_from is not None:
            self._operations.entry.seconds.observe(trio.current_time() - incoming.timed_from)
        head_back = encode_http_reply_head(reply.status, reply.headers, reply.stream)
        return Answer(ok=True, arg2=head_back, arg3=reply.body)

    async def _serve_stream(self, incoming: IncomingCall) -> Answer:
        return await self._proxy.on_stream(decode(StreamHead, incoming.arg2), incoming.arg3)

    async def _relay(self, incoming: IncomingCall) -> Answer:
        """Pass a client's call on to the member that it names, and the answer back, unchanged."""
        head = decode(RelayHead, incoming.arg2)
        ttl_s = incoming.deadline - trio.current_time()
        return await self._proxy.relay(head.owner, head.endpoint, incoming.arg3, ttl_s)

    def _check_ownership(self, head: Head) -> None:
        # Declined, not passed on: a request is forwarded once, and its sender looks up the owner
        # again.
        message = self._proxy.owners_for(head).refusal(head)
        if message:
            checksums_differ = message.startswith(REFUSED_CHECKSUM)
            self._counts.refused_checksum += checksums_differ
            self._counts.refused_keys += not checksums_differ
            raise PeerDeclined(message)
