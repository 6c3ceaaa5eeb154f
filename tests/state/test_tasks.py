"""Calls that block, in threads."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.state import tasks
from ringpop_py.state.stores.folder import FolderStore
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.tasks import Worker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path)


async def test_a_call_runs_in_a_thread_and_returns_what_its_function_does(
    store: FolderStore,
) -> None:
    worker = Worker(store, threads_max=1)

    def add(a: int, *, b: int) -> tuple[int, int]:
        return threading.get_ident(), a + b

    thread, total = await worker.run(add, 1, b=2)

    assert thread != threading.get_ident()
    assert total == 3


async def test_an_error_of_a_function_is_raised_where_it_was_called(store: FolderStore) -> None:
    worker = Worker(store, threads_max=1)

    with pytest.raises(ValueError, match="seven"):
        await worker.run(int, "seven")

    assert await worker.run(int, "7") == 7


async def test_calls_of_a_store_in_memory_take_no_thread() -> None:
    worker = Worker(MemoryStore(), threads_max=1)

    assert await worker.run(threading.get_ident) == threading.get_ident()


async def test_no_more_calls_run_at_a_time_than_was_said(store: FolderStore) -> None:
    worker = Worker(store, threads_max=2)
    lock = threading.Lock()
    now: list[None] = []
    counts: list[int] = []

    def count() -> None:
        with lock:
            now.append(None)
            counts.append(len(now))
        time.sleep(0.001)
        with lock:
            now.pop()

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(worker.run, count)

    assert len(counts) == 20
    assert max(counts) == 2


async def test_large_values_are_made_in_one_thread_that_makes_nothing_else(
    store: FolderStore,
) -> None:
    """Allocators keep free memory for each thread that had much of it."""
    worker = Worker(store, threads_max=4)
    threads: dict[bool, set[int]] = {True: set(), False: set()}
    together = threading.Barrier(4)

    def work(*, makes: bool) -> None:
        threads[makes].add(threading.get_ident())
        if not makes:
            together.wait(10)  # in four threads, none of which has ended

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(lambda: worker.maker.run(work, makes=True))
            nursery.start_soon(lambda: worker.run(work, makes=False))

    assert len(threads[True]) == 1
    assert len(threads[False]) == 4
    assert not threads[True] & threads[False]


async def test_a_caller_that_is_cancelled_leaves_its_call_to_its_end(store: FolderStore) -> None:
    worker = Worker(store, threads_max=1)
    begun, may_end, ended = trio.Event(), threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def block() -> None:
        token.run_sync_soon(begun.set)
        may_end.wait(5)
        token.run_sync_soon(ended.set)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run, block)
        await begun.wait()
        nursery.cancel_scope.cancel()
    may_end.set()

    with trio.fail_after(5):
        await ended.wait()
        assert await worker.run(int, "7") == 7


async def test_threads_that_have_nothing_to_do_end_and_are_replaced(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "IDLE_S", 0.001)
    worker = Worker(store, threads_max=1)

    first = await worker.run(threading.current_thread)
    with trio.fail_after(5):
        await trio.to_thread.run_sync(first.join)
        second = await worker.run(threading.current_thread)

    assert second is not first
