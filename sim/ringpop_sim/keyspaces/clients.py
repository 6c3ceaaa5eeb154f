"""Clients of a simulated keyspace: requests for several keys, and what came of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.errand import DeadlinePolicy, Errand
from ringpop_py.errors import RingpopError
from ringpop_py.placing.keys import partition_of
from ringpop_py.values.operations import Change, Outcome, Write
from ringpop_py.values.packed import decode_value
from ringpop_sim.linear import ABSENT, ANY, Invocation
from ringpop_sim.units import s
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from ringpop_py.errand import Ask
    from ringpop_sim.keyspaces.home import Home
    from ringpop_sim.keyspaces.homes import Homes

READ_SHARE: Final = 0.35


class KeyRequest:
    """One request on its way: reads or writes of several keys, each with its own id.

    Attributes:
        keys: those of each partition, by its number; *writes* likewise, if it writes.
    """

    def __init__(
        self,
        clients: Clients,
        home: Home,
        keys: dict[int, list[str]],
        writes: dict[int, list[Write]] | None,
    ) -> None:
        self.home = home
        self.keys = keys
        self.writes = writes
        self.began_at = clients.world_now
        self.over = False
        self._clients = clients
        policy = clients.write_policy if writes is not None else clients.read_policy
        deadline = home.now + clients.plan.timeout_us
        self.errand: Errand[int] = Errand(tuple(keys), policy, deadline)

    def go(self) -> None:
        """Take the next step, or end."""
        home, errand = self.home, self.errand
        step = errand.next(home, home.now)
        if step is None:
            self.over = True
            self._clients.ended(self)
        elif isinstance(step, int):
            self._pause(step)
        else:
            for ask in step:
                self._send(ask)

    def _pause(self, until: int) -> None:
        home, went_on = self.home, False

        def look() -> bool:
            nonlocal went_on
            if not went_on:
                went_on = True
                home.after(0, self.go)
            return True

        home.waiting.append(look)
        home.after(max(0, until - home.now), look)  # type: ignore[arg-type]

    def _send(self, ask: Ask[int]) -> None:
        what = "read" if self.writes is None else "write"
        wanted: Any = self.keys if self.writes is None else self.writes
        parts = [(number, wanted[number]) for number in ask.parts]
        if ask.to == self.home.name:
            self.home.serve_parts(what, parts, lambda results: self._answered(ask, results))
        else:
            self.home.call(ask.to, what, parts, ask.wait_us, lambda v: self._answered(ask, v))

    def _answered(self, ask: Ask[int], value: Any) -> None:
        if isinstance(value, RingpopError):
            self.errand.failed(ask, value)
        else:
            self.errand.answered(ask, value, self.home)
        if not self.errand.under_way and not self.over:
            self.home.after(0, self.go)


class Clients:
    """Sends the requests of a plan, and keeps their history, by key."""

    def __init__(self, homes: Homes) -> None:
        self.plan = homes.plan
        self.history: list[Invocation] = []
        self.open: dict[KeyRequest, None] = {}
        self.ended_count = 0
        self.failed_count = 0
        self._homes = homes
        self._world = homes.world
        self._rng = random.Random(f"clients {homes.world.seed}")
        rng = random.Random(f"pauses {homes.world.seed}")
        self.read_policy = DeadlinePolicy(rng, changes_state=False)
        self.write_policy = DeadlinePolicy(rng, changes_state=True)
        self._numbers = 0
        self._sequences: dict[int, int] = {}
        self._world.push(self.plan.from_us, self._next)

    @property
    def world_now(self) -> int:
        """The time of the world."""
        return self._world.now

    def _next(self, _: object) -> None:
        gap_us = self._rng.expovariate(self.plan.per_second) * s
        self._world.push(self._world.now + 1 + int(gap_us), self._next)
        if self._world.now > self._world.plan.quiet_at_us + self.plan.after_us:
            return
        homes = [h for h in self._homes if h.process.life is Life.RUNNING and h.ready]
        if homes:
            self._begin(homes[self._rng.randrange(len(homes))])

    def _begin(self, home: Home) -> None:
        plan, rng = self.plan, self._rng
        chosen = rng.sample(range(plan.keys), min(plan.keys_each, plan.keys))
        keys: dict[int, list[str]] = {}
        for number in chosen:
            key = f"key-{number}"
            keys.setdefault(partition_of(key, plan.partitions), []).append(key)
        writes = None
        if rng.random() >= READ_SHARE:
            writes = {
                number: [self._write(number, key) for key in some] for number, some in keys.items()
            }
        request = KeyRequest(self, home, keys, writes)
        self.open[request] = None
        home.after(0, request.go)

    def _write(self, partition: int, key: str) -> Write:
        self._numbers += 1
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        return Write("client", sequence, (Change(key, "append", self._numbers),))

    # What came of them.

    def ended(self, request: KeyRequest) -> None:
        """Record what came of *request*."""
        del self.open[request]
        self.ended_count += 1
        for number, keys in request.keys.items():
            self._record(request, number, keys, request.errand.results[number])

    def _record(self, request: KeyRequest, number: int, keys: list[str], result: Any) -> None:
        results: list[Any]
        results = [result] * len(keys) if isinstance(result, RingpopError) else result
        now = self._world.now
        for at, key in enumerate(keys):
            one = results[at]
            failed = isinstance(one, RingpopError)
            self.failed_count += failed
            if request.writes is None:
                if not failed:
                    read = ABSENT if one is None else tuple(decode_value("msgpack", one))
                    self._add(request, key, "get", None, read, now)
                continue
            argument = request.writes[number][at].changes[0].argument
            if isinstance(one, Outcome):
                value: Any = one.values[0]
                seen = ANY if one.repeated else tuple(value)
                self._add(request, key, "append", argument, seen, now)
            elif one.took_effect == "unknown":
                self._add(request, key, "append", argument, ANY, None)
            # An error that says that nothing took effect is left out: if something did, a read
            # or a later append sees an item that nobody appended.

    def _add(
        self, request: KeyRequest, key: str, name: str, argument: Any, seen: Any, end: int | None
    ) -> None:
        self._world.trace.note(self._world.now, request.home.process.serial, (key, name, seen))
        self.history.append(Invocation(key, name, argument, seen, request.began_at, end))

    def all_operations(self) -> list[Invocation]:
        """Return the history, with the writes whose requests never ended, as open ones."""
        found = list(self.history)
        for request in self.open:
            for number, writes in (request.writes or {}).items():
                for key, write in zip(request.keys[number], writes, strict=True):
                    argument: Any = write.changes[0].argument
                    began_at = request.began_at
                    found.append(Invocation(key, "append", argument, ANY, began_at, None))
        return found
