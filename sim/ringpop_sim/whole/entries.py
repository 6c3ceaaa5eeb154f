"""S10, S11 of whole daemons: HTTP that comes in at one, for the application beside its key's owner.

Requests go to the `EntryApp` of a daemon, where the server that reads HTTP would bring them, and
applications are in place of the `HttpReplayer` that reaches them. Half of the requests are POSTs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final
from unittest.mock import patch

import trio

from ringpop_py.edge.entry.http import TIMEOUT_S
from ringpop_py.edge.entry.keys import key_rule
from ringpop_py.edge.web.entry import EntryApp
from ringpop_py.route.proxy import replay
from ringpop_sim.checks import Check
from ringpop_sim.errors import PlanError
from ringpop_sim.units import s, seconds
from ringpop_sim.whole.cluster import Daemon, WholeCluster
from ringpop_sim.whole.keyspaces.oracle import Hindered
from ringpop_sim.world.process import Life
from ringpop_sim.world.watcher import RequestEnded, SentRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ringpop_py.edge.entry.asgi import Message
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import Headers, HttpRequest
    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.world.world import World

POSTS_SHARE: Final = 0.5
GONE_SHARE: Final = 0.05
"""The share of callers that go away after a while."""
LATE_US: Final = s // 2
OK: Final = 200
KEY: Final = b"x-key"
NUMBER: Final = b"x-number"


@dataclass(slots=True, eq=False)
class EntryRequest(SentRequest):
    """A request; *answers* are those that applications have given."""

    is_post: bool
    answers: list[bytes] = field(default_factory=list)


class EntryTraffic(Check):
    """See the module.

    - S10: a request runs at a member that owns its key by its own ring.
    - S11: it ends once and in time. A POST runs once at most; success is the answer of a run.

    Attributes:
        counts: see `Result`.
    """

    invariants: ClassVar = ("S10", "S11")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        assert isinstance(world, WholeCluster)
        assert world.plan.traffic is not None
        self._cluster = world
        self._traffic = traffic = world.plan.traffic
        if traffic.keys_each > 1 or traffic.failover > 1:
            raise PlanError("the traffic of whole daemons has one key each, and no failover")
        self.counts = {"sent": 0, "answered": 0, "failed": 0, "abandoned": 0}
        self._rng = random.Random(f"entries {world.seed}")
        self._requests: dict[int, EntryRequest] = {}
        self._apps: dict[Ringpop, EntryApp] = {}
        self._hindered = Hindered(world, by_store=False)
        world.push(traffic.from_us, self._next)

    def observing(self) -> AbstractContextManager[object]:
        """Have daemons find these applications in the block."""
        return patch.object(replay, "HttpReplayer", lambda *_: _Application(self))

    def fault_began(self, operation: Operation, nodes: Sequence[int]) -> None:
        self._hindered.began(operation, nodes)

    def fault_ended(self, operation: Operation, nodes: Sequence[int]) -> None:
        self._hindered.ended(operation, nodes)

    # Callers.

    def _next(self, _: object) -> None:
        world, rng = self.world, self._rng
        world.push(world.now + 1 + int(rng.expovariate(self._traffic.per_second) * s), self._next)
        ready = [
            each
            for each in self._cluster.running
            if isinstance(each, Daemon) and each.nursery is not None and not each.asked_to_end
            if each.life is Life.RUNNING and each.node.ready
        ]
        key = f"key-{rng.randrange(self._traffic.keys)}"
        is_post = rng.random() < POSTS_SHARE
        goes_s = rng.uniform(0, TIMEOUT_S) if rng.random() < GONE_SHARE else inf
        if ready:
            self.counts["sent"] += 1
            daemon = rng.choice(ready)
            sent = EntryRequest(self.counts["sent"], daemon, (key,), world.now, is_post)
            self._requests[sent.number] = sent
            self._cluster.begin(daemon, partial(self._ask, sent, goes_s), drains=True)

    async def _ask(self, sent: EntryRequest, goes_s: float, daemon: Daemon) -> None:
        ringpop = daemon.ringpop
        assert ringpop is not None
        if ringpop not in self._apps:
            self._apps[ringpop] = EntryApp(ringpop, key_rule(f"header:{KEY.decode()}"))
        brought = [{"type": "http.request", "body": b"", "more_body": False}]
        answer: list[Message] = []

        async def receive() -> Message:
            if brought:
                return brought.pop()
            await trio.sleep(goes_s)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            answer.append(message)

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST" if sent.is_post else "GET",
            "scheme": "http",
            "path": "/",
            "query_string": b"",
            "headers": [(KEY, sent.keys[0].encode()), (NUMBER, b"%d" % sent.number)],
        }
        await self._apps[ringpop](scope, receive, send)
        self._ended(sent, answer, goes=goes_s < inf)

    def _ended(self, sent: EntryRequest, answer: list[Message], *, goes: bool) -> None:
        what = self._what(sent)
        del self._requests[sent.number]
        self._judge_time(sent)
        if not answer and goes:
            self.counts["abandoned"] += 1
            return
        start, end = answer
        status, body = start["status"], end["body"]
        if status == OK and body not in sent.answers:
            self.broke("S11", f"{what} got {body!r}, of {sent.answers}")
        self.counts["answered" if status == OK else "failed"] += 1
        error = "" if status == OK else f"{status} {body.decode()}"
        ended = RequestEnded(sent, error, self.world.now - sent.started_at)
        for check in self.world.checks:
            check.request_ended(ended)

    def _what(self, sent: EntryRequest) -> str:
        method = "POST" if sent.is_post else "GET"
        return f"{method} {sent.number} of {sent.keys[0]} at {sent.caller.name}"

    def _judge_time(self, sent: EntryRequest) -> None:
        well_since, now = self._hindered.well_since(sent.caller.number), self.world.now
        is_late = now - sent.started_at > TIMEOUT_S * s + LATE_US
        if is_late and well_since is not None and well_since < sent.started_at:
            took = f"{seconds(now - sent.started_at):.3f} s"
            self.broke("S11", f"{self._what(sent)} took {took}")

    def finish(self) -> None:
        for sent in self._requests.values():
            if sent.caller.running:
                self._judge_time(sent)

    def close(self) -> None:
        """Free what daemons hold."""
        self._apps.clear()
        self._requests.clear()

    # Applications.

    async def answer(self, request: HttpRequest) -> tuple[int, Headers, bytes]:
        """Answer *request* at the daemon whose code runs."""
        daemon, named = self._cluster.current, dict(request.headers)
        sent, answer = self._requests.get(int(named[NUMBER.decode()])), b""
        assert daemon.ringpop is not None
        if sent is not None:  # somebody waits for it
            key = sent.keys[0]
            sent.runs[key] += 1
            owner = daemon.ringpop.lookup(key)
            if owner != daemon.name:
                self.broke("S10", f"{self._what(sent)} runs at {daemon.name}, and {owner} has it")
            if sent.is_post and sent.runs[key] > 1:
                self.broke("S11", f"{self._what(sent)} runs {sent.runs[key]} times")
            answer = f"{sent.number}, {len(sent.answers)} at {daemon.name}".encode()
            sent.answers.append(answer)
        await trio.sleep(self._rng.uniform(0, 2 * self._traffic.service_us) / s)
        return OK, (), answer


class _Application:
    """The application beside a daemon, as the daemon reaches it."""

    def __init__(self, entries: EntryTraffic) -> None:
        self.replay = entries.answer

    async def aclose(self) -> None:
        """Close nothing."""
