"""One schedule: sources, their readers, and partitions behind an unreliable network."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import SpanRefused
from ringpop_py.base.values.operations import Change, Outcome, Span, Write
from ringpop_py.base.values.packed import encode_value
from ringpop_py.flow.streams.feed import Feed
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.evaluator import mark_name
from ringpop_py.state.table.keyed import KeyedState
from ringpop_sim.flow.streams.truth import (
    ERROR,
    INVARIANTS,
    LIVE,
    StreamTruth,
    key_of,
)
from ringpop_sim.heap import Heap
from ringpop_sim.state.journal.promises import PromiseBroken
from ringpop_sim.state.journal.sweep import Checker, ScheduleOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.flow.streams.feed import Sending

PARTITIONS: Final = 3
SOURCES: Final = ("a", "b")
RECORDS_MAX: Final = 40
GROUP_RECORDS: Final = 4
BEHIND_MAX: Final = 6
DELAY_MAX: Final = 30
TIMEOUT: Final = 40
FAULTY_UNTIL: Final = 400
OVER: Final = 3_000
"""The instant by which everything has long been read."""
WEIRD: Final = 0.25
"""The share of messages that are lost, late or doubled."""


class Partition:
    """The state of one partition; its owner does not matter, as its writes follow each other."""

    def __init__(self) -> None:
        self.state = KeyedState(lambda value: encode_value("msgpack", value), Aggregations())

    def take(self, write: Write) -> object:
        """Return the outcome of *write*."""
        body, (outcome,) = self.state.stage([write])
        if body is not None:
            self.state.apply(body)
        return outcome


class Reader:
    """Reads one source, and has a feed bring its records to the partitions."""

    def __init__(self, world: StreamSchedule, source: str, name: str) -> None:
        self.name = name
        self.gone = False
        self._world = world
        self._source = source
        self._feed: Feed[int] | None = None
        self._found: dict[int, int] = {}
        self._ask_marks()

    def _ask_marks(self) -> None:
        if self.gone or self._feed is not None:
            return
        for number in range(PARTITIONS):
            if number not in self._found:
                self._world.ask_mark(self, number, partial(self._marked, number))
        self._world.after(TIMEOUT, self._ask_marks)

    def _marked(self, number: int, mark: int) -> None:
        self._found[number] = mark
        if len(self._found) == PARTITIONS and self._feed is None:
            marks = [self._found[each] for each in range(PARTITIONS)]
            self._feed = Feed(marks, group_records=GROUP_RECORDS, behind_max=BEHIND_MAX)
            self._read()

    def _read(self) -> None:
        world, feed = self._world, self._feed
        if self.gone or feed is None:
            return
        rows = [row for row in world.records[self._source] if row[0] > feed.read]
        for position, number in rows[: world.rng.randrange(1, 6)]:
            feed.add(position, number, position)
        for sending in feed.next(all_of_it=not rows):
            self._bring(sending)
        if rows or not feed.done:
            world.after(world.rng.randrange(1, 12), self._read)

    def _bring(self, sending: Sending[int]) -> None:
        """Send a group, again and again until its partition has it."""
        feed = self._feed
        assert feed is not None
        if self.gone or feed.marks[sending.partition] >= sending.upto:
            return
        changes = [
            Change(key_of(self._source, position), "add", 1) for position, _ in sending.records
        ]
        positions = tuple(position for position, _ in sending.records)
        span = Span(self._source, sending.after, sending.upto, positions)
        write = Write("", 0, tuple(changes), span=span)
        self._world.send(self, sending.partition, write, partial(self._answered, sending.partition))
        self._world.after(TIMEOUT, partial(self._bring, sending))

    def _answered(self, number: int, outcome: object) -> None:
        if self.gone or self._feed is None:
            return
        if isinstance(outcome, Outcome):
            self._feed.taken(number, mark_in(outcome))
        elif isinstance(outcome, SpanRefused):  # a group before it was lost, or is late
            self._world.counts["refused"] += 1
        else:
            raise PromiseBroken(ERROR, f"{self.name}: {outcome!r}")


def mark_in(outcome: object) -> int:
    """Return the mark that a write with a span has answered."""
    assert isinstance(outcome, Outcome)
    [mark] = outcome.values
    assert isinstance(mark, int)
    return mark


class StreamSchedule(Heap):
    """The world of one schedule."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        super().__init__(traced=traced)
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.records = {
            source: [
                (position, self.rng.randrange(PARTITIONS))
                for position in range(1, self.rng.randrange(2, RECORDS_MAX))
            ]
            for source in SOURCES
        }
        self._partitions = [Partition() for _ in range(PARTITIONS)]
        self._truth = StreamTruth(self.records)
        self._readers = {source: [self._start(source)] for source in SOURCES}
        for _ in range(self.rng.randrange(5)):
            self.after(self.rng.randrange(FAULTY_UNTIL), self._disturb)
        self.after(FAULTY_UNTIL, self._be_calm)

    def _start(self, source: str) -> Reader:
        self.counts["readers"] += 1
        return Reader(self, source, f"{source}{self.counts['readers']}")

    def _disturb(self) -> None:
        """End a reader, start another in its place, or beside it."""
        source = self.rng.choice(SOURCES)
        readers = self._readers[source]
        if self.rng.random() < 0.6:  # noqa: PLR2004 - a share
            readers[-1].gone = True
            self.note(readers[-1].name, "is killed")
        self.after(self.rng.randrange(60), lambda: readers.append(self._start(source)))

    def _be_calm(self) -> None:
        self.calm = True
        for source, readers in self._readers.items():
            if all(reader.gone for reader in readers):
                readers.append(self._start(source))

    # The network.

    def _travel(self, what: Callable[[], None]) -> None:
        """Have *what* arrive: once and soon, or late, twice, or never."""
        weird = not self.calm and self.rng.random() < WEIRD
        kind = self.rng.choice(("lost", "late", "twice")) if weird else ""
        if kind:
            self.counts[kind] += 1
        if kind == "lost":
            return
        delay = DELAY_MAX * (8 if kind == "late" else 1)
        for _ in range(2 if kind == "twice" else 1):
            self.after(self.rng.randrange(1, delay), what)

    def send(
        self, reader: Reader, number: int, write: Write, answer: Callable[[object], None]
    ) -> None:
        """Bring *write* to a partition, and its outcome back."""

        def arrive() -> None:
            partition = self._partitions[number]
            outcome = partition.take(write)
            self.note(reader.name, f"{write.span} at {number}: {outcome}")
            assert write.span is not None
            self._truth.check(write.span.source, number, partition.state)
            self._travel(lambda: answer(outcome))

        self._travel(arrive)

    def ask_mark(self, reader: Reader, number: int, answer: Callable[[int], None]) -> None:
        """Bring a partition's mark of the reader's source back."""

        def arrive() -> None:
            outcome = self._partitions[number].take(
                Write("", 0, (), span=Span(reader.name[0], 0, 0))
            )
            self._travel(lambda: answer(mark_in(outcome)))

        self._travel(arrive)

    def run(self) -> None:
        """Run until everything was read. Raises PromiseBroken."""
        while not self.is_over and self.next_at < OVER:
            self.step()
        for source, rows in self.records.items():
            for number, partition in enumerate(self._partitions):
                mark = partition.state.offsets.get(mark_name(source), 0)
                if mark != rows[-1][0]:
                    raise PromiseBroken(
                        LIVE, f"partition {number} has {source} up to {mark!r} of {rows[-1][0]}"
                    )
                self._truth.check(source, number, partition.state)
        self.counts["records"] += sum(map(len, self.records.values()))


def run_schedule(seed: int, nodes: int | None = None, *, traced: bool = False) -> ScheduleOutcome:
    """Run the schedule of *seed*."""
    del nodes
    schedule, broken = StreamSchedule(seed, traced=traced), None
    try:
        schedule.run()
    except PromiseBroken as error:
        broken = error.broken
    return ScheduleOutcome(
        seed, PARTITIONS, schedule.event_count, schedule.counts, broken, schedule.told()
    )


STREAMS: Final = Checker(run_schedule, INVARIANTS)
