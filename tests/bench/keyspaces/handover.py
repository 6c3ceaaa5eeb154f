"""How often the store is called while a partition changes its owner: handed over, or taken over.

All nodes whose calls are counted run in this process, each with a counting store of its own.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.state.journal import codec
from ringpop_py.state.journal.records import Group, Release
from ringpop_py.state.stores.folder import FolderStore
from tests.bench.keyspaces.checkpoints import checkpoint_all, host_of
from tests.bench.keyspaces.counted import GET, LIST, PUT, CountedStore, StoreCall, counts_of
from tests.bench.keyspaces.moves import fill, write
from tests.bench.keyspaces.nodes import KEYSPACE, a_node, processes, whole
from tests.bench.report import Row, against_goal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ringpop_py.state.catalog.layout import KeyspaceKeys

HAND_OVER_GOAL: Final = 7.0
"""The release; two lists of the partition and one of marks; the slot of the release; the claim; and
whether the keyspace was dropped."""
PARTITIONS: Final = 16
TAKEN_PARTITIONS: Final = 64
OLD: Final = "a"
NEW: Final = "b"


@dataclass(frozen=True, slots=True)
class Before:
    """What is the case before partitions are handed over.

    Attributes:
        checkpoints: whether the old owner has written checkpoints and trimmed its journal.
        writers: whether keys of all partitions are written meanwhile.
    """

    checkpoints: bool = False
    writers: bool = False

    @property
    def name(self) -> str:
        """How rows call it."""
        covered = "with_checkpoint" if self.checkpoints else "without_checkpoint"
        return f"{covered}.written" if self.writers else covered


CASES: Final = (Before(), Before(checkpoints=True), Before(writers=True))


class HandOver(NamedTuple):
    """The calls for one partition: of its new owner before it asks for it, and from then on."""

    follow: list[StoreCall]
    calls: list[StoreCall]


def handover(folder: Path) -> Iterator[Row]:
    """Calls from the release until the new owner serves, and those of the new owner before."""
    for before in CASES:
        found = trio.run(hand_overs, folder / before.name, PARTITIONS, before)
        yield from rows_of(before.name, found)


def rows_of(name: str, found: Sequence[HandOver]) -> Iterator[Row]:
    """Yield the figures of some hand-overs."""
    title = f"state.handover.{name}"
    counts = [len(each.calls) for each in found]
    yield against_goal(f"{title}.store_calls.p50", median(counts), "calls", HAND_OVER_GOAL)
    yield against_goal(f"{title}.store_calls.max", max(counts), "calls", HAND_OVER_GOAL)
    for verb in (PUT, GET, LIST):
        some = median(counts_of(each.calls)[verb] for each in found)
        yield Row(f"{title}.store_calls.{verb}.p50", some, "calls")
    yield Row(f"{title}.follow.p50", median(len(each.follow) for each in found), "calls")


async def hand_overs(folder: Path, partitions: int, before: Before) -> list[HandOver]:
    """Hand half of *partitions* over to a second node, one after the other."""
    calls: list[StoreCall] = []
    # One at a time: so the calls of one hand-over are those between its begin and its end.
    state = StateConfig(handoffs_max=1)
    stores = [CountedStore(FolderStore(folder), by=name, calls=calls) for name in (OLD, NEW)]
    async with a_node(folder, OLD, store=stores[0], state=state) as a:
        here = await a.open_keyspace(KEYSPACE, partitions=partitions, checkpoint_interval_s=3600.0)
        await whole(here, [OLD])
        await fill(here)
        if before.checkpoints:
            await checkpoint_all(here)
            await host_of(here).writer.trim()
        calls.clear()
        async with trio.open_nursery() as nursery:
            if before.writers:
                nursery.start_soon(write, here)
            async with a_node(folder, NEW, hosts=[a.address], store=stores[1], state=state) as b:
                there = await b.open_keyspace(KEYSPACE)
                await whole(there, [OLD, NEW])
                nursery.cancel_scope.cancel()
                found = list(calls)
    return hand_overs_in(found, host_of(here).keys)


def hand_overs_in(calls: Sequence[StoreCall], keys: KeyspaceKeys) -> list[HandOver]:
    """Find the hand-overs in *calls* of two nodes, of which one gains partitions one by one."""
    found: list[HandOver] = []
    released: StoreCall | None = None
    follow: list[StoreCall] = []
    some: list[StoreCall] = []
    for call in sorted(calls, key=lambda each: each.began_at):
        if call.by == NEW and is_commit(call, keys):
            continue
        if released is None:
            if call.by == OLD and released_by(call, keys):
                released, some = call, [call]
            elif call.by == NEW and is_of_data(call, keys):
                follow.append(call)
        elif call.by == NEW and (is_of_data(call, keys) or call.key == keys.dropped):
            some.append(call)
            if call.key == keys.dropped:
                found.append(HandOver(follow, some))
                released, follow = None, []
    return found


def released_by(call: StoreCall, keys: KeyspaceKeys) -> list[int]:
    """Return the partitions that *call* has released."""
    if call.verb != PUT or not call.key.startswith(keys.journals) or "/mark/" in call.key:
        return []
    record = codec.decode_record(call.value, call.key)
    entries = record.entries if isinstance(record, Group) else ()
    return [entry.partition for entry in entries if isinstance(entry.body, Release)]


def is_of_data(call: StoreCall, keys: KeyspaceKeys) -> bool:
    """Return whether *call* is of a partition, or of a journal."""
    return call.key.startswith((keys.journals, f"{keys.root}p/"))


def is_commit(call: StoreCall, keys: KeyspaceKeys) -> bool:
    """Return whether *call* puts into a journal: what the new owner has by then is written, too."""
    return call.verb == PUT and call.key.startswith(keys.journals)


def takeover(folder: Path) -> Iterator[Row]:
    """Calls of the node that takes over what a killed one had."""
    partitions_count, calls = trio.run(take_over, folder, TAKEN_PARTITIONS)
    title = f"state.takeover.{partitions_count}_partitions"
    yield Row(f"{title}.store_calls", len(calls) / partitions_count, "calls a partition")
    for verb, some in counts_of(calls).items():
        if some:
            yield Row(f"{title}.store_calls.{verb}", some / partitions_count, "calls a partition")
    slots = [call.key for call in calls if call.verb == GET and "/j/" in call.key]
    if slots:
        yield Row(f"{title}.reads_of_a_slot", len(slots) / len(set(slots)), "times")


async def take_over(folder: Path, partitions: int) -> tuple[int, list[StoreCall]]:
    """Kill one of two nodes; return how many partitions it had, and the calls of the other."""
    store = CountedStore(FolderStore(folder))
    with processes(folder, [NEW], partitions=partitions) as (other,):
        other.next_said()
        async with a_node(folder, OLD, hosts=[other.address], store=store) as node:
            keyspace = await node.open_keyspace(KEYSPACE, partitions=partitions)
            await whole(keyspace, [OLD, NEW])
            await fill(keyspace)
            count = keyspace.table.counts()[NEW]
            store.calls.clear()
            other.process.send_signal(signal.SIGKILL)
            await whole(keyspace, [OLD])
            keys = host_of(keyspace).keys
            return count, [
                call for call in store.calls if is_of_data(call, keys) or call.key == keys.dropped
            ]
