"""Runs the gossip of keyspaces of one node: calls peers, and keeps its deadlines."""

from __future__ import annotations

import random
import secrets
from math import inf
from typing import TYPE_CHECKING, NoReturn

import trio

from ringpop_py.base.errors import CallError
from ringpop_py.base.values.requests import GOSSIP
from ringpop_py.member.swim.member import Status
from ringpop_py.member.swim.timers import SECOND_US, microseconds
from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.placement.gossip import CALL_S, TableGossip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.state.placement.gossip import GossipAsk, GossipTarget
    from ringpop_py.state.placement.table import TableRow
    from ringpop_py.state.shares.view import NodeView

REACHABLE = frozenset({Status.ALIVE, Status.SUSPECT, Status.LEAVE})


class GossipDriver:
    """Carries out what the `TableGossip` of *node* decides."""

    def __init__(self, node: NodeView, target: GossipTarget, *, store_id: str) -> None:
        self._node = node
        rng = random.Random(secrets.randbits(64))
        every_us = None
        if node.config.dialect != "native":
            every_us = microseconds(node.config.gossip.quiet_period_s)
        self._gossip = TableGossip(target, self._others, rng, store_id=store_id, every_us=every_us)
        self.heard = self._gossip.heard
        self._wake = trio.Event()

    @property
    def digest(self) -> int:
        """See `TableGossip.digest`."""
        return self._gossip.digest

    def spread(self, name: str, generation: int, rows: Iterable[TableRow]) -> None:
        """See `TableGossip.spread`."""
        self._gossip.spread(name, generation, rows, now_us())
        self._wake.set()

    def differs(self, other: str, digest: int) -> None:
        """See `TableGossip.differs`."""
        self._gossip.differs(other, digest)
        self._wake.set()

    async def ask(self) -> None:
        """Compare with some other members immediately; return when they have answered."""
        await self._carry_out(self._gossip.ask())

    async def run(self) -> NoReturn:
        """Push and compare until cancelled."""
        gossip = self._gossip
        gossip.start(now_us())
        async with trio.open_nursery() as nursery:
            while True:
                for ask in gossip.advance(now_us()):
                    nursery.start_soon(self._call, ask)
                self._wake = trio.Event()
                deadline = gossip.next_deadline
                with trio.move_on_at(inf if deadline is None else deadline / SECOND_US):
                    await self._wake.wait()

    async def _carry_out(self, asks: list[GossipAsk]) -> None:
        async with trio.open_nursery() as nursery:
            for ask in asks:
                nursery.start_soon(self._call, ask)

    async def _call(self, ask: GossipAsk) -> None:
        gossip, answer = self._gossip, None
        try:
            address = self._node.address_of(ask.to)
            if address is not None:
                call = Call(NODE_SERVICE, GOSSIP, b"", ask.body, ttl_s=CALL_S)
                answer = (await self._node.channel.call(address, call)).arg3
        except CallError:
            pass
        finally:
            asks = gossip.done(ask.token, answer, now_us())
            self._wake.set()  # the next comparison has a deadline now
        await self._carry_out(asks)

    def _others(self) -> list[str]:
        ours = self._node.name
        return [m.name for m in self._node.members if m.name != ours and m.status in REACHABLE]
