"""A small world for nodes: a heap of events in virtual microseconds, and a network in memory.

It carries `CallPeer` and `AnswerPeer` with a delay, each as the bytes of the dialect's codec.
The same seed gives the same trace.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringpop_py.address import Address
from ringpop_py.config.settings import GossipConfig
from ringpop_py.dialect import NATIVE, Dialect
from ringpop_py.swim.effects import AnswerPeer, CallPeer, Effect, HostsWanted, StatusChanged
from ringpop_py.swim.member import Labels, Member, Status
from ringpop_py.swim.messages import (
    Answered,
    Asked,
    Disconnected,
    Failed,
    FailureReason,
    Input,
    Refusal,
    Request,
    Response,
)
from ringpop_py.swim.node import Node
from ringpop_py.wire.codec import codec_for, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WALL_MS = 1_700_000_000_000
SECOND_US = 1_000_000
DELAY_US = (200, 900)


def address_of(index: int) -> Address:
    """Each node has a machine of its own."""
    return Address(f"10.0.{index // 250}.{index % 250 + 1}", 3000)


def advance_to(node: Node, until: int) -> list[Effect]:
    """Let time pass for *node* alone, each deadline when it comes; what it does meanwhile."""
    effects: list[Effect] = []
    while (at := node.next_deadline) is not None and at < until:
        effects += node.advance(at)
    return effects + node.advance(until)


@dataclass(slots=True)
class Host:
    """A running process: a node, and what waits for it while it is paused."""

    node: Node
    address: Address
    paused: bool = False
    wakes_at: int | None = None
    inbox: list[Input] = field(default_factory=list)


@dataclass(slots=True)
class OpenCall:
    """A request under way: who asked whom, and what."""

    caller: Host
    call_id: int
    to: Address
    request: Request


class World:
    """Hosts by address; a host that is not there refuses connections."""

    def __init__(
        self, dialect: Dialect = NATIVE, seed: int = 0, config: GossipConfig | None = None
    ) -> None:
        self.dialect = dialect
        self.config = config or GossipConfig()
        self.codec = codec_for(dialect)
        self.now = 0
        self.hosts: dict[Address, Host] = {}
        self.trace: list[tuple[int, Address, Effect]] = []
        self.silent: set[Address] = set()
        self.cuts: set[frozenset[Address]] = set()
        self.one_way_cuts: set[tuple[Address, Address]] = set()
        self.aliases: dict[Address, Address] = {}
        self.discovery: Callable[[int], Sequence[int]] | None = None
        self.refusals: set[tuple[Address, Address]] = set()
        self._rng = random.Random(f"world {seed}")
        self._seed = seed
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._event_count = 0
        self._start_count = 0
        self._open: dict[int, OpenCall] = {}

    # What a test does.

    def start(
        self,
        index: int,
        seeds: Sequence[int] = (),
        *,
        name: str | None = None,
        cluster: str = "test",
        ring_points: int = 100,
        labels: Labels = (),
        clock_ms: int = 0,
    ) -> Node:
        """Start a process at the address of *index*; its wall clock is off by *clock_ms*."""
        address = address_of(index)
        assert address not in self.hosts
        self._start_count += 1
        incarnation = WALL_MS + self.now // 1000 + clock_ms
        node = Node(
            Member(name or str(address), *address, incarnation, labels=labels),
            cluster=cluster,
            ring_points=ring_points,
            dialect=self.dialect,
            config=self.config,
            rng=random.Random(f"node {self._seed} {self._start_count}"),
            now=self.now,
        )
        host = self.hosts[address] = Host(node, address)
        self.silent.discard(address)
        self._carry_out(host, node.start([address_of(i) for i in seeds], self.now))
        return node

    def start_cluster(self, count: int) -> list[Node]:
        """Start *count* nodes at once, each with all of them as hosts; run until they agree."""
        nodes = [self.start(i, range(count)) for i in range(count)]
        self.run_until(self.converged, within_s=20)
        return nodes

    def crash(self, index: int, *, silently: bool = False) -> None:
        """End a process as kill -9 does; *silently* as loss of power does, without a reset."""
        address = address_of(index)
        del self.hosts[address]
        if silently:
            self.silent.add(address)
            return
        for token, call in list(self._open.items()):
            if call.to == address:
                del self._open[token]
                self._later(self._fail, call, "lost")
        for host in self.hosts.values():
            self._later(self._deliver, host, Disconnected(address))

    def pause(self, index: int) -> None:
        """Stop a process as SIGSTOP does."""
        self.hosts[address_of(index)].paused = True

    def resume(self, index: int) -> None:
        """Let a paused process go on: what has arrived comes first, then the time."""
        host = self.hosts[address_of(index)]
        host.paused = False
        inbox, host.inbox = host.inbox, []
        for message in inbox:
            self._carry_out(host, host.node.receive(message, self.now))
        self._carry_out(host, host.node.advance(self.now))

    def cut(self, one: int, other: int) -> None:
        """Let nothing through between two addresses."""
        self.cuts.add(frozenset([address_of(one), address_of(other)]))

    def cut_one_way(self, one: int, other: int) -> None:
        """Let nothing through from the one address to the other."""
        self.one_way_cuts.add((address_of(one), address_of(other)))

    def refuse(self, caller: int, to: int) -> None:
        """Refuse each connection of *caller* to *to*, as a firewall does that answers."""
        self.refusals.add((address_of(caller), address_of(to)))

    def alias(self, alias: int, index: int) -> None:
        """Let the address of *alias* lead to the process at *index* as well."""
        self.aliases[address_of(alias)] = address_of(index)

    def split(self, *sides: Sequence[int]) -> None:
        """Let nothing through between any two of *sides*."""
        for here, there in itertools.combinations(sides, 2):
            for one, other in itertools.product(here, there):
                self.cut(one, other)

    def heal(self) -> None:
        """Mend all cuts, and refuse nothing."""
        self.cuts.clear()
        self.one_way_cuts.clear()
        self.refusals.clear()

    def do(self, index: int, act: Callable[[Node, int], list[Effect]]) -> None:
        """Carry out what an operator's call of the node at *index* gives."""
        host = self.hosts[address_of(index)]
        self._carry_out(host, act(host.node, self.now))

    def run(self, seconds: float) -> None:
        """Let that much time pass."""
        end = self.now + round(seconds * SECOND_US)
        while self._events and self._events[0][0] <= end:
            self._step()
        self.now = end

    def run_until(self, condition: Callable[[], bool], *, within_s: float) -> float:
        """Run until *condition* holds. Returns: the seconds it took."""
        begin, end = self.now, self.now + round(within_s * SECOND_US)
        while not condition():
            assert self._events, "nothing will happen any more"
            assert self._events[0][0] <= end, f"not within {within_s} s"
            self._step()
        return (self.now - begin) / SECOND_US

    # What a test looks at.

    @property
    def nodes(self) -> list[Node]:
        """The nodes of all running processes."""
        return [host.node for host in self.hosts.values()]

    def converged(self) -> bool:
        """Whether all running nodes see exactly each other alive, with one checksum."""
        return len({node.members.checksum for node in self.nodes}) == 1 and all(
            node.ready and sum(m.status is Status.ALIVE for m in node.members) == len(self.hosts)
            for node in self.nodes
        )

    def status(self, observer: int, subject: int) -> Status | None:
        """What the node at *observer* believes of the one at *subject*."""
        for member in self.hosts[address_of(observer)].node.members:
            if member.address == address_of(subject):
                return member.status
        return None

    def all_see(self, subject: int, status: Status | None) -> Callable[[], bool]:
        """Whether all other running nodes believe *status* of the one at *subject*."""
        others = [a for a in range(300) if address_of(a) in self.hosts and a != subject]
        return lambda: all(self.status(other, subject) is status for other in others)

    def effects(self, index: int, *kinds: type) -> list[tuple[int, Effect]]:
        """When which effects of *kinds* came from the address of *index*."""
        address = address_of(index)
        return [(at, e) for at, who, e in self.trace if who == address and isinstance(e, kinds)]

    def calls(self, index: int, kind: type) -> list[tuple[int, CallPeer]]:
        """When which requests of *kind* were sent by the address of *index*."""
        return [
            (at, effect)
            for at, effect in self.effects(index, CallPeer)
            if isinstance(effect, CallPeer) and isinstance(effect.request, kind)
        ]

    def changes(self, index: int, subject: int) -> list[tuple[int, StatusChanged]]:
        """When and how the view of *subject* changed at the address of *index*."""
        return [
            (at, effect)
            for at, effect in self.effects(index, StatusChanged)
            if isinstance(effect, StatusChanged)
            and (row := effect.after or effect.before)
            and row.address == address_of(subject)
        ]

    # The network.

    def _step(self) -> None:
        self.now, _, event = heapq.heappop(self._events)
        event()

    def _at(self, at: int, event: Callable[[], None]) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (at, self._event_count, event))

    def _later(self, act: Callable[..., None], *arguments: object) -> None:
        self._at(self.now + self._rng.randint(*DELAY_US), lambda: act(*arguments))

    def _carry_out(self, host: Host, effects: list[Effect]) -> None:
        for effect in effects:
            self.trace.append((self.now, host.address, effect))
            match effect:
                case CallPeer(call_id, to, request):
                    body = self.codec.encode_request(request)
                    sent = self.codec.decode_request(endpoint_of(request), body)
                    self._later(self._arrive, OpenCall(host, call_id, to, sent))
                case AnswerPeer(token, response):
                    call = self._open.pop(token)
                    self._later(self._answer, call, response)
                case HostsWanted():
                    self._later(self._read_hosts, host)
                case _:
                    pass  # facts, for those who look at the trace
        self._wake(host)

    def _wake(self, host: Host) -> None:
        """See to it that *host* advances at its next deadline, if that comes before its wake."""
        deadline = host.node.next_deadline
        if deadline is None or (host.wakes_at is not None and host.wakes_at <= deadline):
            return
        host.wakes_at = deadline
        self._at(max(deadline, self.now), lambda: self._advance(host, deadline))

    def _advance(self, host: Host, woken_for: int) -> None:
        if host.wakes_at == woken_for:
            host.wakes_at = None
        if self.hosts.get(host.address) is host and not host.paused:
            self._carry_out(host, host.node.advance(self.now))

    def _read_hosts(self, host: Host) -> None:
        """Discovery, where the world has one: by the index of who asks."""
        if self.discovery is None or self.hosts.get(host.address) is not host:
            return
        index = next(i for i in range(500) if address_of(i) == host.address)
        hosts = [address_of(i) for i in self.discovery(index)]
        self._carry_out(host, host.node.hosts_read(hosts, self.now))

    def _is_cut(self, call: OpenCall, *, back: bool = False) -> bool:
        way = (call.to, call.caller.address) if back else (call.caller.address, call.to)
        cut = frozenset(way) in self.cuts or way in self.one_way_cuts
        return cut or call.to in self.silent

    def _arrive(self, call: OpenCall) -> None:
        if self._is_cut(call):
            return
        host = self.hosts.get(self.aliases.get(call.to, call.to))
        if host is None or (call.caller.address, call.to) in self.refusals:
            self._later(self._fail, call, "refused")
            return
        self._event_count += 1
        token = self._event_count
        self._open[token] = call
        self._deliver(host, Asked(token, call.request))

    def _answer(self, call: OpenCall, response: Response) -> None:
        if self._is_cut(call, back=True):
            return
        body = self.codec.encode_response(response)
        ok = not isinstance(response, Refusal)
        came = self.codec.decode_response(call.request, body, ok=ok)
        self._deliver(call.caller, Answered(call.call_id, came))

    def _fail(self, call: OpenCall, reason: FailureReason) -> None:
        self._deliver(call.caller, Failed(call.call_id, reason))

    def _deliver(self, host: Host, message: Input) -> None:
        if self.hosts.get(host.address) is not host:
            return
        if host.paused:
            host.inbox.append(message)
        else:
            self._carry_out(host, host.node.receive(message, self.now))
