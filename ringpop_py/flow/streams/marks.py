"""How far the partitions are with a split, also one that continues a split of another name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ringpop_py.base.errors import BodyError, SourceFailed, SpanRefused
from ringpop_py.base.logs import log
from ringpop_py.base.values.operations import MARK_CLOSED, Outcome, Span
from ringpop_py.flow.streams.source import NamedSplit, SplitDiffers, number_of, original_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ringpop_py.base.errors import KeyspaceError
    from ringpop_py.flow.exchange.run import WorkerRun
    from ringpop_py.flow.streams.source import BadRecord, Record

AGAIN_S: Final = 0.05
AGAIN_S_MAX: Final = 5.0
CLOSED: Final = "it goes on as another file, its copy: what is added is not read"
SOURCE: Final = -1
"""The source, in place of a partition's number."""


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
        note: called with a partition, or `SOURCE`, and what is wrong with it: empty if nothing is.
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
        if not isinstance(split, NamedSplit) or max(marks.values()) >= MARK_CLOSED:
            return self._ordered(marks)
        first = await self._first(split)
        if split.is_copy and first not in ("", split) and not self._stream.has(first):
            marks = await self._taken_over(split, first, marks)
        if split.is_spare and not any(marks.values()):
            return None
        if split.alias and not (split.is_copy and first):  # so that a copy finds us
            await self._raise(split.alias, self._home(split), 0, number_of(split))
        return self._ordered(marks)

    def _ordered(self, marks: dict[int, int]) -> list[int]:
        return [marks[number] for number in range(self._partitions)]

    def _home(self, split: NamedSplit) -> int:
        return self._stream.partition_of(split.alias)

    async def _first(self, split: NamedSplit) -> str:
        """Return the name under which a split with this alias was read first; empty if none was."""
        if not split.is_copy or not split.alias:
            return ""
        home = self._home(split)
        number = (await self._of(split.alias, [home]))[home]
        return original_of(split.alias, number) if number else ""

    async def _taken_over(
        self, split: NamedSplit, first: str, marks: dict[int, int]
    ) -> dict[int, int]:
        """Go on with what was read as *first*, or as its copies; return the marks of the split.

        The former name is closed partition by partition, also where nothing was read, so that what
        its reader has under way counts before or not at all. If we die between, the next reader of
        the split goes on.
        """
        home, begun, closed = self._home(split), f"{split}+", MARK_CLOSED + number_of(split)
        before = await self._last(split, first, range(self._partitions))
        read = [mark for name, mark in before.values() if name != split]
        if not any(read) and split.is_spare:
            return marks
        if any(marks.values()) and not (await self._of(begun, [home]))[home]:
            return marks  # it was read beside the other one
        if any(self._stream.has(name) for name, _ in before.values() if name != split):
            return marks
        try:
            await self._check(split, max(read, default=0))
        except SplitDiffers as error:
            text = f"{first} was read before, and is another file now, read as a new one: {error}"
            log.warning("stream-loss", stream=self._stream.name, text=text)
            return marks
        await self._raise(begun, home, 0, 1)
        for number, place in before.items():
            former, mark = place
            while former != split:
                await self._raise(split, number, 0, mark)
                if await self._raise(former, number, mark, closed):
                    break
                former, mark = (await self._last(split, former, [number]))[number]
        return await self._of(split)

    async def _check(self, split: NamedSplit, position: int) -> None:
        """Check that a record of *split* ends at *position*. Raises SplitDiffers."""
        pause_s = AGAIN_S
        while True:
            try:
                await self._stream.records(split, position)
            except SplitDiffers:
                raise
            except SourceFailed as error:  # it may just have been renamed
                self._note(SOURCE, str(error))
            else:
                return
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)

    async def _last(
        self, split: NamedSplit, first: str, numbers: Collection[int]
    ) -> dict[int, tuple[str, int]]:
        """Return under which name each partition goes on, from *first* on, and its mark there.

        The mark of a name that is closed says which number goes on.
        """
        found: dict[int, tuple[str, int]] = {}
        later: dict[str, list[int]] = {}
        for number, mark in (await self._of(first, numbers)).items():
            if mark > MARK_CLOSED and first != split:
                name = original_of(split.alias, mark - MARK_CLOSED)
                later.setdefault(name, []).append(number)
            else:
                found[number] = first, mark
        for name, rest in later.items():
            found |= await self._last(split, name, rest)
        return found

    async def _raise(self, source: str, number: int, after: int, upto: int) -> bool:
        """Raise a mark; return whether it is *upto* now: a source is closed only at *after*."""
        if upto <= after:
            return True
        pause_s = AGAIN_S
        span = Span(self._stream.source_of(source), after, upto)
        while True:
            outcome = (await self._stream.write({number: span}))[number]
            if isinstance(outcome, Outcome):
                return mark_in(outcome) == upto
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
