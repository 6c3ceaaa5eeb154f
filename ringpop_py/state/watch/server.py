"""Watchers at owners, and the question to all owners of which the first to have news ends it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.base.errors import BadOperation, KeyspaceError, PartitionUnavailable
from ringpop_py.base.values.declared import convert, encode, replace
from ringpop_py.state.messages import WATCH
from ringpop_py.state.watch.messages import Watched, WatchRequest
from ringpop_py.state.watch.recent import AnswerRoom, RecentChanges, weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ringpop_py.state.shares.dispatcher import Dispatcher
    from ringpop_py.state.shares.host import Host
    from ringpop_py.state.shares.server import Held
    from ringpop_py.state.table.keyed import KeyedState
    from ringpop_py.state.watch.recent import Listener

CROWD: Final = 16
"""The watchers of a partition that are answered for each change."""
GATHER_S: Final = 0.001
"""For each of more watchers, how long changes gather before they are answered. So a crowd costs
about half of a processor, in which it reads them itself, whatever its number."""
GATHER_S_MAX: Final = 1.0
TOGETHER_BYTES: Final = 4 << 20
"""The most bytes of the answers of all owners together that a client is sent; or one part."""
SPARE_S: Final = 5.0
"""How long an owner may take to answer, besides the wait."""


class _Watcher:
    """One question to this node, until it is answered."""

    def __init__(self, request: WatchRequest) -> None:
        self.rung = trio.Event()
        self.crowd = 0  # of watchers of one partition
        self.is_late = False  # whether the asker has to learn how far a partition is
        self._request = request
        self._room = AnswerRoom()
        self._parts = {part.number: part for part in request.parts}
        self._listened: dict[int, tuple[RecentChanges, Listener]] = {}
        self._current: set[int] = set()  # of which nothing has come since the last look

    async def look(self, partition: Held) -> Watched:
        """Return what the part of *partition* has, and be told what changes there."""
        number, recent = partition.number, partition.state.changes
        if not isinstance(recent, RecentChanges):
            raise BadOperation("only durable keyspaces can be watched: copies in memory may differ")
        self._listen(number, recent)
        part = self._parts[number]

        def found_in(state: KeyedState) -> Watched:
            found = recent.look(self._request, part, state, self._room)
            if part.after is not None and not found.rows:
                self._current.add(number)
            return found

        # Only the true owner knows whether what is no past number here is a gap.
        is_past = part.after is not None and part.after <= recent.newest
        return await partition.read(found_in, stale=is_past)

    def _listen(self, number: int, recent: RecentChanges) -> None:
        self._current.discard(number)
        if not self._listened:
            recent.counts.waiting += 1
        if self._listened.get(number, (None,))[0] is not recent:
            listener = partial(self._heard, number)
            self._listened[number] = recent, listener
            recent.listeners.add(listener)
        self.crowd = max(self.crowd, len(recent.listeners))

    def _heard(self, number: int, keys: Iterable[str]) -> None:
        # Changes of other keys wake nobody. But before what follows the place that the asker knows
        # is forgotten, it has to learn a later one; otherwise it would meet a gap at last.
        if number in self._current and not any(map(self._request.wants, keys)):
            if not self._listened[number][0].is_old(self._parts[number].after):
                return
            self.is_late = True
        self._current.discard(number)
        self.rung.set()

    def end(self) -> None:
        """Listen no longer."""
        for recent, listener in self._listened.values():
            recent.listeners.discard(listener)
        for recent, _ in islice(self._listened.values(), 1):
            recent.counts.waiting -= 1


async def watched_here(host: Host, request: WatchRequest) -> list[Any]:
    """Return what each part of *request* has at this node: a `Watched`, or a `PartResult`.

    If that is no news, it waits up to *wait_ms* for some, or until partitions come or go.
    """
    until = trio.current_time() + request.wait_ms / 1_000
    watcher = _Watcher(request)
    try:
        while True:
            changed, watcher.rung = host.changed, trio.Event()
            results = await host.each(request.numbers, watcher.look)
            waits = all(map(_is_empty, results)) and not watcher.is_late
            if not waits or trio.current_time() >= until:
                return results
            with trio.move_on_at(until):
                await _either(watcher.rung, changed)
                if watcher.rung.is_set() and watcher.crowd > CROWD:
                    await trio.sleep(min((watcher.crowd - CROWD) * GATHER_S, GATHER_S_MAX))
    finally:
        watcher.end()


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
    """A `WatchRequest` for a dispatcher.

    Attributes:
        for_client: whether it is of a client, for which the end of this node must not wait.
    """

    request: WatchRequest
    host: Host
    for_client: bool = False
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

    Raises:
        PartitionUnavailable: it is for a client, and this node is about to end: ask another one.
    """
    if not wanted.for_client:
        return await _watched(dispatcher, wanted)
    host = wanted.host
    async with trio.open_nursery() as nursery:

        async def end() -> None:
            while not host.ending:
                await host.changed.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(end)
        found = await _watched(dispatcher, wanted)
        nursery.cancel_scope.cancel()
        return found
    raise PartitionUnavailable("this node is about to end: ask another one")


async def _watched(dispatcher: Dispatcher, wanted: WatchesOf) -> dict[int, object]:
    request, host = wanted.request, wanted.host
    by_owner: dict[str, list[int]] = defaultdict(list)
    for number in request.numbers:
        by_owner[host.destination(number)].append(number)
    after = {part.number: part.after for part in request.parts}
    results: dict[int, object] = {}
    deadline = trio.current_time() + request.wait_ms / 1_000 + SPARE_S
    if len(by_owner) == 1:  # the usual case, of one key, needs no nursery
        return await dispatcher.ask(wanted, request.numbers, deadline)
    async with trio.open_nursery() as nursery:

        async def ask(numbers: list[int]) -> None:
            found = await dispatcher.ask(WatchesOf(request, host), numbers, deadline)
            results.update(found)
            # When the time is over all answer, and where they are is lost if one ends the others.
            places = {} if trio.current_time() >= deadline - SPARE_S else after
            if request.wait_ms and any(_is_news(found[n], places.get(n)) for n in numbers):
                nursery.cancel_scope.cancel()

        for numbers in by_owner.values():
            nursery.start_soon(ask, numbers)
    return results


def that_fit(results: Mapping[int, object]) -> list[tuple[int, object]]:
    """Return those of *results* that a client is sent; it asks for the others again."""
    fitted: list[tuple[int, object]] = []
    left = TOGETHER_BYTES
    for number, result in results.items():
        rows = result.rows if isinstance(result, Watched) else ()
        size = sum(weight(key, packed) for _, key, packed in rows)
        if size <= left or left == TOGETHER_BYTES:
            fitted.append((number, result))
            left -= size
    return fitted


def _is_news(result: object, after: int | None) -> bool:
    if isinstance(result, Watched):
        return bool(result.rows) or (after is not None and result.upto != after)
    return isinstance(result, KeyspaceError) and not result.passes
