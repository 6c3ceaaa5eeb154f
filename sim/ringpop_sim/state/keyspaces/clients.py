"""Clients of a simulated keyspace: requests for several keys, and their outcomes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import KeyspaceError, OutcomeUnknown, PartitionUnavailable, RingpopError
from ringpop_py.base.values.operations import Change, Outcome, Write
from ringpop_py.base.values.packed import decode_value
from ringpop_py.route.errand import RELAY, Errand, RelayPolicy
from ringpop_py.state.placement.keys import partition_of
from ringpop_py.state.placement.table import from_rows
from ringpop_sim.linear import ABSENT, ANY, Invocation
from ringpop_sim.state.keyspaces.errands import ErrandDriver
from ringpop_sim.units import ms, s
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringpop_py.route.errand import Ask
    from ringpop_sim.state.keyspaces.errands import End, Parts, Requester
    from ringpop_sim.state.keyspaces.home import Home
    from ringpop_sim.state.keyspaces.homes import Homes

READ_SHARE: Final = 0.35
OUTSIDE_SHARE: Final = 0.33
"""The share of requests from clients that are not members."""
ALONE_SHARE: Final = 0.4
"""The share of requests for one key, which a member serves without an errand if it can."""
ANSWER_US_MAX: Final = 200 * ms
"""The most of a relay's time that is kept back, so that an error arrives in time."""


@dataclass(slots=True, eq=False)
class KeyRequest:
    """One request: reads or writes of several keys, each with its own id.

    Attributes:
        home: that of the member that sends it; if *outside*, that of the daemon beside the client.
        keys: those of each partition, by its number; *writes* likewise, if it writes.
    """

    home: Home
    keys: dict[int, list[str]]
    writes: dict[int, list[Write]] | None
    began_at: int
    errand: Errand[int]
    outside: bool


class Outsider:
    """A client beside the daemon of *home*. It is not a member, and outlives the daemon.

    It knows only the owners that answers have named. The daemon relays all other requests.
    """

    def __init__(self, home: Home) -> None:
        self.process = home.process
        self.waiting: list[Callable[[], bool]] = []  # only time ends its pauses
        self._homes = home.homes
        self._destinations: dict[int, tuple[str, int]] = {}

    @property
    def now(self) -> int:
        """The time of the world."""
        return self._homes.world.now

    def after(self, delay_us: int, act: Callable[[], None]) -> None:
        """Call *act* later."""
        self._homes.world.push(self.now + delay_us, lambda _: act())

    def destination(self, part: int) -> str:
        """Return the member to ask about a partition; empty if none is known."""
        return self._destinations.get(part, (RELAY, 0))[0]

    def why_nobody(self, part: int) -> PartitionUnavailable:
        """Fail the run: a daemon always knows more."""
        raise AssertionError(part)

    def learn(self, row: list[Any]) -> None:
        """Note the new owner that a redirect names. Raises BodyError."""
        rows = from_rows(row, self._homes.plan.partitions)
        self._learn({each.partition: (each.owner, each.epoch) for each in rows})

    def _learn(self, destinations: Mapping[int, tuple[str, int]]) -> None:
        for number, (name, epoch) in destinations.items():
            if epoch >= self._destinations.get(number, ("", 0))[1]:
                self._destinations[number] = name, epoch

    def ask(self, ask: Ask[int], what: str, parts: Parts, end: End) -> None:
        """Carry out *ask*; *end* gets the results of *parts*, or an error."""
        if ask.to != RELAY:
            self._homes.calls.call(self, ask.to, what, parts, ask.wait_us, end)
            return

        def relayed(value: Any) -> None:
            if not isinstance(value, RingpopError):
                value, destinations = value
                self._learn(destinations)
            end(value)

        time_us = ask.wait_us - min(ANSWER_US_MAX, ask.wait_us // 4)
        argument = what, parts, time_us
        self._homes.calls.call(self, self.process.name, "relay", argument, ask.wait_us, relayed)


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
        self._outside_rng = rng = random.Random(f"outsiders {homes.world.seed}")
        self._alone_rng = random.Random(f"requests for one key {homes.world.seed}")
        self._outsiders: dict[Home, Outsider] = {}
        # As those of `ClientDispatcher`, whose longest wait for an owner no request here reaches.
        self._policies = {
            what: RelayPolicy(rng, changes_state=writes)
            for what, writes in (("read", False), ("write", True))
        }
        self._numbers = 0
        self._sequences: dict[int, int] = {}
        self._world.push(self.plan.from_us, self._next)

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
        if self._alone_rng.random() < ALONE_SHARE:
            chosen = chosen[:1]
        keys: dict[int, list[str]] = {}
        for number in chosen:
            key = f"key-{number}"
            keys.setdefault(partition_of(key, plan.partitions), []).append(key)
        writes = None
        if rng.random() >= READ_SHARE:
            writes = {
                number: [self._write(number, key) for key in some] for number, some in keys.items()
            }
        what, wanted = ("read", keys) if writes is None else ("write", writes)
        outside = self._outside_rng.random() < OUTSIDE_SHARE
        policies = self._policies if outside else self._homes.policies
        requester: Requester = self._outsiders.setdefault(home, Outsider(home)) if outside else home
        errand = Errand(tuple(keys), policies[what], requester.now + plan.timeout_us)
        request = KeyRequest(home, keys, writes, self._world.now, errand, outside)
        self.open[request] = None
        if len(keys) == 1 and not outside and home.parts.serves(*keys):
            self._go_straight(request, what, wanted)
            return
        driver = ErrandDriver(requester, errand, what, wanted, lambda: self.ended(request))
        requester.after(0, driver.go)

    def _go_straight(self, request: KeyRequest, what: str, wanted: Mapping[int, Any]) -> None:
        """Serve the only part of *request* where it began, as `Keyspace` does."""
        home, first, over = request.home, request.errand, False
        ((number, _),) = wanted.items()

        def end(result: Any) -> None:
            nonlocal over
            if over:
                return
            over = True
            if not isinstance(result, KeyspaceError):
                first.results[number] = result
                self.ended(request)
                return
            policy, deadline = first.policy, first.deadline
            request.errand, ask = Errand.begun(number, home.name, policy, deadline)
            request.errand.failed(ask, result)
            ErrandDriver(home, request.errand, what, wanted, lambda: self.ended(request)).go()

        late = OutcomeUnknown("the deadline passed while this node served the request")
        home.after(self.plan.timeout_us, lambda: end(late))
        home.parts.serve(what, list(wanted.items()), lambda results: end(results[0]))

    def _write(self, partition: int, key: str) -> Write:
        self._numbers += 1
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        return Write("client", sequence, (Change(key, "append", self._numbers),))

    # Outcomes.

    def ended(self, request: KeyRequest) -> None:
        """Record the outcome of *request*."""
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
            # or a later append sees an item that no client appended.

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
