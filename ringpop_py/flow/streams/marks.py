"""How far the partitions are with a split, also one that continues a split of another name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ringpop_py.base.errors import BodyError, SourceFailed, SpanRefused
from ringpop_py.base.logs import log
from ringpop_py.base.values.operations import MARK_CLOSED, Outcome, Span
from ringpop_py.flow.streams.source import NamedSplit, number_of, original_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ringpop_py.base.errors import KeyspaceError
    from ringpop_py.flow.exchange.run import WorkerRun
    from ringpop_py.flow.streams.source import BadRecord, Record

AGAIN_S: Final = 0.05
AGAIN_S_MAX: Final = 5.0


class Bringing(Protocol):
    """What is needed of a stream."""

    name: str

    def source_of(self, split: str) -> str:
        """Return the name by which partitions know *split*."""

    def partition_of(self, split: str) -> int:
        """Return the partition of the name of *split*."""

    def has(self, split: str) -> bool:
        """Return whether the source has *split*."""

    async def records(self, split: str, after: int) -> Sequence[Record | BadRecord]:
        """Return the next records of *split*. Raises SourceFailed."""

    async def write(self, spans: Mapping[int, Span], /) -> dict[int, Outcome | KeyspaceError]:
        """Write *spans*; return the outcomes, by partition."""


class Marks:
    """Asks the partitions for the marks of *split*, and has it go on where its former names are.

    Args:
        note: is called with a partition and its trouble, which is empty if there is none.
    """

    def __init__(
        self,
        stream: Bringing,
        split: str,
        partitions: int,
        note: Callable[[int, str], None],
    ) -> None:
        self._stream = stream
        self._split = split
        self._partitions = partitions
        self._note = note

    async def begin(self) -> list[int] | None:
        """Return the marks of the split, by partition; None if it is not to be read."""
        split, marks = self._split, await self._of(self._split)
        if not isinstance(split, NamedSplit):
            return self._ordered(marks)
        for former in await self._originals(split):
            marks = await self._taken_over(former, marks)
        if split.is_spare and not any(marks.values()):
            return None
        if split.alias and not split.is_copy:  # so that a copy finds us
            await self._raise(
                split.alias, self._stream.partition_of(split.alias), 0, number_of(split)
            )
        return self._ordered(marks)

    def _ordered(self, marks: dict[int, int]) -> list[int]:
        return [marks[number] for number in range(self._partitions)]

    async def _originals(self, split: NamedSplit) -> list[str]:
        if not split.is_copy or not split.alias:
            return []
        home = self._stream.partition_of(split.alias)
        number = (await self._of(split.alias, [home]))[home]
        name = original_of(split.alias, number)
        return [] if not number or name == split or self._stream.has(name) else [name]

    async def _taken_over(self, former: str, marks: dict[int, int]) -> dict[int, int]:
        """Go on with what was read as *former*; return the marks of the split.

        The former name is closed partition by partition, so that what its reader has under way
        counts before or not at all. If we die between, the next reader of the split goes on.
        """
        before = await self._of(former)
        still = [number for number, mark in before.items() if 0 < mark < MARK_CLOSED]
        if not still or (any(marks.values()) and MARK_CLOSED not in before.values()):
            return marks
        try:
            await self._stream.records(self._split, max(before[number] for number in still))
        except SourceFailed as error:
            text = f"{former} was read before, and is another file now, read as a new one: {error}"
            log.warning("stream-loss", stream=self._stream.name, text=text)
            return marks
        for number in still:
            mark = before[number]
            while True:
                await self._raise(self._split, number, marks[number], mark)
                if await self._raise(former, number, mark, MARK_CLOSED):
                    break
                mark = (await self._of(former, [number]))[number]
        return await self._of(self._split)

    async def _raise(self, source: str, number: int, after: int, upto: int) -> bool:
        """Raise a mark; return False if it is not at *after*, although it has to be."""
        if upto <= after:
            return True
        pause_s = AGAIN_S
        span = Span(self._stream.source_of(source), after, upto)
        while True:
            outcome = (await self._stream.write({number: span}))[number]
            if isinstance(outcome, Outcome):
                return True
            if isinstance(outcome, SpanRefused):
                return False
            self._note(number, f"it does not take over what was read: {outcome}")
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)

    async def _of(self, source: str, numbers: Collection[int] = ()) -> dict[int, int]:
        """Return the mark of each partition; wait for partitions that no member serves."""
        marks: dict[int, int] = {}
        wanted = numbers or range(self._partitions)
        ask, pause_s = Span(self._stream.source_of(source), 0, 0), AGAIN_S
        while True:
            missing = [number for number in wanted if number not in marks]
            for number, outcome in (await self._stream.write(dict.fromkeys(missing, ask))).items():
                if isinstance(outcome, Outcome):
                    marks[number] = mark_in(outcome)
                    self._note(number, "")
                else:
                    self._note(number, f"it does not say how far it is: {outcome}")
            if len(marks) == len(wanted):
                return marks
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)


def mark_in(outcome: Outcome) -> int:
    """Return the mark that is the *outcome* of a write with a span."""
    [mark] = outcome.values
    if not isinstance(mark, int):
        raise BodyError(f"a mark is a whole number, not {mark!r:.100}")
    return mark


def wanted_of(run: WorkerRun[Any], splits: Sequence[str], now: float) -> list[str]:
    """Return those of *splits* that a dataflow's *run* is to read, once it has former names."""
    present = set(splits)
    wanted: list[str] = []
    for split in splits:
        formers: list[str] = []
        if isinstance(split, NamedSplit) and split.is_copy and split.alias:
            formers = run.known_like(split.alias)
        was_read = run.take_over(split, [each for each in formers if each not in present], now)
        if was_read or not isinstance(split, NamedSplit) or not split.is_spare:
            wanted.append(split)
    return wanted
