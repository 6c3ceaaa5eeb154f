"""Ripple's story: twelve partitions on three workers; one dies; the others go on from its offsets.

Each partition is fed by a source of its own. A worker that gains a partition finds the source's
offset in its state, and reads on from there. State and offset are one commit, so the next worker
neither skips nor repeats a record. In the end the counts are those of a run in which no worker
died.

    python examples/ripple.py
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import trio
from workers import Story, all_at, open_workers, until

from ringpop_py import Change, Gained, Write, partition_of

if TYPE_CHECKING:
    from ringpop_py import Keyspace, Ringpop

PARTITIONS = 12
RECORDS = 2_000  # in each source
BATCH = 50
CITIES = [f"city-{number}" for number in range(200)]


def source(partition: int) -> list[str]:
    """Return the records of a partition's source, the same for every reader."""
    cities = [city for city in CITIES if partition_of(city, PARTITIONS) == partition]
    return [cities[(number * number + partition) % len(cities)] for number in range(RECORDS)]


SOURCES = [source(partition) for partition in range(PARTITIONS)]


async def work(node: Ringpop, story: Story, life: trio.CancelScope) -> None:
    """Run a worker, with one reader for each partition while the partition is at this node."""
    readers: dict[int, trio.CancelScope] = {}
    with life:
        keyspace = await node.open_keyspace("visits")
        async with trio.open_nursery() as nursery:
            async for event in keyspace.rescale_events():
                # Also before a gain: the partition may come back in a later epoch, with another
                # offset.
                if event.partition in readers:
                    readers.pop(event.partition).cancel()
                if isinstance(event, Gained):
                    scope = readers[event.partition] = trio.CancelScope()
                    offset = event.offsets.get("source", 0)
                    assert isinstance(offset, int)
                    if offset:
                        story.tell(
                            f"{node.name}: partition {event.partition:2}, epoch {event.epoch},"
                            f" goes on at record {offset} of {RECORDS}"
                        )
                    nursery.start_soon(read, keyspace, event.partition, offset, scope)


async def read(keyspace: Keyspace, partition: int, offset: int, scope: trio.CancelScope) -> None:
    """Count the records of a source from *offset* on, batch by batch."""
    records = SOURCES[partition]
    with scope:
        while offset < len(records):
            batch = Counter(records[offset : offset + BATCH])
            offset += BATCH
            changes = tuple(Change(city, "add", count) for city, count in batch.items())
            # The batch has the same id for every reader, so it counts once.
            write = Write("source", offset, changes, {"source": offset})
            await keyspace.write({partition: [write]})
            await trio.sleep(0.03)


async def main() -> None:
    """Tell the story, and exit with an error if it does not end as it should."""
    story = Story()
    expected = Counter(city for records in SOURCES for city in records)
    async with open_workers() as workers, trio.open_nursery() as nursery:
        lives: dict[str, trio.CancelScope] = {}
        for name in ("w0", "w1", "w2"):
            await workers.start(name)
        w0 = workers.running["w0"]
        visits = await w0.open_keyspace(
            "visits", partitions=PARTITIONS, strategy="ring", checkpoint_interval_s=0.3
        )
        await until(all_at(visits, "w0", "w1", "w2"), "three owners")
        for name, node in workers.running.items():
            story.tell(f"{name} has partitions {visits.table.owned_by(name)}")
            lives[name] = trio.CancelScope()
            nursery.start_soon(work, node, story, lives[name])
        orphans = visits.table.owned_by("w2")
        # The successors are to begin with checkpoints and the records after them, not with records
        # alone.
        at_w2 = (await workers.running["w2"].open_keyspace("visits")).table
        await until(lambda: all(at_w2[n].checkpoint.epoch > 0 for n in orphans), "checkpoints")
        story.tell(f"w2 has written checkpoints of {orphans}, and works on")
        await trio.sleep(0.2)
        story.tell(f"w2 dies in the middle of its work; partitions {orphans} are without an owner")
        lives["w2"].cancel()  # its readers die with it
        await workers.kill("w2")
        await until(all_at(visits, "w0", "w1"), "the others take over")
        for name in ("w0", "w1"):
            story.tell(f"{name} has partitions {visits.table.owned_by(name)}")

        total = sum(expected.values())
        found: dict[str, object] = {}
        with trio.fail_after(30):
            while sum(v for v in found.values() if isinstance(v, int)) < total:
                await trio.sleep(0.1)
                found = dict(await visits.get_many(CITIES))
        story.tell(f"{total} records counted for {len(found)} cities")
        if found != dict(expected):
            raise SystemExit("the counts differ from those of an undisturbed run")
        story.tell("the counts are those of a run in which nobody died")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
