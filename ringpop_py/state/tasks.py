"""How what has no nursery and no thread of its own gets one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable  # noqa: TC003 - read at run time
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar, cast

import trio

from ringpop_py.base.errors import KeyspaceError

if TYPE_CHECKING:
    from ringpop_py.state.stores.store import Store

P = ParamSpec("P")
T = TypeVar("T")

IDLE_S: Final = 10.0  # after which a thread without work ends


class Spawn(Protocol):
    """Runs a function in a task of its own, which ends with the node at the latest."""

    def __call__(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start ``function(*arguments)``; an error in it ends the node."""


async def in_parallel(one: Callable[[int], Awaitable[None]], count: int, tasks_max: int) -> None:
    """Call *one* for each number below *count*, at most *tasks_max* at a time.

    Raises:
        KeyspaceError: the first one that a call raised. No further calls were begun after it.
    """
    limiter = trio.CapacityLimiter(tasks_max)
    failed: list[KeyspaceError] = []

    async def guarded(number: int) -> None:
        async with limiter:
            if failed:
                return
            try:
                await one(number)
            except KeyspaceError as error:
                failed.append(error)

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(guarded, number)
    if failed:
        raise failed[0]


class Worker:
    """Runs blocking functions, such as calls of *store*, in at most *threads_max* threads.

    Calls of a store in memory do not block, and run without a thread, so tests have virtual time.

    `trio.to_thread` would be slow compared with a put: for each call it makes a scope, a context
    and a place in a limiter. Here a call is one slotted object in a queue, and the loop collects
    all calls that have ended since it last looked. A worker belongs to one run of trio, the first
    that uses it.

    Attributes:
        maker: runs functions that make large values, one at a time, in one thread. The allocators
            of libc and of Arrow keep free memory for each thread that had much of it, so in all
            threads that would be a multiple of what is ever in use.
    """

    def __init__(self, store: Store, threads_max: int) -> None:
        self.store = store
        self._inline = store.in_memory
        self._threads_max = threads_max
        self._token: trio.lowlevel.TrioToken | None = None
        self._queue: SimpleQueue[_Job] = SimpleQueue()
        self._done: deque[_Job] = deque()
        # Both are changed only on the loop's thread, so they need no lock.
        self._jobs_count = 0
        self._threads_count = 0
        self.maker: Worker = self if threads_max == 1 else Worker(store, 1)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return or raise what *function* does. It goes on even if the caller is cancelled."""
        if self._inline:
            await trio.lowlevel.checkpoint()
            return function(*args, **kwargs)
        await trio.lowlevel.checkpoint_if_cancelled()
        job = _Job(partial(function, *args, **kwargs), trio.lowlevel.current_task())
        self._jobs_count += 1
        self._start_thread_if_short()
        self._queue.put(job)
        await trio.lowlevel.wait_task_rescheduled(job.abandon)
        if job.error is not None:
            raise job.error
        return cast(T, job.result)

    def _start_thread_if_short(self) -> None:
        if self._jobs_count > self._threads_count < self._threads_max:
            if self._token is None:
                self._token = trio.lowlevel.current_trio_token()
            self._threads_count += 1
            threading.Thread(target=self._work, args=(self._token,), daemon=True).start()

    def _work(self, token: trio.lowlevel.TrioToken) -> None:
        """Do jobs in a thread, until none has come for `IDLE_S`."""
        with suppress(trio.RunFinishedError):
            while True:
                try:
                    job = self._queue.get(timeout=IDLE_S)
                except Empty:
                    token.run_sync_soon(self._one_has_left)
                    return
                job.do()
                self._done.append(job)
                del job  # otherwise its result lives until the next job
                token.run_sync_soon(self._take_done, idempotent=True)

    def _take_done(self) -> None:
        while self._done:
            self._jobs_count -= 1
            self._done.popleft().finish()

    def _one_has_left(self) -> None:
        self._threads_count -= 1
        self._start_thread_if_short()  # for a job that was queued after the thread had left


class _Job:
    """A call, and the task that is parked on it."""

    __slots__ = ("_function", "_task", "error", "result")

    def __init__(self, function: Callable[[], object], task: trio.lowlevel.Task) -> None:
        self.result: object = None
        self.error: BaseException | None = None
        self._function = function
        self._task: trio.lowlevel.Task | None = task

    def do(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self.error = error

    def finish(self) -> None:
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)

    def abandon(self, _: Any) -> trio.lowlevel.Abort:  # noqa: ANN401 - as trio has it
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
