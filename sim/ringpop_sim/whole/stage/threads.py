"""Threads of simulated processes: greenlets, which give way wherever a thread would block."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from math import ceil
from queue import Empty
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import greenlet
import trio
from outcome import Error, Value, acapture, capture

from ringpop_sim.units import s
from ringpop_sim.whole.stage.scheduling import STEP_US_MAX, TaskSlot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from outcome import Outcome

    from ringpop_sim.whole.stage.scheduling import Processes, TrioProcess

T = TypeVar("T")


class Threads:
    """What the product uses of `threading` and `queue`, for the processes of *world*."""

    def __init__(self, world: Processes) -> None:
        self._world = world
        self._hosts: dict[greenlet.greenlet, TaskSlot] = {}

    @property
    def current_process(self) -> TrioProcess:
        """The process whose code runs."""
        assert self._world.current is not None
        return self._world.current

    @property
    def in_thread(self) -> bool:
        """Whether code of a thread runs, which may block."""
        return greenlet.getcurrent() is not self._world.hub

    def block(self) -> Any:
        """Return what `GreenThreads.resume` is called with for this thread."""
        assert self.in_thread, "the event loop would block"
        return self._world.hub.switch()

    def Thread(  # noqa: N802 - as `threading` has it
        self, target: Callable[..., object], args: Sequence[Any] = (), *, daemon: bool = False
    ) -> _Thread:
        assert daemon, "a process would wait for this thread at its end"
        return _Thread(self.current_process, lambda: target(*args))

    def Lock(self) -> _Lock:  # noqa: N802
        return _Lock(self)

    def SimpleQueue(self) -> _Queue[Any]:  # noqa: N802
        return _Queue(self)

    async def run_sync(
        self,
        function: Callable[..., T],
        *args: object,
        abandon_on_cancel: bool = False,
        limiter: trio.CapacityLimiter | None = None,
    ) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        process = self.current_process
        slot = TaskSlot(process)
        if limiter is not None:
            await limiter.acquire_on_behalf_of(slot)

        def end(found: Outcome[T]) -> None:
            if limiter is not None and process.alive:
                with process.entered():
                    limiter.release_on_behalf_of(slot)
            slot.wake(found)

        def work() -> None:
            self._hosts[greenlet.getcurrent()] = slot
            found = capture(function, *args)
            del self._hosts[greenlet.getcurrent()]
            self._world.after(0, end, found)

        process.threads.start(work)
        while True:
            with trio.CancelScope(shield=not abandon_on_cancel):
                result: T | _Request = await slot.wait()
            if not isinstance(result, _Request):
                return result
            result.slot.wake(await acapture(result.function, *result.args))

    def run_in_task(self, function: Callable[..., Awaitable[Any]], *args: object) -> Any:
        slot = ThreadSlot(self.current_process)
        request = _Request(function, args, slot)
        self._world.after(0, self._hosts[greenlet.getcurrent()].wake, Value(request))
        return slot.wait()

    def sleep(self, duration_s: float) -> None:
        with suppress(TimeoutError):
            ThreadSlot(self.current_process).wait(duration_s)


class ThreadSlot:
    """A place where one thread of *process* waits, as a task does at a `TaskSlot`."""

    def __init__(self, process: TrioProcess) -> None:
        self._process = process
        self._thread: greenlet.greenlet | None = None
        self._turn = 0

    @property
    def is_taken(self) -> bool:
        """Whether a thread waits here."""
        return self._thread is not None

    def wait(self, timeout_s: float | None = None) -> Any:
        """Return or raise the outcome with which `wake` is called. Raises TimeoutError."""
        world = self._process.world
        assert greenlet.getcurrent() is not world.hub, "the event loop would block"
        self._thread = greenlet.getcurrent()
        self._turn += 1
        if timeout_s is not None:
            world.after(ceil(timeout_s * s), self._expire, self._turn)
        return world.hub.switch().unwrap()

    def _expire(self, turn: int) -> None:
        if turn == self._turn:
            self.wake(Error(TimeoutError("timed out")))

    def wake(self, outcome: Outcome[Any] | None = None) -> None:
        """Have the thread that waits here, if there is one, go on with *outcome*."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._process.threads.resume(thread, outcome or Value(None), 0)


class Local:
    """See `threading.local`. A new thread has what one had that has ended: trio reuses threads."""

    def __init__(self) -> None:
        self.__dict__["of"] = dict[greenlet.greenlet, dict[str, Any]]()

    def _mine(self) -> dict[str, Any]:
        of, thread = self.__dict__["of"], greenlet.getcurrent()
        if thread not in of:
            ended = next((each for each in of if each.dead), None)
            of[thread] = {} if ended is None else of.pop(ended)
        found: dict[str, Any] = of[thread]
        return found

    def __getattr__(self, name: str) -> Any:
        try:
            return self._mine()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self._mine()[name] = value


class _Request(NamedTuple):
    """What a thread has the task do that waits for it."""

    function: Callable[..., Awaitable[Any]]
    args: tuple[object, ...]
    slot: ThreadSlot


class _Thread:
    def __init__(self, process: TrioProcess, function: Callable[[], object]) -> None:
        self._process = process
        self._function = function

    def start(self) -> None:
        self._process.threads.start(self._function)


class _Lock:
    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._is_held = False
        self._waiting: deque[tuple[TrioProcess, greenlet.greenlet]] = deque()

    def acquire(self, blocking: bool = True) -> bool:  # noqa: FBT001, FBT002 - as `Lock` has it
        if self._is_held:
            if not blocking:
                return False
            self._waiting.append((self._threads.current_process, greenlet.getcurrent()))
            self._threads.block()  # the thread that releases it passes it on
        self._is_held = True
        return True

    def release(self) -> None:
        if self._waiting:
            process, thread = self._waiting.popleft()
            process.threads.resume(thread, None, 0)
        else:
            self._is_held = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Queue(Generic[T]):
    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._items: deque[T] = deque()
        self._waiting: dict[greenlet.greenlet, TrioProcess] = {}

    def put(self, item: T) -> None:
        if not self._waiting:
            self._items.append(item)
            return
        thread = next(iter(self._waiting))
        process = self._waiting.pop(thread)
        process.threads.resume(thread, (item,), process.rng.randint(0, STEP_US_MAX))

    def get(self, timeout: float) -> T:
        if self._items:
            return self._items.popleft()
        process, thread = self._threads.current_process, greenlet.getcurrent()
        self._waiting[thread] = process
        over = False  # otherwise the end of this wait could be taken for that of a later one

        def expire(_: object) -> None:
            if not over and self._waiting.pop(thread, None) is not None:
                process.threads.resume(thread, None, 0)

        process.world.after(int(timeout * s), expire)
        found = self._threads.block()
        over = True
        if found is None:
            raise Empty
        item: T = found[0]
        return item
