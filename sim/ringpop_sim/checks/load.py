"""S12 and S13: messages are bounded, and a cluster at rest sends hardly any."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.base.config.settings import WireLimits
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.messages import Ack, JoinAck, Ping, PingReq, PingReqAck, Sync, SyncAck
from ringpop_py.member.swim.timers import SECOND_US, microseconds
from ringpop_sim.checks import Check
from ringpop_sim.checks.calm import CalmCheck
from ringpop_sim.checks.liveness import agree
from ringpop_sim.units import s, seconds

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.messages import MemberChange, Request, Response
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

ENCODED_EACH: Final = 256
"""One message in this many is encoded to measure its length, because encoding is slow."""
MESSAGE_BYTES: Final = 1024
ITEM_BYTES_MAX: Final = 2048
"""How many bytes a change or a row may take; names, hosts and labels have limits of their own."""
LOOK_US: Final = 5 * s
MESSAGES_PER_PERIOD_MAX: Final = 2.5
"""How many messages a node at rest may send a period: a ping, an answer, and hardly anything else.
If nodes rest (`GossipConfig.quiet`), the period is the longer one."""
MESSAGES_PER_S_MAX: Final = 3.0
"""How many more messages a node at rest may send a second, whatever its period: attempts to join
hosts that are gone, and healing."""


class MessagesBounded(Check):
    """S12: no message has more content than the config allows, or repeats a change too often.

    - With `delta_sync` no message has more than ``changes_max`` changes or ``sync_rows_max``
      rows. Without it no message has more rows than the sender's list.
    - An encoded message is no longer than its contents account for (a sample is encoded).
    - A node sends the same change with no more answers than dissemination allows if all
      processes that ever ran are pingable. Pings do not count: the node does not count pings
      that were not answered, either.
    """

    invariants: ClassVar = ("S12",)

    def begin(self) -> None:
        config = self.world.config
        self._changes_max = config.changes_max if config.delta_sync else None
        self._rows_max = config.sync_rows_max
        self._factor = config.piggyback_factor
        self._bytes_max = WireLimits().control_bytes_max
        self._count = 0
        self._sent: dict[Process, dict[str, tuple[MemberChange, int]]] = {}

    def started(self, process: Process) -> None:
        self._sent[process] = {}

    def fact(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, fx.StatusChanged):
            row = effect.after or effect.before
            assert row is not None
            self._sent[process].pop(row.name, None)  # the next change of this row is a new one

    def duty(self, process: Process, effect: Effect) -> None:
        if type(effect) is fx.CallPeer:
            message: Request | Response = effect.request
        elif type(effect) is fx.AnswerPeer:
            message = effect.response
        else:
            return
        self._count += 1
        kind, count = type(message), 0
        if kind is Ack or kind is PingReqAck or kind is Ping or kind is PingReq:
            changes = message.changes  # type: ignore[union-attr]
            if changes:
                count = len(changes)
                self._limit(process, count, self._changes_max)
                # Of pings, a node does not count those that got no answer.
                if kind is Ack or kind is PingReqAck:
                    self._count_sent(process, changes)
        elif kind is Sync or kind is SyncAck:
            count = len(message.rows)  # type: ignore[union-attr]
            self._limit(process, count, self._rows_max)
        elif kind is JoinAck:
            count = len(message.members)  # type: ignore[union-attr]
            self._limit(process, count, self._rows_max if self._changes_max else None)
        if self._count % ENCODED_EACH == 0:
            self._measure(process, effect, message, count)

    def _limit(self, process: Process, count: int, limit: int | None) -> None:
        most = len(process.node.members) + 1 if limit is None else limit
        if count > most:
            self.broke("S12", f"{process.name} puts {count} rows into a message, not {most}")

    def _count_sent(self, process: Process, changes: tuple[MemberChange, ...]) -> None:
        sent = self._sent[process]
        for change in changes:
            name = change.member.name
            before = sent.get(name)
            # Dissemination sends the same object again; an equal one is a new change.
            count = before[1] + 1 if before is not None and before[0] is change else 1
            sent[name] = change, count
            if count > self._factor:  # no limit is lower, so most changes need no logarithm
                self._limit_sent(process, name, count)

    def _limit_sent(self, process: Process, name: str, count: int) -> None:
        members = len(self.world.processes) + len({name for name, _ in self.world.lies})
        most = self._factor * max(1, math.ceil(math.log10(members + 1)))
        if count == most + 1:  # once, and not again with each further answer
            self.broke("S12", f"{process.name} sent one change of {name} with {count} answers")

    def _measure(
        self,
        process: Process,
        effect: fx.CallPeer | fx.AnswerPeer,
        message: Request | Response,
        count: int,
    ) -> None:
        codec = self.world.exchange.coding.codec
        if isinstance(effect, fx.CallPeer):
            body = codec.encode_request(effect.request)
        else:
            body = codec.encode_response(effect.response)
        allowed = MESSAGE_BYTES + count * ITEM_BYTES_MAX
        if isinstance(message, Sync):
            allowed += len(message.sums)  # not rows: they grow with the number of buckets
        if len(body) > min(allowed, self._bytes_max):
            what = f"{type(message).__name__} of {process.name}"
            self.broke("S12", f"a {what} with {count} rows has {len(body)} bytes")


class RestIsQuiet(CalmCheck):
    """S13: in a steady state no change waits, no lists are sent, and the load is constant.

    A state is steady if the world has been calm (`Calm`) and no row has changed for as long as
    changes are repeated, and all live nodes agree. Then, between two looks, no change waits at
    any node, no list is synced, and each node sends at most a ping and an answer a period, and a
    few more messages a second, whatever the size of the cluster.

    Exempt: a node without a peer keeps its changes.
    """

    invariants: ClassVar = ("S13",)

    def begin(self) -> None:
        super().begin()
        world = self.world
        config = world.config
        rides = config.piggyback_factor * max(1, math.ceil(math.log10(2 * world.plan.nodes)))
        period_us = microseconds(config.period_s)
        rests = world.dialect.extends and config.quiet
        self._period_us = microseconds(config.quiet_period_s) if rests else period_us
        self._settles_us = 2 * rides * period_us + self._calm.digest_us
        self._changed_at = 0
        self._before: tuple[int, int, dict[Process, int]] | None = None
        world.push(LOOK_US, self._look)

    def fact(self, _process: Process, effect: Effect) -> None:
        if isinstance(effect, fx.StatusChanged):
            self._changed_at = self.world.now

    def _look(self, _argument: object) -> None:
        world, before = self.world, self._before
        world.push(world.now + LOOK_US, self._look)
        # Counts from before an unsteady time say nothing about rest.
        self._before = None
        steady = min(self._calm.lasts_us, world.now - self._changed_at) > self._settles_us
        if not steady or not agree(world.running, wholly=True):
            return
        if before is None:
            self._nothing_waits()
        else:
            self._nothing_synced(before[2])
            self._load(world.now - before[0], world.exchange.message_count - before[1])
        self._before = world.now, world.exchange.message_count, _syncs(world)

    def _nothing_waits(self) -> None:
        for process in self.world.at.values():
            node = process.node
            waiting = node._rows.dissemination.pending()  # noqa: SLF001 - only this oracle needs it
            if waiting and node.members.pingable_count:
                names = ", ".join(change.member.name for change in waiting[:3])
                self.broke("S13", f"at rest, {process.name} still has changes of {names} to send")

    def _nothing_synced(self, before: dict[Process, int]) -> None:
        for process, count in _syncs(self.world).items():
            if count > before.get(process, count):  # a new process has nothing to compare with
                self.broke("S13", f"at rest, {process.name} synced its list")

    def _load(self, elapsed_us: int, messages: int) -> None:
        most = elapsed_us * (
            MESSAGES_PER_PERIOD_MAX / self._period_us + MESSAGES_PER_S_MAX / SECOND_US
        )
        each = messages / max(1, len(self.world.at))
        if each > most:
            for_s = f"{seconds(elapsed_us):.0f} s"
            self.broke("S13", f"at rest, each node sent {each:.0f} messages in {for_s}")


def _syncs(world: World) -> dict[Process, int]:
    """Return how often each live process sent its list, or asked for another's."""
    found = {}
    for process in world.at.values():
        counts = process.node.counts
        found[process] = counts.full_syncs + counts.reverse_full_syncs + counts.delta_syncs
    return found
