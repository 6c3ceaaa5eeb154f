"""Serves the web applications beside a node: tells them the ring, and forwards their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import (
    ApplicationError,
    BadRequest,
    BodyError,
    ConfigError,
    NoOwner,
    PeerFailed,
    ProxyError,
)
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.member.drain import Work
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer
from ringpop_py.route.proxy.entry import (
    ALL_ENDPOINT,
    FOLLOW_ENDPOINT,
    FORWARD_ENDPOINT,
    HERE,
    Follow,
    ReplyHead,
    RingOwner,
    RingReply,
    encode_replies,
    forwarded_in,
    request_for_all,
)
from ringpop_py.route.proxy.failures import encode_failure
from ringpop_py.route.proxy.request import HttpReply, OwnerReply
from ringpop_py.route.proxy.tries import received_options, time_for_parts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.member.ring.hashring import HashRing
    from ringpop_py.net.transport.channel import Channel, IncomingCall
    from ringpop_py.route.proxy.forward import Proxy

FOLLOW_S: Final = 30.0
"""A question for the ring is answered after this long, also if nothing has changed."""
STATUS_MIN: Final = 200
SHARE: Final = 0.8
"""Or after this share of the time that its asker grants."""


class EntryServer:
    """See the module.

    Args:
        mark: returns what `RingReply` has.
        wait_for_change: returns after the next change of the member list.
    """

    def __init__(
        self,
        channel: Channel,
        proxy: Proxy,
        *,
        mark: Callable[[], str],
        ring: Callable[[], HashRing],
        wait_for_change: Callable[[], Awaitable[object]],
    ) -> None:
        self._proxy = proxy
        self._mark = mark
        self._ring = ring
        self._wait_for_change = wait_for_change
        channel.serve(NODE_SERVICE, FOLLOW_ENDPOINT, self._follow)
        channel.serve(NODE_SERVICE, FORWARD_ENDPOINT, self._forward, work=Work.REQUESTS)
        channel.serve(NODE_SERVICE, ALL_ENDPOINT, self._ask_all, work=Work.REQUESTS)

    async def _follow(self, incoming: IncomingCall) -> Answer:
        asked = decode(Follow, incoming.arg3)
        granted_s = min(FOLLOW_S, SHARE * (incoming.deadline - trio.current_time()))
        with trio.move_on_after(max(granted_s, 0)):
            while self._ring().checksum == asked.checksum:
                await self._wait_for_change()
        ring = self._ring()
        owners = tuple(self._owner(*member) for member in ring.members.items())
        told = RingReply(
            self._proxy.application.local,
            self._mark(),
            ring.dialect.name,
            ring.points_count,
            ring.checksum,
            owners,
        )
        return Answer(ok=True, arg3=encode(told))

    def _owner(self, name: str, identity: str) -> RingOwner:
        address = self._proxy.address_of(name)
        return RingOwner(name, identity) if address is None else RingOwner(name, identity, *address)

    async def _forward(self, incoming: IncomingCall) -> Answer:
        try:
            head, request = forwarded_in(incoming.arg2, incoming.arg3)
        except ConfigError as error:
            raise BodyError(str(error)) from None  # it is the sender's fault
        ask = self._proxy.handle_or_proxy if head.may_be_here else self._proxy.proxy
        options = received_options(head, incoming.deadline - trio.current_time())
        try:
            owners = self._proxy.owners_in(head.keyspace)
            reply = await ask(head.key, request, owners=owners, **options)
        except ConfigError as error:
            raise BadRequest(str(error)) from None  # a body that is too long here, or its options
        except (ApplicationError, ProxyError, NoOwner) as error:
            return Answer(ok=False, arg2=encode_failure(error))
        if reply is None:
            return Answer(ok=True, arg2=encode(ReplyHead(self._proxy.application.local, HERE)))
        assert isinstance(reply, HttpReply)
        if reply.status < STATUS_MIN and not reply.stream:
            raise PeerFailed(f"{reply.owner} has answered with the status {reply.status}")
        told = ReplyHead(reply.owner, reply.status, reply.headers, reply.stream)
        return Answer(ok=True, arg2=encode(told), arg3=reply.body)

    async def _ask_all(self, incoming: IncomingCall) -> Answer:
        try:
            head, request = request_for_all(incoming.arg2, incoming.arg3)
        except ConfigError as error:
            raise BodyError(str(error)) from None  # it is the sender's fault
        # The rest of the time is for the answer, if one owner is silent.
        ttl_s = time_for_parts(incoming.deadline - trio.current_time())
        options = received_options(head, ttl_s)
        handle = None if head.may_be_here else self._proxy.application.handle
        try:
            replies = await self._proxy.handle_or_proxy_all(
                head.keys, request, here=handle, **options
            )
        except ConfigError as error:
            raise BadRequest(str(error)) from None
        except NoOwner as error:
            return Answer(ok=False, arg2=encode_failure(error))
        most = self._proxy.application.joint_bytes_max
        sound = [_without_odd_status(reply) for reply in replies]
        return Answer(ok=True, arg3=encode_replies(sound, head.keys, most))


def _without_odd_status(reply: OwnerReply) -> OwnerReply:
    """Return *reply*, or an error if it has a status that stands for something else here."""
    if isinstance(reply.reply, HttpReply) and reply.reply.status < STATUS_MIN:
        why = f"{reply.owner} has answered with the status {reply.reply.status}"
        return OwnerReply(reply.owner, reply.keys, error=PeerFailed(why))
    return reply
