"""What the product sees of its surroundings while a world runs: clocks, chance and threads."""

from __future__ import annotations

import gc
import os
import random
import secrets
import time
from contextlib import ExitStack, contextmanager
from threading import get_ident
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import trio
from trio._core import _run as scheduler

from ringpop_py.state import tasks
from ringpop_py.state.catalog import high_water, journalstore
from ringpop_py.state.durable import checkpointer, sweeper
from ringpop_py.state.stores import metered
from ringpop_sim.units import s
from ringpop_sim.whole.stage.scheduling import OrderedCancelStatus
from ringpop_sim.world.world import WALL_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ringpop_sim.whole.stage.scheduling import Processes
    from ringpop_sim.whole.stage.threads import Threads

LOOK_US: Final = round(checkpointer.LOOK_S * s)
TRIM_US: Final = 1 * s
SWEEP_US: Final = 5 * s
"""The times of what tidies journals; the product has longer ones than plans last."""


@contextmanager
def installed(world: Processes, threads: Threads) -> Iterator[None]:
    """Have all code see the time, chance and threads of *world* in the block."""
    others = random.Random(f"nobody {world.seed}")

    def rng() -> random.Random:
        return others if world.current is None else world.current.rng

    def wall_us() -> int:
        off_us = 0 if world.current is None else world.current.wall_us
        return WALL_MS * 1000 + world.now + off_us

    def monotonic() -> float:
        return world.now / s if world.current is None else world.current.clock.current_time()

    known: list[tuple[Any, str, Any]] = [
        (time, "time", lambda: wall_us() / s),
        (time, "time_ns", lambda: wall_us() * 1000),
        (time, "monotonic", monotonic),
        (time, "monotonic_ns", lambda: int(monotonic() * s) * 1000),
        (time, "perf_counter", monotonic),
        (time, "sleep", threads.sleep),
        (time, "clock_gettime_ns", lambda _: int(monotonic() * s) * 1000),
        (metered, "perf_counter", monotonic),
        (secrets, "token_bytes", lambda count=32: rng().randbytes(count)),
        (secrets, "token_hex", lambda count=32: rng().randbytes(count).hex()),
        (secrets, "randbits", lambda count: rng().getrandbits(count)),
        (os, "urandom", lambda count: rng().randbytes(count)),
        (tasks, "threading", SimpleNamespace(Thread=threads.Thread)),
        (tasks, "SimpleQueue", threads.SimpleQueue),
        (journalstore, "Lock", threads.Lock),
        (high_water, "Lock", threads.Lock),
        (trio.to_thread, "run_sync", threads.run_sync),
        (trio.from_thread, "run", threads.run_in_task),
        (trio.from_thread, "check_cancelled", lambda: None),
        (checkpointer, "TRIM_S", TRIM_US / s),
        (sweeper, "SWEEP_S", SWEEP_US / s),
        (scheduler, "CancelStatus", OrderedCancelStatus),
        (scheduler, "_r", random.Random(f"trio {world.seed}")),
        # Set once hypothesis is loaded: the course would depend on that.
        (scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", False),
    ]
    with ExitStack() as stack:
        # Only the world's own garbage is looked at, and only at its end.
        gc.disable()
        gc.freeze()
        stack.callback(gc.enable)
        stack.callback(gc.unfreeze)
        stack.enter_context(replaced(known))
        yield


@contextmanager
def replaced(known: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace, in the block, what an object has under a name by another value, each.

    Functions are replaced for the thread that runs the world alone: in the same process, there may
    be threads that have nothing to do with it, and that sleep, or look at files.
    """
    with ExitStack() as stack:
        for where, name, value in known:
            is_function = callable(value) and not isinstance(value, type)
            other = _in_this_thread(getattr(where, name), value) if is_function else value
            stack.enter_context(patch.object(where, name, other))
        yield


def _in_this_thread(real: Callable[..., Any], simulated: Callable[..., Any]) -> Callable[..., Any]:
    home = get_ident()

    def call(*args: Any, **named: Any) -> Any:
        return (simulated if get_ident() == home else real)(*args, **named)

    return call
