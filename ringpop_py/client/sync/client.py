# Made from client/aio/client.py by `python -m tests.twins`: change that one.
"""The synchronous client: for scripts, WSGI applications and Spark's workers. No trio.

Each thread has one connection to the daemon.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Unpack, overload

from ringpop_py.base.arguments import checked_seconds, routed_key
from ringpop_py.base.errors import CallError, PeerFailed
from ringpop_py.client import calls
from ringpop_py.client.calls import ManyCalls
from ringpop_py.client.lines.blocking import Lines, now
from ringpop_py.route.proxy.key_groups import KEYS_MAX
from ringpop_py.route.proxy.request import Reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from ringpop_py.base.errors import RingpopError
    from ringpop_py.client.calls import RingSnapshot
    from ringpop_py.client.lines.blocking import Pending
    from ringpop_py.net.wire.calls import Answer, Call
    from ringpop_py.route.proxy.key_groups import ManyMessage
    from ringpop_py.route.proxy.request import (
        AnyReply,
        AnyRequest,
        Headers,
        HttpReply,
        HttpRequest,
        OwnerReply,
        Request,
        RequestOptions,
    )
    from ringpop_py.state.leaders.lead import Lead

MESSAGES_MAX: Final = 4
"""So many messages of `proxy_many` are under way at a time."""


class Client(Lines):
    """Calls to the daemon at *peer*; by default to the one of this host. See `BaseClient`."""

    def call(self, call: Call) -> Answer:
        """Send *call* and wait for its answer.

        Raises:
            CallError: one of its subclasses; `took_effect` says whether the call may have run.
        """
        return self.begin(call).result()

    # The node.

    def admin(self, endpoint: str, body: object = None, *, timeout_s: float | None = None) -> Any:  # noqa: ANN401 - a plain value, by endpoint
        """Return the answer of the node's own *endpoint*.

        Raises:
            ApplicationError: if the node refused the request.
            CallError: if there was no answer.
        """
        ttl_s = self.timeout_s if timeout_s is None else timeout_s
        answer = self.call(calls.admin_call(endpoint, body, ttl_s))
        return calls.admin_value(answer, endpoint, self.peer)

    def lookup(self, key: str) -> str:
        """Return the name of the member that owns *key*, as this daemon sees the ring."""
        asked = {"key": routed_key(key)}
        return calls.owner_in(self.admin("/admin/lookup", asked))

    def ring(self) -> RingSnapshot:
        """Return the daemon's ring, to look up keys here."""
        return calls.ring_in(self.admin("/admin/ring"))

    def leader(
        self, name: str, *, ttl_s: float = 10.0, above: int = 0
    ) -> AbstractContextManager[Lead]:
        """Hold *name* for the block, which waits until nobody else does; see `Ringpop.leader`.

        The daemon needs a store. The name is lost if no beat gets through for *ttl_s*, as when this
        daemon ends. Then the block is cancelled in programs with an event loop. In others a thread
        beats, and the block itself asks ``lead.lost`` (an Event) or calls ``lead.check()``;
        LeadershipLost is raised at its end, unless it has raised an error of its own.

        Raises:
            ConfigError: an argument cannot be used, or the daemon has no store.
            LeadershipLost: the name was lost before the end of the block.
            CallError: the daemon does not serve leaders.
        """
        from ringpop_py.client.leading import leading  # noqa: PLC0415 - on demand

        return leading(self, name, ttl_s, above)

    # The application.

    @overload
    def proxy(
        self,
        key: str | Sequence[str],
        request: Request,
        *,
        service: str = ...,
        keyspace: str = ...,
        **options: Unpack[RequestOptions],
    ) -> Reply: ...

    @overload
    def proxy(
        self,
        key: str,
        request: HttpRequest,
        *,
        keyspace: str = ...,
        **options: Unpack[RequestOptions],
    ) -> HttpReply: ...

    def proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        *,
        service: str = "app",
        keyspace: str = "",
        **options: Unpack[RequestOptions],
    ) -> AnyReply:
        """Have this daemon forward *request* to the owner of *key*; return the owner's reply.

        Args:
            keyspace: its member that serves the partition of *key* is the owner; see
                `Keyspace.handle_or_proxy`. By default the ring says who owns the key.
            options: see `RequestOptions`; without ``deadline_s``, the deadline is `timeout_s`.

        Raises:
            ApplicationError: if the owner's handler answered with it.
            ProxyError: if the daemon could not forward it; as in `Proxy.handle_or_proxy`.
            CallError: if the daemon itself did not answer.
        """
        call = calls.proxy_call(
            key,
            request,
            service=service,
            options=options,
            timeout_s=self.timeout_s,
            keyspace=keyspace,
        )
        reply = calls.proxy_reply(self.call(call), request, self.peer)
        if reply is None:
            raise PeerFailed(f"{self.peer} leaves the answer to us, and was not asked to")
        return reply

    def proxy_many(
        self,
        endpoint: str,
        keys: Iterable[str],
        bodies: Iterable[bytes],
        *,
        headers: Headers = (),
        keys_max: int = KEYS_MAX,
        **options: Unpack[RequestOptions],
    ) -> list[bytes | RingpopError]:
        """Have the owner of each key answer the request with its body; many travel as one.

        See `Ringpop.proxy_many`. If this daemon cannot be reached, that is the result of each.

        Raises:
            ConfigError: an argument or an option is not what it has to be.
        """
        many = ManyCalls(
            endpoint,
            keys,
            bodies,
            headers=headers,
            keys_max=keys_max,
            options=options,
            peer=self.peer,
        )
        deadline_at = now() + options.get("deadline_s", self.timeout_s)
        under_way: deque[tuple[ManyMessage, Pending]] = deque()
        try:
            for message in many.messages:
                if len(under_way) == MESSAGES_MAX:
                    _take_one(many, under_way)
                try:
                    call = many.call_for(message, deadline_at - now())
                    pending = self.begin(call, more=bool(under_way))
                    under_way.append((message, pending))
                except CallError as error:
                    many.failed(message, error)
            while under_way:
                _take_one(many, under_way)
        finally:
            for _, pending in under_way:
                pending.close()
        return many.results

    def handle_or_proxy(
        self,
        key: str,
        request: HttpRequest,
        *,
        keyspace: str = "",
        **options: Unpack[RequestOptions],
    ) -> HttpReply | None:
        """Return None if the host of this daemon owns *key*, and otherwise as `proxy` does.

        Only of HTTP: the application that asks is the one that answers on its own host.
        """
        call = calls.proxy_call(
            key,
            request,
            service="",
            options=options,
            timeout_s=self.timeout_s,
            may_be_here=True,
            keyspace=keyspace,
        )
        reply = calls.proxy_reply(self.call(call), request, self.peer)
        assert not isinstance(reply, Reply)
        return reply

    def handle_or_proxy_all(
        self, keys: Iterable[str], request: AnyRequest, **options: Unpack[RequestOptions]
    ) -> list[OwnerReply]:
        """Have this daemon ask each owner of *keys*, all at the same time.

        An `HttpRequest` has no reply where the daemon's own host is the owner: the application
        that asks answers for these keys. A `Request` is answered there by the daemon's handler.

        Raises:
            NoOwner: if no key has an owner.
            CallError: if the daemon itself did not answer.
        """
        wanted, call = calls.all_owners_call(
            keys, request, options=options, timeout_s=self.timeout_s
        )
        return calls.owner_replies(self.call(call), wanted, request, self.peer)

    def invoke(
        self, request: Request, *, service: str = "app", timeout_s: float | None = None
    ) -> bytes:
        """Call the application's handler on this very node, whatever it owns.

        Raises:
            ApplicationError: if the handler answered with it.
            CallError: if there was no answer.
        """
        answer = self.call(calls.invoke_call(service, request, self._ttl_s(timeout_s)))
        if not answer.ok:
            raise calls.error_in(answer)
        return answer.arg3

    def relay(self, owner: str, request: Request, *, timeout_s: float | None = None) -> Pending:
        """Begin a call of the handler at the member *owner*, through this daemon.

        Raises:
            CallError: if the daemon cannot be reached.
        """
        return self.begin(calls.relay_call(owner, request, self._ttl_s(timeout_s)))

    def _ttl_s(self, given: float | None) -> float:
        return self.timeout_s if given is None else checked_seconds(given, "deadline_s")


def _take_one(many: ManyCalls, under_way: deque[tuple[ManyMessage, Pending]]) -> None:
    message, pending = under_way.popleft()
    try:
        many.answered(message, pending.result())
    except CallError as error:
        many.failed(message, error)
