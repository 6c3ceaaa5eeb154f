"""A stream: reads the splits of a source that are this node's, into a keyspace."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from ringpop_py.base.arguments import checked_callable, checked_text
from ringpop_py.base.errors import (
    BadOperation,
    BodyError,
    ConfigError,
    RecordRefused,
    SourceFailed,
    SpanRefused,
)
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import keep_running, one_line
from ringpop_py.base.values.operations import (
    MARK_CLOSED,
    SOURCE_CHARACTERS_MAX,
    Change,
    Outcome,
    Span,
    Write,
)
from ringpop_py.flow.streams.feed import Feed
from ringpop_py.flow.streams.source import (
    BadRecord,
    NamedSplit,
    Record,
    SplitDiffers,
    label_of,
    losses_of,
    number_of,
    original_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ringpop_py.base.errors import KeyspaceError
    from ringpop_py.base.values.operations import Value
    from ringpop_py.flow.streams.feed import Sending
    from ringpop_py.flow.streams.source import Source
    from ringpop_py.state.keyspaces.keyspace import Keyspace

T = TypeVar("T")

READ_RECORDS: Final = 4_000
HELD_MAX: Final = 20_000
"""The most records of a split in memory: back-pressure of a slow keyspace on its source."""
LOOK_S: Final = 1.0
"""The seconds between two looks for new splits, and for those that belong to this node."""
HELD_BYTES_MAX: Final = 64 << 20
IDLE_S: Final = 0.1
IDLE_S_MAX: Final = 2.0
"""The longest pause, in seconds, between two looks at a split without new records."""
AGAIN_S: Final = 0.05
AGAIN_S_MAX: Final = 5.0
SPLITS_MAX: Final = 4_000
"""The most splits of a stream: a partition keeps the marks of a few more sources than that."""
THREADS: Final = 8
"""The most splits that are read at the same time."""
NAME_CHARACTERS_MAX: Final = 64
TEXT_SHOWN: Final = 200
CLOSED: Final = "it goes on as another file, its copy: what is added is not read"
SOURCE: Final = -1
"""The source, in place of a partition's number."""


@dataclass(slots=True)
class SplitStatus:
    """The progress of one split, as its reader here knows it.

    Attributes:
        read: the position up to which it was read.
        counted: the position up to which all partitions have it; later records may be under way.
        held: how many records are in memory.
        records: how many this reader has brought.
        refused: how many were left out, because they could not be used.
        trouble: the reason why it makes no progress now; empty if it does.
    """

    split: str
    read: int = 0
    counted: int = 0
    held: int = 0
    records: int = 0
    refused: int = 0
    trouble: str = ""


class Stream:
    """See the module. Made by `start_stream`; it ends with its node.

    Each node that has the keyspace starts the stream. Its splits are shared out by the partitions
    of the keyspace: the owner of the key ``STREAM/SPLIT`` reads a split, and whoever owns it next
    goes on where the partitions are. Each record counts once (`Span`).
    """

    def __init__(
        self,
        keyspace: Keyspace,
        source: Source,
        operation: str,
        *,
        name: str,
        argument: Callable[[Value], Value] | None = None,
        refused: Callable[[Record | BadRecord, str], object] | None = None,
    ) -> None:
        self.name = name
        self._keyspace = keyspace
        self._source = source
        self._operation = operation
        self._argument = argument
        self._refused = refused
        self._readers: dict[str, tuple[_Reader, trio.CancelScope]] = {}
        # A limiter of its own: a hanging source must not take, for example, discovery's threads.
        self._threads = trio.CapacityLimiter(THREADS)
        self._names: frozenset[str] = frozenset()
        self.trouble = ""
        self.records_count = 0
        self.refused_count = 0

    def status(self) -> list[SplitStatus]:
        """Return the progress of the splits that this node reads, by name."""
        found = [reader.status for reader, _ in self._readers.values() if not reader.is_spare]
        return sorted(found, key=lambda status: status.split)

    def rows(self) -> list[dict[str, Any]]:
        """As `status`, as plain values, with the names of the stream and its keyspace."""
        about = {"keyspace": self._keyspace.name, "stream": self.name}
        found = self.status()
        if self.trouble:
            found.append(SplitStatus("", trouble=self.trouble))
        found += [SplitStatus("", trouble=text) for text in losses_of(self._source)]
        return [{**about, **asdict(status)} for status in found]

    async def run(self) -> None:
        """Read until cancelled."""
        self._readers.clear()
        async with trio.open_nursery() as nursery:
            while True:
                for split in await self._ours():
                    if split in self._readers:
                        self._readers[split][0].status.split = label_of(split)
                    else:
                        reader, scope = _Reader(self, self._keyspace, split), trio.CancelScope()
                        self._readers[split] = reader, scope
                        nursery.start_soon(self._read, reader, scope)
                await trio.sleep(LOOK_S)

    async def _read(self, reader: _Reader, scope: trio.CancelScope) -> None:
        label = reader.status.split
        try:
            with scope:
                await keep_running(f"stream {self.name}, split {label}", reader.run)
        finally:
            del self._readers[reader.split]

    async def _ours(self) -> list[str]:
        """Return the splits that this node should read; have the readers of others end."""
        try:
            splits = await self.in_thread(self._source.splits)
        except SourceFailed as error:
            self._say("the splits cannot be listed", error)
            return []
        usable = [split for split in splits if label_of(split).isprintable()][:SPLITS_MAX]
        self._names = frozenset(usable)
        owner_of, us = self._keyspace.owner_of, self._keyspace.owners.node_name
        ours = [split for split in usable if owner_of(self.source_of(split)) == us]
        for split in self._readers.keys() - set(ours):
            self._readers[split][1].cancel()
        if len(usable) == len(splits):
            self.trouble = ""
        elif len(usable) == SPLITS_MAX:
            self._say("there are too many splits", f"{len(splits)}, and at most {SPLITS_MAX}")
        else:
            unusable = next(split for split in map(label_of, splits) if not split.isprintable())
            self._say("a split is left out, as its name cannot be printed", ascii(unusable))
        return ours

    def _say(self, what: str, why: object) -> None:
        text = f"{what}: {why}"
        if text != self.trouble:
            log.warning("stream-trouble", stream=self.name, text=text)
        self.trouble = text

    # For readers.

    def source_of(self, split: str) -> str:
        """Return the name by which partitions know *split*."""
        return f"{self.name}/{split}"

    def partition_of(self, split: str) -> int:
        """Return the partition of the name of *split*."""
        return self._keyspace.partition_of(self.source_of(split))

    def has(self, split: str) -> bool:
        """Return whether the source had *split* when it was last looked at."""
        return split in self._names

    async def records(self, split: str, after: int) -> Sequence[Record | BadRecord]:
        """Return the next records of *split*, as the operation's arguments. Raises SourceFailed."""
        return await self.in_thread(partial(self._read_some, split, after))

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run a *function* that may block."""
        return await trio.to_thread.run_sync(
            function, abandon_on_cancel=True, limiter=self._threads
        )

    def _read_some(self, split: str, after: int) -> Sequence[Record | BadRecord]:
        found = self._source.read(split, after, READ_RECORDS)
        argument_of = self._argument
        return found if argument_of is None else [_applied(argument_of, each) for each in found]

    async def write(
        self, spans: Mapping[int, Span], records: Sequence[Record] = ()
    ) -> dict[int, Outcome | KeyspaceError]:
        """Write *records* to the partitions of *spans*; return the outcomes, by partition."""
        changes = tuple(Change(record.key, self._operation, record.value) for record in records)
        writes = {number: [Write("", 0, changes, span=span)] for number, span in spans.items()}
        found = await self._keyspace.write(writes)
        return {number: outcomes[0] for number, outcomes in found.items()}

    async def refuse(self, record: Record | BadRecord, why: str) -> bool:
        """Give the application a record that cannot be used; return whether to go on."""
        if self._refused is None:
            return False
        await self.in_thread(partial(self._refused, record, why))
        self.refused_count += 1
        self._keyspace.stage.operations.stream.refused += 1
        return True


def _applied(
    argument_of: Callable[[Value], Value], record: Record | BadRecord
) -> Record | BadRecord:
    if isinstance(record, BadRecord):
        return record
    try:
        return record._replace(value=argument_of(record.value))
    except Exception as error:  # noqa: BLE001 - of the application's own function
        why = f"the argument cannot be made: {type(error).__name__}: {error}"
        return BadRecord(record.position, why, repr(record.value)[:TEXT_SHOWN])


class _Reader:
    """Reads one split, until it is cancelled."""

    def __init__(self, stream: Stream, keyspace: Keyspace, split: str) -> None:
        self.split = split
        self.is_spare = False
        self.status = SplitStatus(label_of(split))
        self._stream = stream
        self._keyspace = keyspace
        self._source = stream.source_of(split)
        self._progress = trio.Event()
        self._stopped_at: int | None = None
        self._troubles: dict[int, str] = {}

    async def run(self) -> None:
        """Bring the records of the split to their partitions."""
        try:
            await self._run()
        except Exception as error:  # it is logged, and the reader restarted
            self._note(SOURCE, f"it has failed: {one_line(error)}")
            raise

    async def _run(self) -> None:
        if len(self._source) > SOURCE_CHARACTERS_MAX:
            why = f"the name {self._source!r} has more than {SOURCE_CHARACTERS_MAX} characters"
            self._note(SOURCE, why)
            await trio.sleep_forever()
        self._stopped_at = None
        marks = await Marks(self._stream, self.split, self._keyspace.partitions, self._note).begin()
        self.is_spare = marks is None
        if marks is None:
            await trio.sleep_forever()
        if max(marks) >= MARK_CLOSED:
            self._note(SOURCE, CLOSED)
            await trio.sleep_forever()
        feed: Feed[Record] = Feed(marks)
        pause_s = IDLE_S
        async with trio.open_nursery() as nursery:
            while True:
                progress = self._progress
                found = await self._fill(feed)
                # If a source trickles, all partitions need not hear of each record immediately.
                is_idle = not found and pause_s >= IDLE_S_MAX
                for sending in feed.next(all_of_it=is_idle):
                    nursery.start_soon(self._bring, feed, sending)
                self._tell(feed)
                pause_s = IDLE_S if found else min(2 * pause_s, IDLE_S_MAX)
                if not found:  # nothing is there, or there is no room
                    with trio.move_on_after(pause_s):
                        await progress.wait()

    async def _fill(self, feed: Feed[Record]) -> bool:
        """Read on, if there is room; return whether records came."""
        has_room = feed.held < HELD_MAX and feed.held_bytes < HELD_BYTES_MAX
        if not has_room or self._stopped_at is not None:
            return False
        try:
            found = await self._stream.records(self.split, feed.read)
        except SourceFailed as error:
            self._note(SOURCE, str(error))
            return False
        for record in found:
            if isinstance(record, Record):
                number = self._keyspace.partition_of(record.key)
                feed.add(record.position, number, record, record.size)
            elif await self._refuse(record, record.why):
                feed.skip(record.position)
            else:
                break
        else:
            self._note(SOURCE, "")
        return bool(found)

    async def _refuse(self, record: Record | BadRecord, why: str) -> bool:
        """Leave a record out, or read no further; return whether it is left out."""
        if await self._stream.refuse(record, why):
            self.status.refused += 1
            return True
        if self._stopped_at is None or record.position < self._stopped_at:
            self._stopped_at = record.position
            self._note(SOURCE, f"it stops at position {record.position}: {why}")
        return False

    async def _bring(self, feed: Feed[Record], sending: Sending[Record]) -> None:
        """Write a group to its partition, in spite of any obstacle."""
        number, after, upto, rows, _ = sending
        records = [record for _, record in rows]
        positions = tuple(position for position, _ in rows)
        why = await self._offer(feed, number, Span(self._source, after, upto, positions), records)
        if not why:
            return
        for position, record in rows:  # one of them is at fault
            span = Span(self._source, after, position, (position,))
            why = await self._offer(feed, number, span, [record])
            if why and not await self._refuse(record, why):
                await trio.sleep_forever()
            if why:
                await self._offer(feed, number, Span(self._source, after, position), [])
            after = position
        if after < upto:
            await self._offer(feed, number, Span(self._source, after, upto), [])

    async def _offer(
        self, feed: Feed[Record], number: int, span: Span, records: Sequence[Record]
    ) -> str:
        """Write *records* to a partition; return why it never accepts them, if one is at fault.

        Anything else is tried again: members may have different versions, or be in trouble.
        """
        pause_s = AGAIN_S
        while True:
            progress = self._progress
            outcome = (await self._stream.write({number: span}, records))[number]
            if isinstance(outcome, Outcome):
                self.status.records += len(records)
                self._stream.records_count += len(records)
                self._keyspace.stage.operations.stream.done += len(records)
                feed.taken(number, mark_in(outcome))
                self._note(number, "")
                self._tell(feed)
                self._progress.set()
                self._progress = trio.Event()
                return ""
            if isinstance(outcome, RecordRefused):
                return str(outcome)
            if not isinstance(outcome, SpanRefused):  # otherwise an earlier group is under way
                self._note(number, str(outcome))
            with trio.move_on_after(pause_s):
                await progress.wait()
            pause_s = min(2 * pause_s, AGAIN_S_MAX)

    def _tell(self, feed: Feed[Record]) -> None:
        status = self.status
        status.read, status.held = feed.read, feed.held
        status.counted = min(feed.read, *feed.marks)

    def _note(self, where: int, trouble: str) -> None:
        """Note what is wrong with a partition, or with the `SOURCE`; empty if nothing is."""
        if trouble == self._troubles.get(where, ""):
            return
        if trouble:
            self._troubles[where] = trouble
            about = {"stream": self._stream.name, "split": self.status.split}
            of = {} if where == SOURCE else {"partition": where}
            log.warning("stream-trouble", **about, **of, text=trouble)
        else:
            del self._troubles[where]
        first = min(self._troubles, default=SOURCE)  # the source before all partitions
        text = self._troubles.get(first, "")
        self.status.trouble = text if first == SOURCE else f"partition {first}: {text}"


class Marks:
    """Asks the partitions for the marks of *split*, and has it go on where its former names are.

    Args:
        note: called with a partition, or `SOURCE`, and what is wrong with it: empty if nothing is.
    """

    def __init__(
        self,
        stream: Stream,
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


def start_stream(
    keyspace: Keyspace,
    source: Source,
    operation: str,
    *,
    name: str,
    argument: Callable[[Value], Value] | None = None,
    refused: Callable[[Record | BadRecord, str], object] | None = None,
) -> Stream:
    """Read *source* into *keyspace* from now on, each record once; return immediately.

    Every node that has the keyspace starts the same stream, under the same name: its splits are
    shared out among them, and go on elsewhere if a node dies.

    Args:
        operation: what a record does to its key: an operation of `Keyspace.update`, such as
            ``add``, or the name of an aggregation that was registered here before.
        name: the name of the stream. Under another name, everything is read and counts again.
        argument: returns the operation's argument for a record's value, in a thread; by default
            the argument is the value itself.
        refused: is called, in a thread, with each record that cannot be used, and why, and the
            stream goes on without it. After a crash it may be called again for the same record. If
            it is None, a split stops at such a record, and its status says so.

    Raises:
        ConfigError: if an argument cannot be used, this node does not know *operation*, the stream
            was started here before, or the keyspace is in memory mode: its copies could not agree
            how far a source was read.
    """
    if keyspace.definition.mode != "durable":
        raise ConfigError(
            f"keyspace {keyspace.name!r} is in memory mode, and a stream needs a store"
        )
    check_stream(name, source, refused, "stream")
    try:
        keyspace.aggregations.find(checked_text(operation, "an operation"))
    except BadOperation as error:
        raise ConfigError(
            f"operation of stream {name!r}: {error}. Register an aggregation of your own at each"
            " node, before its streams start: each may own partitions"
        ) from None
    _check_plain(argument, "argument")
    if name in keyspace.streams:
        raise ConfigError(f"this node has started a stream {name!r} into {keyspace.name!r} already")
    stream = Stream(keyspace, source, operation, name=name, argument=argument, refused=refused)
    keyspace.spawn(partial(keep_running, f"stream {name}", stream.run))
    keyspace.streams[name] = stream
    return stream


def check_stream(name: str, source: object, refused: object, what: str) -> None:
    """Check the common arguments of streams and dataflows. Raises ConfigError."""
    is_short = 0 < len(checked_text(name, f"a {what}'s name")) <= NAME_CHARACTERS_MAX
    if not is_short or "/" in name or not name.isprintable():
        raise ConfigError(
            f"a {what}'s name has 1 to {NAME_CHARACTERS_MAX} printable characters, and no '/'"
        )
    for method in ("splits", "read"):
        if not callable(getattr(source, method, None)):
            raise ConfigError(f"a source has splits and read; {source!r:.100} has no {method}")
    _check_plain(refused, "refused")


def _check_plain(function: object, what: str) -> None:
    if function is None:
        return
    checked_callable(function, what)
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{what} is called in a thread, so it cannot be an async function")
