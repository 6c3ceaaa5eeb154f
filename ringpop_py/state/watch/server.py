"""Watchers at owners, and the question to all owners of which the first to have news ends it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.base.errors import BadOperation
from ringpop_py.base.values.declared import convert, encode, replace
from ringpop_py.state.messages import WATCH
from ringpop_py.state.watch.course import is_news
from ringpop_py.state.watch.messages import Watched, WatchRequest
from ringpop_py.state.watch.recent import AnswerRoom, RecentChanges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.state.shares.dispatcher import Dispatcher
    from ringpop_py.state.shares.host import Host
    from ringpop_py.state.shares.server import Held

CROWD: Final = 16
"""The watchers of a partition that are answered for each change."""
GATHER_S: Final = 0.0004
"""For each of more watchers, how long changes gather before they are answered. So a change costs a
crowd less than half of a processor, whatever the number of its watchers."""
GATHER_S_MAX: Final = 1.0
SPARE_S: Final = 5.0
"""How long an owner may take to answer, besides the wait."""


class _Bell:
    """Wakes a watcher at the next change of any of its partitions."""

    def __init__(self) -> None:
        self.rung = trio.Event()

    def ring(self) -> None:
        self.rung.set()


async def watched_here(host: Host, request: WatchRequest) -> list[Any]:
    """Return what each part of *request* has at this node: a `Watched`, or a `PartResult`.

    If that is no news, it waits up to *wait_ms* for some, or until partitions come or go.
    """
    until = trio.current_time() + request.wait_ms / 1_000
    wanted = {part.number: part for part in request.parts}
    followed: set[RecentChanges] = set()
    bell, room = _Bell(), AnswerRoom()

    async def look(partition: Held) -> Watched:
        recent = partition.state.changes
        if not isinstance(recent, RecentChanges):
            raise BadOperation("only durable keyspaces can be watched: copies in memory may differ")
        recent.waiting.add(bell.ring)  # first, so that no change comes between
        followed.add(recent)
        part = wanted[partition.number]
        # Only the true owner knows whether what is no past number here is a gap.
        is_past = part.after is not None and part.after <= recent.newest
        found = await partition.read(
            lambda state: recent.look(request, part, state, room), stale=is_past
        )
        if part.after is not None:
            wanted[partition.number] = replace(part, after=found.upto)
        return found

    try:
        while True:
            changed, bell.rung = host.changed, trio.Event()
            results = await host.each(request.numbers, look)
            waits = all(map(_is_empty, results)) and not host.ending
            if not waits or trio.current_time() >= until:
                return results
            with trio.move_on_at(until):
                await _either(bell.rung, changed)
                crowd = max((len(recent.waiting) for recent in followed), default=0) - CROWD
                if bell.rung.is_set() and crowd > 0:
                    await trio.sleep(min(crowd * GATHER_S, GATHER_S_MAX))
    finally:
        for recent in followed:
            recent.waiting.discard(bell.ring)


def _is_empty(result: object) -> bool:
    return isinstance(result, Watched) and not result.rows


async def _either(first: trio.Event, second: trio.Event) -> None:
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            await second.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait)
        await first.wait()
        nursery.cancel_scope.cancel()


@dataclass(slots=True)
class WatchesOf:
    """A `WatchRequest` for a dispatcher."""

    request: WatchRequest
    host: Host
    asked: set[int] = field(default_factory=set)
    endpoint = WATCH
    changes_state = False
    kind = ""

    def _only(self, numbers: Sequence[int]) -> WatchRequest:
        # A part that has moved is asked for again, while others have their answer: without a wait.
        request = self.request
        again = not self.asked.isdisjoint(numbers)
        self.asked.update(numbers)
        parts = tuple([part for part in request.parts if part.number in numbers])
        return replace(request, parts=parts, wait_ms=0 if again else request.wait_ms)

    def encode(self, numbers: Sequence[int]) -> bytes:
        """See `PartitionRequest`."""
        return encode(self._only(numbers))

    def decode(self, _number: int, result: Any) -> Watched:  # noqa: ANN401 - as it came
        """See `PartitionRequest`."""
        return convert(Watched, result)

    def size(self, _number: int) -> int:
        """See `MemberRequest`."""
        return 1

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `MemberRequest`."""
        return await watched_here(self.host, self._only(numbers))


async def watched(dispatcher: Dispatcher, wanted: WatchesOf) -> dict[int, object]:
    """Return what the parts of *wanted* have, by partition; without those nobody answered for.

    If it waits, the first news of any owner end it; and otherwise the last answer.
    """
    request, host = wanted.request, wanted.host
    by_owner: dict[str, list[int]] = defaultdict(list)
    for number in request.numbers:
        by_owner[host.destination(number)].append(number)
    results: dict[int, object] = {}
    deadline = trio.current_time() + request.wait_ms / 1_000 + SPARE_S
    if len(by_owner) == 1:  # the usual case, of one key, needs no nursery
        return await dispatcher.ask(wanted, request.numbers, deadline)
    async with trio.open_nursery() as nursery:

        async def ask(numbers: list[int]) -> None:
            found = await dispatcher.ask(WatchesOf(request, host), numbers, deadline)
            results.update(found)
            if request.wait_ms and any(map(is_news, found.values())):
                nursery.cancel_scope.cancel()

        for numbers in by_owner.values():
            nursery.start_soon(ask, numbers)
    return results
