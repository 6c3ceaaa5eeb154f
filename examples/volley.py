"""Volley's story: two workers become three and two again, under load, and nothing restarts.

256 key groups, assigned as contiguous ranges. When a worker joins or leaves, ranges move. The
workers receive events about the groups that they gain and lose, and records go on flowing. Only a
few groups pause at a time, and each record is counted once, whichever worker counts it.

    python examples/volley.py
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import trio
from workers import Story, Task, all_at, open_workers, until

from ringpop_py import Gained, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py import Keyspace, Ringpop

KEY_GROUPS = 256
KEYS = [f"sensor-{number}" for number in range(1_000)]
BATCH = 50


def ranges(groups: Iterable[int]) -> str:
    """Format key groups as half-open ranges, as Volley writes them: ``[0,128)``."""
    found: list[list[int]] = []
    for group in sorted(groups):
        if found and found[-1][1] == group:
            found[-1][1] = group + 1
        else:
            found.append([group, group + 1])
    return " ".join(f"[{start},{end})" for start, end in found) or "nothing"


class Watcher:
    """The events about key groups at one worker."""

    def __init__(self, node: Ringpop) -> None:
        self.gained: set[int] = set()
        self.lost: set[int] = set()
        self._node = node

    async def run(self) -> None:
        """Collect events, until cancelled."""
        keyspace = await self._node.open_keyspace("readings")
        async for event in keyspace.rescale_events():
            (self.gained if isinstance(event, Gained) else self.lost).add(event.partition)

    def tell(self, story: Story) -> None:
        """Print the events since the last call."""
        if self.gained or self.lost:
            story.tell(
                f"    {self._node.name} gained {ranges(self.gained)}, lost {ranges(self.lost)}"
            )
        self.gained, self.lost = set(), set()


class Load(Task):
    """Sends records for all key groups, as fast as they are accepted."""

    def __init__(self, keyspace: Keyspace) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()
        self._keyspace = keyspace
        self._next = 0

    async def step(self) -> None:
        """Send a batch, and count the acknowledged records."""
        start = self._next = (self._next + 7 * BATCH) % len(KEYS)
        keys = KEYS[start : start + BATCH]
        outcomes = await self._keyspace.update_many([(key, "add", 1) for key in keys])
        for key, outcome in zip(keys, outcomes, strict=True):
            if not isinstance(outcome, Outcome):
                # No record may fail while groups move: that is what the story is to show.
                raise outcome
            self.counted[key] += 1


async def main() -> None:
    """Tell the story, and exit with an error if it does not end as it should."""
    story = Story()
    async with open_workers() as workers, trio.open_nursery() as nursery:
        watchers: dict[str, Watcher] = {}

        async def join(name: str) -> Ringpop:
            node = await workers.start(name)
            watchers[name] = Watcher(node)
            return node

        async def rescaled(*names: str) -> None:
            await until(all_at(readings, *names), f"{len(names)} workers")
            await trio.sleep(0.1)  # events arrive a moment after the change
            for name in sorted(watchers):
                watchers[name].tell(story)
            for name in names:
                story.tell(f"    {name} has {ranges(readings.table.owned_by(name))}")

        volley_0 = await join("volley-0")
        await join("volley-1")
        readings = await volley_0.open_keyspace("readings", partitions=KEY_GROUPS, strategy="range")
        nursery.start_soon(watchers["volley-0"].run)
        nursery.start_soon(watchers["volley-1"].run)
        story.tell("two workers begin")
        await rescaled("volley-0", "volley-1")

        load = Load(readings)
        nursery.start_soon(load.run)
        await trio.sleep(0.5)
        before = load.counted.total()
        story.tell(f"{before} records are counted; a third worker comes")
        await join("volley-2")
        nursery.start_soon(watchers["volley-2"].run)
        await rescaled("volley-0", "volley-1", "volley-2")

        middle = load.counted.total()
        story.tell(f"{middle - before} records were counted meanwhile; volley-2 goes again")
        await workers.stop("volley-2")
        await rescaled("volley-0", "volley-1")

        await trio.sleep(0.3)
        await load.stop()
        story.tell(f"{load.counted.total() - middle} records were counted meanwhile")
        if await readings.get_many(KEYS) != dict(load.counted):
            raise SystemExit("some were lost or counted twice")
        story.tell(f"{load.counted.total()} in all: none lost, none twice, nobody restarted")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
