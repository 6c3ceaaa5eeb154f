"""Nodes that do nothing but gossip of keyspaces, in virtual time, on a network that loses calls."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.placement.gossip import CALL_S, Known, TableGossip
from ringpop_py.state.placement.table import PartitionStatus, Table, TableRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.state.placement.definition import Mode
    from ringpop_py.state.placement.gossip import GossipAsk

Facts = tuple[tuple[bool, int, bool, int], list[tuple[int, PartitionStatus, str, str]]]
SECOND: Final = 1_000_000
LATE_S_MAX: Final = 5


class Gossiper:
    """A node's keyspaces, and its gossip of them. It never knows less than before (`check`)."""

    def __init__(
        self,
        name: str,
        others: Sequence[str] = (),
        *,
        store_id: str = "s",
        every_us: int | None = None,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.others = others
        self.gossip = TableGossip(
            self, lambda: self.others, random.Random(seed), store_id=store_id, every_us=every_us
        )
        self._known: dict[str, Known] = {}
        self._facts_before: dict[str, Facts] = {}

    def create(self, name: str, *, mode: Mode = "durable", generation: int = 1) -> Table:
        definition = Definition(name=name, partitions=8, mode=mode)
        self.learn_keyspace(definition, generation, dropped=False)
        return self.table(name)

    def drop(self, name: str) -> None:
        """Learn that a keyspace was dropped, and tell nobody."""
        known = self._known[name]
        self.learn_keyspace(known.definition, known.generation, dropped=True)

    def table(self, name: str) -> Table:
        table = self._known[name].table
        assert table is not None
        return table

    def claim(self, name: str, partition: int) -> TableRow:
        """Change a row, and tell nobody."""
        table = self.table(name)
        row = table[partition]
        table.put(row.assigned(self.name).claimed(self.name, row.epoch + 1))
        return table[partition]

    def facts(self) -> dict[str, Facts]:
        """What it knows of each keyspace: its generation and mode, and each row."""
        return {
            name: (of.order, [row.facts for row in of.table or ()])
            for name, of in self._known.items()
        }

    def check(self) -> None:
        before, self._facts_before = self._facts_before, self.facts()
        for name, (order, rows) in before.items():
            order_now, rows_now = self._facts_before[name]
            assert order <= order_now, f"{self.name} has un-learnt {name}"
            if order == order_now:
                kept = [row <= now for row, now in zip(rows, rows_now, strict=True)]
                assert all(kept), f"{self.name} has un-learnt a row of {name}"

    # What gossip reads and changes.

    def known(self) -> dict[str, Known]:
        return self._known

    def learn_keyspace(self, definition: Definition, generation: int, *, dropped: bool) -> None:
        known = self._known.get(definition.name)
        table = Table(definition.name, generation, definition.partitions)
        if known is not None and known.generation == generation and known.table is not None:
            table = known.table  # the definition alone was revised
        entry = Known(definition, generation, dropped, None if dropped else table)
        if known is None or known.order < entry.order:
            self._known[definition.name] = entry

    def learn_rows(self, name: str, rows: list[TableRow]) -> None:
        self.table(name).merge(rows)

    def hint_assignment(self, name: str, version: int) -> None:
        known = self._known[name]
        self._known[name] = replace(known, assignment=max(known.assignment, version))


class Network:
    """Carries calls and pings between nodes; each second each node pings the next of a rotation.

    Attributes:
        loss: the part of messages that are lost; another such part is late, and another is doubled.
        pings: whether pings carry digests.
        calls: how many calls were made.
    """

    def __init__(self, nodes: Sequence[Gossiper], seed: int = 0) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.loss = 0.0
        self.pings = True
        self.calls = 0
        self.now = 0
        self._rng = random.Random(seed)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._deadlines: set[tuple[str, int]] = set()
        for node in nodes:
            node.others = sorted(set(self.nodes) - {node.name})
            node.gossip.start(0)
            self.after(self._rng.randrange(SECOND), partial(self._ping, node, []))

    def after(self, pause_us: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + pause_us, next(self._numbers), act))

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        while self._events and self._events[0][0] <= until:
            self.now, _, act = heapq.heappop(self._events)
            act()
        self.now = until

    def spread(self, node: Gossiper, name: str, rows: list[TableRow]) -> None:
        generation = node.known()[name].generation
        node.gossip.spread(name, generation, rows, self.now)
        self._keep_deadline(node)

    def _keep_deadline(self, node: Gossiper) -> None:
        node.check()
        deadline = node.gossip.next_deadline
        if deadline is not None and (node.name, deadline) not in self._deadlines:
            self._deadlines.add((node.name, deadline))
            self.after(max(0, deadline - self.now), partial(self._advance, node, deadline))

    def _advance(self, node: Gossiper, deadline: int) -> None:
        self._deadlines.discard((node.name, deadline))
        self._carry_out(node, node.gossip.advance(self.now))

    def _carry_out(self, node: Gossiper, asks: list[GossipAsk]) -> None:
        for ask in asks:
            self.calls += 1
            self.after(round(CALL_S * SECOND), partial(self._done, node, ask.token, None))
            self._send(partial(self._deliver, node, ask))
        self._keep_deadline(node)

    def _deliver(self, caller: Gossiper, ask: GossipAsk) -> None:
        peer = self.nodes[ask.to]
        answer = peer.gossip.heard(ask.body)
        self._keep_deadline(peer)
        self._send(partial(self._done, caller, ask.token, answer))

    def _done(self, node: Gossiper, token: int, answer: bytes | None) -> None:
        self._carry_out(node, node.gossip.done(token, answer, self.now))

    def _ping(self, node: Gossiper, rotation: list[str]) -> None:
        if not rotation:
            rotation = list(node.others)
            self._rng.shuffle(rotation)
        peer = self.nodes[rotation.pop()]
        if self.pings and self._rng.random() >= self.loss:
            digest = node.gossip.digest
            if digest != peer.gossip.digest:
                peer.gossip.differs(node.name, digest)
                self._keep_deadline(peer)
        self.after(SECOND, partial(self._ping, node, rotation))

    def _send(self, act: Callable[[], None]) -> None:
        chance, loss = self._rng.random(), self.loss
        if chance < loss:
            return
        is_late = chance < 2 * loss
        self.after(self._rng.randrange(LATE_S_MAX * SECOND if is_late else 50_000), act)
        if 2 * loss < chance < 3 * loss:
            self.after(self._rng.randrange(LATE_S_MAX * SECOND), act)
