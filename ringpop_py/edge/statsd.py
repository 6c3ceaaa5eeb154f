"""Counts of a node for statsd, by UDP, under Ringpop's names: docs/monitoring.md lists them.

Nothing is counted for it: what the node counts anyway is read once a second, and sent as what was
added since. Names, types and the address in them are those of Uber's Ringpop.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.logs import log
from ringpop_py.base.metering import CHECKSUM_BITS
from ringpop_py.member.swim.effects import Healed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.node.ringpop import Ringpop

DATAGRAM_BYTES_MAX: Final = 1_432
"""The most bytes of a datagram: with its headers it fits into a packet of Ethernet."""
PERIOD_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class StatsdFigures:
    """What a node has counted until one moment.

    Attributes:
        counts, gauges: by the name of Ringpop.
        pings: how many were answered, and the seconds that these took together.
        ring: the members of the ring.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, int] = field(default_factory=dict)
    pings: tuple[int, float] = (0, 0.0)
    ring: frozenset[str] = frozenset()


def prefix_of(address: Address) -> str:
    """Return what the names of a node at *address* begin with."""
    return f"ringpop.{re.sub(r'[^A-Za-z0-9-]', '_', str(address))}."


def lines_between(before: StatsdFigures, after: StatsdFigures) -> list[str]:
    """Return what happened from *before* to *after*, in lines of statsd without their prefix."""
    counts = {name: count - before.counts.get(name, 0) for name, count in after.counts.items()}
    counts["ring.server-added"] = len(after.ring - before.ring)
    counts["ring.server-removed"] = len(before.ring - after.ring)
    gauges = {**after.gauges, "changes.apply": counts.get("updates", 0)}
    lines = [f"{name}:{count}|c" for name, count in counts.items() if count]
    lines += [f"{name}:{value}|g" for name, value in gauges.items()]
    answered, took_s = (now - then for now, then in zip(after.pings, before.pings, strict=True))
    if answered:  # the mean, once: the rate has statsd count it as often as it was measured
        rate = f"|@{1 / answered:.6f}" if answered > 1 else ""
        lines.append(f"ping:{1_000 * took_s / answered:.3f}|ms{rate}")
    return lines


def datagrams_of(prefix: str, lines: Iterable[str]) -> list[bytes]:
    """Return *lines*, each with its *prefix*, in as few datagrams as hold them in their order."""
    found = [b""]
    for line in lines:
        told = f"{prefix}{line}".encode()
        if found[-1] and len(found[-1]) + 1 + len(told) > DATAGRAM_BYTES_MAX:
            found.append(told)
        else:
            found[-1] += b"\n" + told if found[-1] else told
    return found


class Statsd:
    """Sends the figures of *ringpop* to the statsd at *to*, as long as `run` does."""

    def __init__(self, ringpop: Ringpop, to: Address) -> None:
        self._ringpop = ringpop
        self._to = to
        self._heals: Counter[str] = Counter()
        self._sent = StatsdFigures()
        self._has_failed = False
        ringpop.observe(self._observe)

    def _observe(self, effect: Effect) -> None:
        if isinstance(effect, Healed):
            self._heals["heal.triggered"] += effect.is_run
            self._heals["heal.attempt"] += len(effect.targets) + len(effect.failed)

    async def run(self) -> None:
        """Send what was counted, each second, and a last time when this is cancelled.

        What cannot be sent is lost, and logged once. The host is looked up again after an error.
        """
        there: socket.socket | None = None
        try:
            while True:
                await trio.sleep(PERIOD_S)
                try:
                    there = there or await self._connected()
                    self._send(there)
                except OSError as error:
                    if not self._has_failed:
                        self._has_failed = True
                        text = f"counts cannot be sent to statsd at {self._to}: {error}"
                        log.warning("statsd-not-sent", text=text, address=str(self._to))
                    if there is not None:
                        there.close()
                    there = None
        finally:
            if there is not None:
                with there, suppress(OSError):
                    self._send(there)

    async def _connected(self) -> socket.socket:
        found = await trio.socket.getaddrinfo(*self._to, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        there = socket.socket(family, kind, protocol)
        try:
            there.settimeout(0)  # so what does not fit is an error, and lost
            there.connect(address)
        except OSError:
            there.close()
            raise
        return there

    def _send(self, there: socket.socket) -> None:
        before, self._sent = self._sent, _figures_of(self._ringpop, self._heals)
        prefix = prefix_of(self._ringpop.address)
        for datagram in datagrams_of(prefix, lines_between(before, self._sent)):
            there.send(datagram)


def _figures_of(ringpop: Ringpop, heals: Mapping[str, int]) -> StatsdFigures:
    gossip, proxy = ringpop.node.counts, ringpop.proxying.counts
    ring, round_trips = ringpop.placement.ring, ringpop.driver.reach.round_trips
    counts = {
        "ping.send": gossip.pings_sent,
        "ping.recv": gossip.pings_received,
        "ping-req.send": gossip.ping_reqs_sent,
        "ping-req.recv": gossip.ping_reqs_received,
        "damp-req.recv": gossip.damp_reqs_received,
        "join.recv": gossip.joins_received,
        "join.complete": int(ringpop.ready),
        "join.succeeded": int(ringpop.ready),
        "full-sync": gossip.full_syncs,
        "full-sync.reverse": gossip.reverse_full_syncs,
        "full-sync.reverse-omitted": gossip.reverse_full_syncs_omitted,
        "refuted-update": gossip.refutations,
        "updates": gossip.changes_applied,
        "ring.changed": ringpop.placement.changes_count,
        "ring.checksum-computed": ringpop.placement.changes_count,
        "requestProxy.egress": proxy.proxied,
        "requestProxy.ingress": proxy.served + proxy.refused_keys + proxy.refused_checksum,
        "requestProxy.send.success": proxy.answered,
        "requestProxy.send.error": proxy.failures,
        "requestProxy.retry.attempted": proxy.retries,
        "requestProxy.checksumsDiffer": proxy.refused_checksum,
        **heals,
    }
    for status, count in ringpop.reporter.status_changes.items():
        counts[f"membership-update.{status.label}"] = count
        counts[f"membership-set.{status.label}"] = count
    gauges = {
        "num-members": sum(member.status.reachable for member in ringpop.members),
        "checksum": ringpop.checksum & CHECKSUM_BITS,
        "ring.checksum": ring.checksum & CHECKSUM_BITS,
        "requestProxy.inflight": proxy.in_flight,
    }
    pings = sum(round_trips.counts), round_trips.total_s
    return StatsdFigures(counts, gauges, pings, frozenset(ring.owners))
