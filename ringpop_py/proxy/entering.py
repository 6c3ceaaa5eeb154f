"""Serves the web applications beside a node: tells them the ring, and forwards their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.drain import Work
from ringpop_py.errors import (
    ApplicationError,
    BadRequest,
    BodyError,
    ConfigError,
    NoOwner,
    PeerFailed,
    ProxyError,
)
from ringpop_py.proxy.entry import (
    FOLLOW_ENDPOINT,
    FORWARD_ENDPOINT,
    HERE,
    Follow,
    ReplyHead,
    RingOwner,
    RingTold,
    forwarded_in,
)
from ringpop_py.proxy.head import PROXY_ERROR_PREFIX, encode_application_error, encode_error
from ringpop_py.proxy.request import HttpReply
from ringpop_py.values.declared import decode, encode
from ringpop_py.wire.calls import NODE_SERVICE, Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.proxy.forward import Proxy
    from ringpop_py.ring.hashring import HashRing
    from ringpop_py.transport.channel import Channel, IncomingCall

FOLLOW_S: Final = 30.0
"""A question for the ring is answered after this long, also if nothing has changed."""
STATUS_MIN: Final = 200
SHARE: Final = 0.8
"""Or after this share of the time that its asker grants."""


class EntryServer:
    """See the module.

    Args:
        mark: see `RingTold`.
        wait_for_change: returns after the next change of the member list.
    """

    def __init__(
        self,
        channel: Channel,
        proxy: Proxy,
        *,
        mark: str,
        ring: Callable[[], HashRing],
        wait_for_change: Callable[[], Awaitable[object]],
    ) -> None:
        self._proxy = proxy
        self._mark = mark
        self._ring = ring
        self._wait_for_change = wait_for_change
        channel.serve(NODE_SERVICE, FOLLOW_ENDPOINT, self._follow)
        channel.serve(NODE_SERVICE, FORWARD_ENDPOINT, self._forward, work=Work.REQUESTS)

    async def _follow(self, incoming: IncomingCall) -> Answer:
        asked = decode(Follow, incoming.arg3)
        granted_s = min(FOLLOW_S, SHARE * (incoming.deadline - trio.current_time()))
        with trio.move_on_after(max(granted_s, 0)):
            while self._ring().checksum == asked.checksum:
                await self._wait_for_change()
        ring = self._ring()
        owners = tuple(RingOwner(name, identity) for name, identity in ring.members.items())
        told = RingTold(
            self._proxy.application.local,
            self._mark,
            ring.dialect.name,
            ring.points_count,
            ring.checksum,
            owners,
        )
        return Answer(ok=True, arg3=encode(told))

    async def _forward(self, incoming: IncomingCall) -> Answer:
        try:
            head, request = forwarded_in(incoming.arg2, incoming.arg3)
        except ConfigError as error:
            raise BodyError(str(error)) from None  # it is the sender's fault
        ask = self._proxy.handle_or_proxy if head.may_be_here else self._proxy.proxy
        try:
            reply = await ask(
                head.key,
                request,
                idempotent=head.idempotent,
                deadline_s=incoming.deadline - trio.current_time(),
            )
        except ConfigError as error:
            raise BadRequest(str(error)) from None  # a body that is too long here
        except ApplicationError as error:
            return Answer(ok=False, arg2=encode_application_error(error))
        except (ProxyError, NoOwner) as error:
            kind = f"{PROXY_ERROR_PREFIX}{type(error).__name__}"
            return Answer(ok=False, arg2=encode_error(kind, str(error)))
        if reply is None:
            return Answer(ok=True, arg2=encode(ReplyHead(self._proxy.application.local, HERE)))
        assert isinstance(reply, HttpReply)
        if reply.status < STATUS_MIN:
            raise PeerFailed(f"{reply.owner} has answered with the status {reply.status}")
        told = ReplyHead(reply.owner, reply.status, reply.headers)
        return Answer(ok=True, arg2=encode(told), arg3=reply.body)
