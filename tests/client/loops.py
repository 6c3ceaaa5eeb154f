"""The event loops that an asynchronous client runs in, and the client that needs none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from ringpop_py import (
    AsyncClient,
    AsyncKeyspaceClient,
    Client,
    KeyspaceClient,
    RingpopError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.base.address import Address

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


FACES: Final = ("no loop", "trio", "asyncio")
Step = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a method, with its arguments."""


async def by(
    face: str, peer: Address, steps: Sequence[Step], *, direct: bool = True, actor: str = ""
) -> list[object]:
    """What becomes of calls of the keyspace "k", or of actors of it; errors are in it as well."""

    async def awaited() -> list[object]:
        async with (
            AsyncClient(peer) as client,
            AsyncKeyspaceClient(client, "k", direct=direct) as keyspace,
        ):
            asked, found = keyspace.actors(actor) if actor else keyspace, list[object]()
            for name, arguments, options in steps:
                try:
                    found.append(await getattr(asked, name)(*arguments, **options))
                except RingpopError as error:
                    found.append(error)
            return found

    def called() -> list[object]:
        with Client(peer) as client, KeyspaceClient(client, "k", direct=direct) as keyspace:
            asked, found = keyspace.actors(actor) if actor else keyspace, list[object]()
            for name, arguments, options in steps:
                try:
                    found.append(getattr(asked, name)(*arguments, **options))
                except RingpopError as error:
                    found.append(error)
            return found

    if face == "no loop":
        return await trio.to_thread.run_sync(called)
    return await run_on(face, awaited)
