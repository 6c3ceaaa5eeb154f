"""The event loops that an asynchronous client runs in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

BACKENDS: Final = ("trio", "asyncio")


async def run_on(backend: str, function: Callable[[], Awaitable[T]]) -> T:
    """Run *function* here, or under asyncio in a thread, where it may leave nothing behind."""
    if backend == "trio":
        return await function()

    async def main() -> T:
        found = await function()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return found

    return await trio.to_thread.run_sync(lambda: asyncio.run(main()))
