"""The store that all processes share, and the unreliable way to it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, TypeVar

import greenlet
import xxhash

from ringpop_py.base.errors import StoreFull, StoreRefused, StoreUnavailable
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.stores.store import checked_key, checked_prefix
from ringpop_sim.units import ms, s
from ringpop_sim.whole.stage.scheduling import STORED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_sim.plans.plan import FailStore, KeyspacePlan
    from ringpop_sim.whole.stage.scheduling import Processes, TrioProcess
    from ringpop_sim.whole.stage.threads import Threads

T = TypeVar("T")

LATENCY_US: Final = (500, 3 * ms)
SLOW_US: Final = (100 * ms, 900 * ms)
LATE_US: Final = (10 * ms, 3_000 * ms)
"""How much later than it is reported to have failed a change takes place, if it is late."""
AFTER_US: Final = {"read-only": 1 * s, "cut": 8 * s}
"""Troubles for which others take over, and how long afterwards they may go on as if it lasted: a
member that was cut off tries its store every 5 s."""
UNKNOWN_SHARE: Final = 0.4
CHANGED_SHARE: Final = 0.7
LATE_SHARE: Final = 0.5
NO_ANSWER: Final = "the store does not answer"


class SharedObjects:
    """The objects of the store, and how calls for them fare.

    Attributes:
        kept: the store that has them, without faults of its own.
        objects: their values, by key.
    """

    def __init__(self, world: Processes, threads: Threads, plan: KeyspacePlan) -> None:
        self.world = world
        self.kept = MemoryStore()
        self.objects = self.kept._values
        self._threads = threads
        self._rng = random.Random(f"store {world.seed}")
        self._faults: list[FailStore] = []
        self._given_up_until: dict[int | None, int] = {}
        self._took_us = {
            "put": plan.store_write_us,
            "get": plan.store_read_us,
            "list": plan.store_list_us,
            "delete": plan.store_write_us,
        }

    def begin(self, fault: FailStore) -> None:
        """Begin *fault*."""
        self._faults.append(fault)

    def end(self, fault: FailStore) -> None:
        """End *fault*."""
        self._faults.remove(fault)
        for node in fault.nodes or (None,):
            until = self.world.now + AFTER_US.get(fault.how, 0)
            self._given_up_until[node] = max(until, self._given_up_until.get(node, 0))

    def troubles(self, node: int) -> set[str]:
        """Return how the store fails for *node* at present."""
        return {fault.how for fault in self._faults if not fault.nodes or node in fault.nodes}

    def may_give_up(self, node: int) -> bool:
        """Return whether it fails *node* so that others take over, or did so a moment ago."""
        until = self._given_up_until.get(node, 0), self._given_up_until.get(None, 0)
        return bool(AFTER_US.keys() & self.troubles(node)) or max(until) > self.world.now

    def call(
        self, process: TrioProcess, node: int, verb: str, what: str, act: Callable[[], T]
    ) -> T:
        """Return the result of *act*, which takes place at one instant during the call.

        Raises:
            StoreUnavailable: as the faults have it; what changes something may still take place.
        """
        world, rng, troubles = self.world, self._rng, self.troubles(node)
        changes = verb in ("put", "delete")
        failed = StoreUnavailable(f"{verb} {what}: {NO_ANSWER}")
        if not self._threads.in_thread:  # a quick `get`
            if "cut" in troubles:
                raise failed
            return act()
        is_late = "slow" in troubles
        took_us = self._took_us[verb]
        if is_late or not took_us:
            took_us = rng.randint(*(SLOW_US if is_late else LATENCY_US))
        there_us = took_us // 2
        error = _error_of(verb, what, troubles)

        def late(_: object) -> None:
            act()

        is_open = error is None and "unknown" in troubles and rng.random() < UNKNOWN_SHARE
        if is_open and changes and rng.random() < CHANGED_SHARE:
            late_us = rng.randint(*LATE_US) if rng.random() < LATE_SHARE else 0
            world.after(there_us + late_us, late)
        thread = greenlet.getcurrent()

        def arrived(_: object) -> None:
            trouble = failed if is_open else error
            found = act() if trouble is None else None
            detail = xxhash.xxh32_intdigest(f"{verb} {what} {trouble}".encode())
            world.trace.event(world.now, STORED, process.serial, detail)
            process.threads.resume(thread, (trouble, found), took_us - there_us)

        world.after(there_us, arrived)
        trouble, found = self._threads.block()
        if trouble is not None:
            raise trouble
        return found  # type: ignore[no-any-return]


def _error_of(verb: str, what: str, troubles: set[str]) -> StoreUnavailable | None:
    """Return the error with which a call fails for certain; None if it does not."""
    if "cut" in troubles:
        return StoreUnavailable(f"{verb} {what}: {NO_ANSWER}")
    if verb == "put" and "full" in troubles:
        return StoreFull(f"{verb} {what}: the store has no room left")
    if verb == "put" and "read-only" in troubles:
        return StoreRefused(f"{verb} {what}: the store may not be written")
    return None


class SimulatedStore:
    """The store as one process sees it. See `Store`.

    Args:
        quick: see `Store`.
    """

    in_memory = False
    value_bytes_max = None

    def __init__(
        self, shared: SharedObjects, process: TrioProcess, node: int, *, quick: bool
    ) -> None:
        self.quick = quick
        self._shared = shared
        self._process = process
        self._node = node

    def put_if_absent(self, key: str, value: bytes) -> bool:
        store, kept = self._shared.kept, bytes(value)
        return self._call("put", checked_key(key), lambda: store.put_if_absent(key, kept))

    def get(self, key: str) -> bytes | None:
        return self._call("get", checked_key(key), lambda: self._shared.kept.get(key))

    def list(self, prefix: str) -> list[str]:
        return self._call("list", checked_prefix(prefix), lambda: self._shared.kept.list(prefix))

    def delete(self, keys: Sequence[str]) -> None:
        gone = [checked_key(key) for key in keys]
        self._call("delete", ",".join(gone), lambda: self._shared.kept.delete(gone))

    def close(self) -> None:
        """See `Store`."""

    def _call(self, verb: str, what: str, act: Callable[[], T]) -> T:
        return self._shared.call(self._process, self._node, verb, what, act)
