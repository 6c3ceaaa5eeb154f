"""What a read takes at its owner in a cluster of three and of a thousand members."""

from __future__ import annotations

from contextlib import AsyncExitStack
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.member.swim.effects import AnswerPeer, Effect
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import Asked, MemberChange, Ping
from ringpop_py.testing import MemoryNetwork
from tests.bench.keyspaces.nodes import KEYSPACE, whole
from tests.bench.report import smaller_is_better

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from tests.bench.report import Row

FEW: Final = 3
MANY: Final = 1_000
GETS: Final = 2_000
ROUNDS: Final = 7
TARGET: Final = 0.8
US: Final = Address("10.9.9.9", 3000)


def members(_folder: Path) -> Iterator[Row]:
    """One key read again and again, in memory mode, at a member that knows so many others."""
    yield trio.run(compared, FEW, MANY, GETS)


async def compared(few: int, many: int, gets_count: int) -> Row:
    """The row that compares a read at *many* members with one at *few*, measured in turns."""
    async with AsyncExitStack() as stack:
        small, large = [await _keyspace(stack, count) for count in (few, many)]
        taken: dict[Keyspace, list[float]] = {small: [], large: []}
        for _ in range(ROUNDS):
            for keyspace, durations in taken.items():
                began_at = perf_counter()
                for _ in range(gets_count):
                    await keyspace.get("k")
                durations.append((perf_counter() - began_at) / gets_count * 1e6)
    ours, theirs = median(taken[large]), median(taken[small])
    title = f"state.members.memory.get.{many}"
    return smaller_is_better(title, ours, "us", f"at {few} members", theirs, TARGET)


async def _keyspace(stack: AsyncExitStack, members_count: int) -> Keyspace:
    """A keyspace on the only node of a cluster that serves; the other members have left it."""
    config = Config(name="a", listen=US, hosts=(US,))
    node = await stack.enter_async_context(open_ringpop(config, network=MemoryNetwork()))
    keyspace = await node.open_keyspace(KEYSPACE, mode="memory", partitions=16)
    await whole(keyspace, ["a"])
    await keyspace.put("k", 1)
    await _tell_of_others(node, members_count - 1)
    assert len(node.members) == members_count
    return keyspace


async def _tell_of_others(node: Ringpop, count: int) -> None:
    """Have *node* know of *count* members that do not answer and are not asked, for they left."""
    changes = tuple(
        MemberChange(
            member=Member(f"b{n}", *Address(f"10.0.{n >> 8}.{n & 255}", 3000), 1, Status.LEAVE)
        )
        for n in range(count)
    )
    ping = Ping(None, None, "b0", *changes[0].member.address, 1, None, changes)

    def hear(now: int) -> list[Effect]:
        effects = node.node.receive(Asked(0, ping), now)
        return [effect for effect in effects if not isinstance(effect, AnswerPeer)]

    await node.driver.perform(hear)
