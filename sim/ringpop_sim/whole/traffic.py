"""The requests of a plan: services of whole daemons call each other, and HTTP comes in.

A service asks its daemon by `handle_or_proxy`, and for several keys by `handle_or_proxy_all`; its
handlers answer. HTTP goes to the `EntryApp` of a daemon, where the server that reads it would bring
it, and to applications in place of the `HttpReplayer` that reaches them.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final
from unittest.mock import AsyncMock, patch

import trio

from ringpop_py.base.errors import CallError, RingpopError
from ringpop_py.edge.door.app import EntryApp
from ringpop_py.edge.entry.http import TIMEOUT_S
from ringpop_py.edge.entry.keys import key_rule
from ringpop_py.net.http import replay
from ringpop_py.net.http.replay import Replayed
from ringpop_py.node import probes
from ringpop_py.route.proxy.forward import Proxy
from ringpop_py.route.proxy.request import HttpRequest, OwnerReply, Request
from ringpop_sim.checks import Check
from ringpop_sim.units import s
from ringpop_sim.whole.cluster import Daemon, WholeCluster
from ringpop_sim.whole.requests import traffic_of
from ringpop_sim.world.process import Life
from ringpop_sim.world.watcher import RequestEnded, RequestRun, SentRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from ringpop_py.edge.entry.passing import Message
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.head import Head
    from ringpop_py.route.proxy.request import AppCall

GONE_SHARE: Final = 0.05
"""The share of callers of HTTP that go away after a while."""
OK: Final = 200
ENDPOINT: Final = "/count"
KEY: Final = b"x-key"
NUMBER: Final = b"x-number"


class DaemonTraffic(Check):
    """See the module. It judges nothing: oracles are told what happens.

    Attributes:
        counts: see `Result`.
    """

    invariants: ClassVar = ()

    def begin(self) -> None:
        world = self.world
        assert isinstance(world, WholeCluster)
        self._cluster = world
        self._traffic = traffic = traffic_of(world)
        self.counts = {"sent": 0, "answered": 0, "failed": 0, "abandoned": 0}
        self._rng = random.Random(f"traffic {world.seed}")
        self._requests: dict[int, SentRequest] = {}
        self._apps: dict[Ringpop, EntryApp] = {}
        self._within_us = sum(traffic.retry_schedule_us) + traffic.timeout_us * (
            1 + len(traffic.retry_schedule_us)
        )
        world.application = self._register
        world.push(traffic.from_us, self._next)

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Hear, in the block, what daemons send; and have them find these applications."""
        really = Proxy._send  # where all attempts begin

        async def send(proxy: Proxy, to: str, head: Head, request: Any, *more: Any) -> Any:
            attempt = really(proxy, to, head, request, *more)
            return await self._attempt(to, head.keys, request, attempt)

        with (
            patch.object(Proxy, "_send", send),
            patch.object(replay, "HttpReplayer", lambda *_: self._application()),
            patch.object(probes, "probe", _answers),
        ):
            yield

    # Callers.

    def _next(self, _: object) -> None:
        world, rng, traffic = self.world, self._rng, self._traffic
        world.push(world.now + 1 + int(rng.expovariate(traffic.per_second) * s), self._next)
        ready = [
            each
            for each in self._cluster.running
            if isinstance(each, Daemon) and each.nursery is not None and not each.asked_to_end
            if each.life is Life.RUNNING and each.node.ready
        ]
        keys = tuple(
            dict.fromkeys(f"key-{rng.randrange(traffic.keys)}" for _ in range(traffic.keys_each))
        )
        by_http = traffic.keys_each == traffic.failover == 1 and rng.random() < 0.5  # noqa: PLR2004
        if not ready:
            return
        self.counts["sent"] += 1
        daemon, number = rng.choice(ready), self.counts["sent"]
        sent = SentRequest(number, daemon, keys, world.now, self._within_us)
        self._requests[number] = sent
        if by_http:
            method, sent.within_us = rng.choice(("GET", "POST")), int(TIMEOUT_S * s)
            sent.may_repeat = method == "GET"
            goes_s = rng.uniform(0, TIMEOUT_S) if rng.random() < GONE_SHARE else inf
            ask = partial(self._ask_by_http, sent, method, goes_s)
        else:
            sent.may_repeat = traffic.idempotent
            ask = partial(self._ask, sent)
        for check in world.checks:
            check.request_began(sent)
        self._cluster.begin(daemon, ask, drains=True)

    async def _ask(self, sent: SentRequest, daemon: Daemon) -> None:
        ringpop, request = daemon.ringpop, Request(ENDPOINT, b"%d" % sent.number)
        assert ringpop is not None
        options: dict[str, Any] = {"idempotent": sent.may_repeat}
        if self._traffic.failover > 1:
            options["failover"] = self._traffic.failover
        try:
            if len(sent.keys) == 1:
                reply = await ringpop.handle_or_proxy(sent.keys[0], request, **options)
                parts = [OwnerReply("", sent.keys, reply)]
            else:
                parts = await ringpop.handle_or_proxy_all(sent.keys, request, **options)
        except RingpopError as error:
            parts = [OwnerReply("", sent.keys, None, error)]
        for part in parts:
            result: object = part.error
            if part.reply is not None:
                result = part.reply.body
            elif result is None:
                result = self._run(sent, part.keys, daemon, "")
            sent.results.update(dict.fromkeys(part.keys, result))
        self._end(sent)

    async def _ask_by_http(
        self, sent: SentRequest, method: str, goes_s: float, daemon: Daemon
    ) -> None:
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
            "method": method,
            "scheme": "http",
            "path": "/",
            "query_string": b"",
            "headers": [(KEY, sent.keys[0].encode()), (NUMBER, b"%d" % sent.number)],
        }
        await self._apps[ringpop](scope, receive, send)
        if answer:
            start, end = answer
            status, body = start["status"], end["body"]
            sent.results[sent.keys[0]] = body if status == OK else f"{status} {body.decode()}"
        elif goes_s < inf:
            sent.gone = True
        self._end(sent)

    def _end(self, sent: SentRequest) -> None:
        del self._requests[sent.number]
        errors = [str(each) for each in sent.results.values() if not isinstance(each, bytes)]
        how = "abandoned" if sent.gone else "failed" if errors else "answered"
        self.counts[how] += 1
        ended = RequestEnded(sent, errors[0] if errors else "", self.world.now - sent.started_at)
        for check in self.world.checks:
            check.request_ended(ended)

    # Attempts, and runs.

    async def _attempt(self, to: str, keys: Sequence[str], request: Any, attempt: Any) -> Any:
        """Make the *attempt* to send *request* to the member *to*."""
        by_http = isinstance(request, HttpRequest)
        number = dict(request.headers)[NUMBER.decode()] if by_http else request.body
        sent = self._requests.get(int(number))
        if sent is None:  # its caller has ended
            return await attempt
        sent.attempts.update(keys)
        for check in self.world.checks:
            check.asked(sent, to, keys)
        sent.asked.add(to)
        try:
            return await attempt
        except CallError as error:
            if error.took_effect == "unknown":
                sent.lost.update(keys)
            raise

    def _application(self) -> SimpleNamespace:
        """Return the application beside a daemon, as the daemon reaches it."""
        return SimpleNamespace(replay=self.answer, aclose=AsyncMock())

    def _run(self, sent: SentRequest, keys: Sequence[str], at: Daemon, sender: str) -> bytes:
        """Note that *sent* is handled *at* a daemon for *keys*; return the answer."""
        sent.runs.update(keys)
        run = RequestRun(sent, keys, at, forwarded=sender not in ("", at.name))
        answer = f"{sent.number} by {at.name}, {sum(sent.runs.values())}".encode()
        for key in keys:
            sent.answers[key].append(answer)
        for check in self.world.checks:
            check.ran(run)
        return answer

    def _register(self, daemon: Daemon) -> None:
        assert daemon.ringpop is not None
        daemon.ringpop.handler(ENDPOINT)(self._handle)

    def _handle(self, call: AppCall) -> Awaitable[bytes]:
        """Begin to handle *call* right after the check of its keys, not in a task later."""
        return self._serve(int(call.body), call.keys, call.sender)

    async def answer(self, request: HttpRequest) -> Replayed:
        """Answer *request* as the application at the daemon whose code runs."""
        named = dict(request.headers)
        number, key = int(named[NUMBER.decode()]), named[KEY.decode()]
        sent = self._requests.get(number)
        sender = "" if sent is None or sent.caller is self._cluster.current else sent.caller.name
        return Replayed(OK, (), await self._serve(number, (key,), sender))

    def _serve(self, number: int, keys: Sequence[str], sender: str) -> Awaitable[bytes]:
        daemon, sent, answer = self._cluster.current, self._requests.get(number), b""
        if sent is not None:  # somebody waits for it
            answer = self._run(sent, keys, daemon, sender)
        return self._in_a_while(answer)

    async def _in_a_while(self, answer: bytes) -> bytes:
        await trio.sleep(self._rng.uniform(0, 2 * self._traffic.service_us) / s)
        return answer

    def close(self) -> None:
        """Free what daemons hold."""
        self._apps.clear()
        self._requests.clear()


async def _answers(_url: str, _health: str | None) -> str:
    await trio.lowlevel.checkpoint()
    return ""
