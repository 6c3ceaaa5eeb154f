"""Nodes on loopback, and ringpopctl in a thread beside them."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ringpop_py import Config, open_ringpop
from ringpop_py.edge.ctl.ringpopctl import main
from ringpop_py.state.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import pytest

    from ringpop_py.node.ringpop import Ringpop


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@asynccontextmanager
async def nodes(*names: str, **settings: Any) -> AsyncIterator[Sequence[Ringpop]]:  # noqa: ANN401
    """Members of one cluster with one store."""
    store = MemoryStore()
    found: list[Ringpop] = []
    async with AsyncExitStack() as stack:
        for name in names:
            hosts = tuple(node.address for node in found)
            config = Config(name=name, hosts=hosts, **{"store": "memory:", **settings})
            node = open_ringpop(config, store=store)
            found.append(await stack.enter_async_context(node))
        with trio.fail_after(20):
            while any(len(node.members) < len(names) for node in found):
                await trio.sleep(0.01)
        yield found


async def ctl(node: Ringpop, capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    """What `ringpopctl` does with *arguments*, at *node*."""
    capsys.readouterr()
    with trio.fail_after(30):
        code = await trio.to_thread.run_sync(main, ["--peer", str(node.address), *arguments])
    said = capsys.readouterr()
    return Done(code, said.out, said.err)
