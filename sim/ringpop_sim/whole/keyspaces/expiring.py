"""K16 to K19: keys that expire, what clients do with them, and when they must be there or gone.

Each write has an item of its own. A value is the list of the items that made it, so it tells which
write has set its instant. True time is that of the world; daemons see their wall clocks.
"""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final
from unittest.mock import patch

from ringpop_py.base.errors import RingpopError
from ringpop_py.base.values.operations import Change
from ringpop_py.base.values.packed import decode_value
from ringpop_py.node.signals.clocks import Clocks
from ringpop_py.state.memory.versioned import Entry, VersionedState
from ringpop_py.state.placement.keys import partition_of
from ringpop_py.state.requests import expiring
from ringpop_py.state.table.due import at_ms_of, plain
from ringpop_py.state.table.keyed import KeyedState
from ringpop_sim.linear import ABSENT, ANY, Invocation, SearchStep, TooManyOrders, check
from ringpop_sim.plans.plan import Clock, Crash, Start, Stop
from ringpop_sim.units import ms, s, seconds
from ringpop_sim.whole.keyspaces.clients import DaemonRequest
from ringpop_sim.whole.keyspaces.oracle import KeyspaceOracle
from ringpop_sim.world.world import WALL_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ringpop_py.client.aio.keyspaces import AsyncKeyspaceClient
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.table.bodies import Body
    from ringpop_sim.whole.cluster import Daemon
    from ringpop_sim.whole.keyspaces.shares import DaemonShare

PREFIX: Final = "due-"
KEYS: Final = 9
ROUND_US: Final = 6 * s
"""So many keys are in use, and others in the next round: histories stay short."""
KINDS: Final = (
    ("get", "", 30),
    ("put", "in", 20),
    ("put", "at", 10),
    ("append", "in", 10),
    ("append", "", 8),
    ("put", "", 4),
    ("persist", "", 6),
    ("delete", "", 5),
)
"""What requests do, how they set an instant, and how often."""
AIMED: Final = (("append", "in", 4), ("put", "at", 2), ("persist", "", 2), ("get", "", 2))
"""Likewise, when an instant is about to pass, or has just passed."""
LASTS_US: Final = (300 * ms, 4 * s)
AT_LEAST_US: Final = 1500 * ms
"""So far is an absolute instant ahead at least; one that has passed would be refused."""
AIMED_US: Final = (-20 * ms, 130 * ms)
LOOKS_US: Final = (20 * ms, 400 * ms)
AGAIN_SHARE: Final = 0.15
AGAIN_US: Final = (200 * ms, 1500 * ms)
"""The share of puts that are sent again, with their ids, and how long after their instants."""
EARLY_US: Final = 1 * s
"""How early a key may expire: what members know of others' clocks is as old as a message."""
LEFT_US: Final = 4 * s
PLACES_MAX: Final = 50_000
"""Of one key; with so many open writes that there are more, nothing is claimed."""


@dataclass(slots=True, eq=False)
class DueRequest(DaemonRequest):
    """A request for one key: *name* is an operation or ``get``, and *items* has that of a write.

    Attributes:
        in_us, at_us: what sets the instant: so long after it, or at that time; 0: nothing does.
        of: the request whose id it repeats.
        result: once it has ended.
    """

    is_apart: ClassVar[bool] = True

    name: str = "get"
    in_us: int = 0
    at_us: int = 0
    of: DueRequest | None = None
    result: Any = None
    ended_at: int | None = None

    @property
    def errand(self) -> str:
        return f"{self.name} {self.keys[0]} {self.items}"

    @property
    def earliest_us(self) -> int | None:
        """The true time of its instant at the earliest; None if it sets none."""
        return self.at_us or (self.began_at + self.in_us if self.in_us else None)

    async def carry_out(
        self, keyspace: Keyspace | AsyncKeyspaceClient, named: dict[str, Any]
    ) -> list[Any]:
        key = self.keys[0]
        if self.name == "get":
            return [await keyspace.get(key, **named)]
        item = self.items[0]
        argument: Any = {"put": [item], "append": item}.get(self.name)
        times = {"expires_at": WALL_MS / 1000 + self.at_us / s} if self.at_us else {}
        times |= {"expires_in": self.in_us / s} if self.in_us else {}
        changes = [Change(key, *expiring(self.name, argument, **times))]
        return await keyspace.update_many(changes, operation_id=f"due-{item}", **named)

    def invocation(self) -> Invocation | None:
        """Return it for the history of its key; None if it has no place there."""
        failed, item = isinstance(self.result, RingpopError), next(iter(self.items), 0)
        if self.name == "get":
            if failed or self.ended_at is None:
                return None
            seen = tuple(self.result) if self.result else ABSENT
            return Invocation(self.keys[0], "get", None, seen, self.began_at, self.ended_at)
        if failed and self.result.took_effect == "no" and not self.may_have_run:
            return None
        end = None if failed else self.ended_at
        values: tuple[Any, ...] = () if end is None else self.result.values
        # Without the item at its end, the value is of later: an earlier attempt has written it.
        shown = bool(values) and self.name == "append" and (values[0] or [0])[-1] == item
        result = tuple(values[0]) if shown else ANY
        argument = item, self.earliest_us is not None
        return Invocation(self.keys[0], self.name, argument, result, self.began_at, end)


def effect(value: Any, name: str, argument: Any) -> SearchStep:
    """Apply an operation to a key: `ABSENT`, or its items and the one that has set its instant.

    ``expire`` deletes a key that still has the instant that the item of its argument has set.
    """
    items, setter = ((), None) if value is ABSENT else value
    item, sets = argument or (0, False)
    after = {
        "get": value,
        "put": ((item,), item if sets else None),
        "append": ((*items, item), item if sets else setter),
        "persist": (items, None) if items else ABSENT,
        "delete": ABSENT,
        "expire": ABSENT if setter == item else value,
    }[name]
    return SearchStep(after, ABSENT if after is ABSENT else after[0])


class KeysExpire(KeyspaceOracle):
    """K16 to K19; and the clients that use such keys.

    K16: a key expires once, not before its instant, and not in a group that has renewed it; a
    repeated put changes nothing. "Before" is judged while most clocks that owners know are right.
    K17: durable: what clients see of each key could come from one copy of it, which expires by the
    last instant that was set. K18: at the end, nothing that was due is left, and the index of
    instants is that of what is stored. K19: memory mode, if no member ended: what is left of a key
    is its last version, or the end of that.
    """

    invariants: ClassVar = ("K16", "K17", "K18", "K19")

    def begin(self) -> None:
        self._is_durable = self.shares.plan.mode == "durable"
        operations = self.world.plan.operations
        drifts = [abs(o.drift_ppm) * o.for_us for o in operations if isinstance(o, Clock)]
        self._early_us = EARLY_US + sum(drifts) // 1_000_000
        self._is_misled = False
        self._rng = random.Random(f"expiring {self.world.seed}")
        self._requests: list[DueRequest] = []
        self._by_item: dict[int, DueRequest] = {}
        self._latest: dict[str, Entry] = {}
        self.clients.begin_expiring = self._begin
        self.clients.on_end.append(self._ended)

    # Clients.

    def _begin(self, daemon: Daemon) -> None:
        key = f"{PREFIX}{self.world.now // ROUND_US}-{self._rng.randrange(KEYS)}"
        self._send(daemon, key, KINDS)

    def _send(self, daemon: Daemon, key: str, kinds: Sequence[tuple[str, str, int]]) -> None:
        rng, now = self._rng, self.world.now
        name, sets, _ = rng.choices(kinds, [share for *_, share in kinds])[0]
        items = [] if name == "get" else [len(self._by_item) + 1]
        lasts_us = rng.randrange(*LASTS_US, ms)
        in_us = lasts_us * (sets == "in")
        at_us = ((now // ms) * ms + AT_LEAST_US + lasts_us) * (sets == "at")
        request = DueRequest(daemon, [key], items, now, now, name=name, in_us=in_us, at_us=at_us)
        self._requests.append(request)
        self._by_item |= dict.fromkeys(items, request)
        earliest_us = request.earliest_us
        if earliest_us is not None:
            aimed_us = earliest_us + rng.randint(*AIMED_US)
            self._later(aimed_us, partial(self._send, key=key, kinds=AIMED))
            looks_us = aimed_us + rng.randint(*LOOKS_US)
            self._later(looks_us, partial(self._send, key=key, kinds=KINDS[:1]))
            if rng.random() < AGAIN_SHARE:
                again_us = earliest_us + rng.randint(*AGAIN_US)
                self._later(again_us, partial(self._send_again, request=request))
        self.clients.send(request, daemon)

    def _later(self, at_us: int, act: Callable[[Daemon], None]) -> None:
        def begin(_: object) -> None:
            daemon = self.clients.a_daemon()
            if daemon is not None:
                act(daemon)

        if at_us < self.world.plan.quiet_at_us + self.shares.plan.after_us:
            self.world.push(max(at_us, self.world.now + 1), begin)

    def _send_again(self, daemon: Daemon, request: DueRequest) -> None:
        if request.ended_at is not None and not isinstance(request.result, RingpopError):
            again = replace(request, began_at=self.world.now, may_have_run=False, of=request)
            self.clients.send(again, daemon)

    def _ended(self, request: DaemonRequest, results: Sequence[Any]) -> None:
        if not isinstance(request, DueRequest):
            return
        request.result, request.ended_at = results[0], self.world.now
        self.world.trace.note(self.world.now, request.process.serial, request.errand)
        failed = isinstance(request.result, RingpopError)
        if request.of and self._is_durable and not failed and not request.result.repeated:
            self.broke("K16", f"'{request.errand}' takes effect a second time")

    # What daemons do.

    @contextmanager
    def observing(self) -> Iterator[None]:
        expired, expire, write = KeyedState.expired, VersionedState.expire, VersionedState.write

        def expires(state: KeyedState, body: Body | None) -> Any:
            found: Any = expired(state, body)
            gone = [] if found is None else found.deleted[len(body.deleted) if body else 0 :]
            for key, stored in zip(gone, state.packed(gone, stored=True), strict=True):
                self._expires(key, stored)
                if body is not None and key in body.changed:
                    self.broke("K16", f"{key} expires with the group that has written it")
            return found

        def ends(versions: VersionedState, key: str) -> None:
            self._expires(key, versions.get(key))
            expire(versions, key)

        def writes(versions: VersionedState, changed: Any, deleted: Any) -> None:
            write(versions, changed, deleted)
            for entry in (versions._entries[key] for key in (*deleted, *changed)):
                before = self._latest.get(entry.key)
                if before is None or before.version < entry.version:
                    self._latest[entry.key] = entry

        with (
            patch.object(KeyedState, "expired", expires),
            patch.object(VersionedState, "expire", ends),
            patch.object(Clocks, "set_ms", self._watched(Clocks.set_ms, -1)),
            patch.object(Clocks, "due_ms", self._watched(Clocks.due_ms, 1)),
            patch.object(VersionedState, "write", writes),
        ):
            yield

    def _misleads(self, daemon: Daemon) -> bool:
        """Return whether not most of the clocks that *daemon* knows are right, its own included."""
        assert daemon.ringpop is not None
        now_us = int(daemon.body.clock.current_time() * s)
        ahead = daemon.ringpop.reporter.clocks._ahead_ms.values()
        said = [now_us + (one - WALL_MS) * ms - self.world.now for one in ahead]
        right = sum(abs(off_us) < self._early_us for off_us in (daemon.body.wall_us, *said))
        return 2 * right <= len(said) + 1

    def _watched(self, read: Callable[[Clocks], int], sign: int) -> Callable[[Clocks], int]:
        def reads(clocks: Clocks) -> int:
            said_ms, daemon = read(clocks), self.shares.cluster.current
            wrong_us = sign * ((said_ms - WALL_MS) * ms - self.world.now)
            if self._misleads(daemon):
                self._is_misled = True
            elif wrong_us > self._early_us:
                self.broke("K16", f"{daemon.name} goes by a clock {seconds(wrong_us):.3f} s off")
            return said_ms

        return reads

    def _expires(self, key: str, stored: bytes | None) -> None:
        """Judge that *key* expires now, of which an owner has *stored* that."""
        where = f"{key} at {self.shares.cluster.current.name}"
        if stored is None or at_ms_of(stored) is None:
            self.broke("K16", f"{where} expires without an instant")
            return
        items: Any = decode_value("msgpack", plain(stored))
        instants = [self._by_item[item].earliest_us for item in items]
        earliest_us = next((each for each in reversed(instants) if each is not None), 0)
        early_us = earliest_us - self.world.now
        if early_us > self._early_us and not self._is_misled:
            self.broke("K16", f"{where} expires {seconds(early_us):.3f} s too early: {items}")

    # At the end.

    def finish(self) -> None:
        if self._is_durable:
            self._look_at_histories()
        if not self.shares.settled:
            return
        for share in self.shares:
            self._look_at_clocks(share.process)
            for number in sorted(share.steward.serving):
                self._look_at(share, share.partitions[number].state)
        if not self._is_durable:
            self._look_at_versions()

    def _look_at_histories(self) -> None:
        found = defaultdict(list)
        for request in self._requests:
            one, earliest_us = request.invocation(), request.earliest_us
            if one is not None:
                found[one.key].append(one)
            if one is not None and earliest_us is not None:
                from_us = 0 if self._is_misled else earliest_us - self._early_us
                called_at = max(from_us, one.called_at)
                setter = request.items[0], False
                expire = Invocation(one.key, "expire", setter, ANY, called_at, None)
                found[one.key].append(expire)
        for history in found.values():
            with suppress(TooManyOrders):
                for violation in check(history, effect, places_max=PLACES_MAX):
                    self.broke("K17", str(violation))

    def _look_at(self, share: DaemonShare, state: KeyedState) -> None:
        keys = [key for key, _ in state.scan_packed(PREFIX, None, None, 10_000)]
        stored = zip(keys, state.packed(keys, stored=True), strict=True)
        instants = {k: at for k, one in stored if (at := at_ms_of(one or b"")) is not None}
        if instants != state.due._at:
            self.broke("K18", f"{share.name} has {instants}, and the index {state.due._at}")
        now = self.world.now
        calm_us = now - max(self.shares.moved_at, self.world.plan.quiet_at_us)
        late_us = max((now - (at_ms - WALL_MS) * ms for at_ms in instants.values()), default=0)
        if not self._misleads(share.process) and min(calm_us, late_us) > LEFT_US + self._early_us:
            self.broke("K18", f"at {share.name} a key was due {seconds(late_us):.1f} s ago")

    def _look_at_clocks(self, daemon: Daemon) -> None:
        assert daemon.ringpop is not None
        others = {str(each.address) for each in self.world.running if each is not daemon}
        known = others & daemon.ringpop.reporter.clocks._ahead_ms.keys()
        if 2 * len(known) < len(others):
            self.broke("K18", f"{daemon.name} knows the clocks of {sorted(known)} alone")

    def _look_at_versions(self) -> None:
        if any(isinstance(o, Crash | Stop | Start) for o in self.world.plan.operations):
            return  # what only a member had that ended, or began late, is lost
        homes = {number: share for share in self.shares for number in share.steward.serving}
        for key, latest in sorted(self._latest.items()):
            number = partition_of(key, self.shares.plan.partitions)
            found = homes[number].partitions[number].mergeable.versions._entries.get(key)
            end = latest.version._replace(node=latest.version.node + "\0")
            may_end = latest.value is not None and at_ms_of(latest.value) is not None
            if found is None or found.version not in (latest.version, *([end] if may_end else ())):
                self.broke("K19", f"{found} is left of {latest}")
