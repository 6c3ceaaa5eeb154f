"""One shuffle at one process: carries out what its `ShuffleMember` and its `Home` decide."""

from __future__ import annotations

import errno
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import trio

from ringpop_py.base.errors import (
    BodyError,
    ShuffleConflict,
    ShuffleDamaged,
    ShuffleDeleted,
    ShuffleEnded,
    ShuffleError,
    ShuffleFull,
    ShuffleIncomplete,
    ShuffleRefused,
    ShuffleUnavailable,
)
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import keep_running
from ringpop_py.base.values.arrow import schema_in, table_in
from ringpop_py.base.values.declared import decode
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.changes import with_attempts, with_batch
from ringpop_py.flow.shuffle.protocol.home import Home, Refused, View, Wish
from ringpop_py.flow.shuffle.protocol.messages import (
    Answer,
    Held,
    Report,
    Store,
)
from ringpop_py.flow.shuffle.protocol.record import STORE, MemberId, Record, State, Winner
from ringpop_py.flow.shuffle.server.context import Here
from ringpop_py.flow.shuffle.server.duties import Duties
from ringpop_py.flow.shuffle.server.framestore import Place
from ringpop_py.flow.shuffle.sorting.cuts import SUMMARY_POINTS_MAX, cuts_of, even_cuts, summary_of
from ringpop_py.flow.shuffle.sorting.frame_builder import check_frame
from ringpop_py.flow.shuffle.sorting.frames import Entry, entry_at, unpacked, whole_frame
from ringpop_py.flow.shuffle.sorting.order import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ringpop_py.flow.shuffle.protocol.messages import Query
    from ringpop_py.flow.shuffle.server.context import Process
    from ringpop_py.flow.shuffle.server.register import Stored
    from ringpop_py.flow.shuffle.sorting.frames import Bytes

BUSY_S: Final = 0.05
"""Seconds between two looks of the home while something is under way."""
REST_S: Final = 2.0
"""Seconds between two looks of the home while nothing is under way."""
APPEND_S: Final = 3.0
"""After so many seconds without an answer of the replica, a put is refused, to be retried."""
SUMMARY_BYTES_MAX: Final = 4 * 1024 * 1024
"""A summary of long keys has fewer of them, so that it is no longer than this."""
NAMED_MAX: Final = 5
"""The most attempts that an error's message names; all of them are in its attribute."""
ASK_S: Final = 5.0
TRIES: Final = 20
"""The most tries to change the record while others change it at the same time."""
_DONE_WITH_FRAMES: Final = (State.GET, State.DELETED)
WISH_S: Final = 30.0
"""After so many seconds, an end or a deletion is unavailable; the client asks again."""


def now_us() -> int:
    """Return an instant of this process, in microseconds."""
    return time.monotonic_ns() // 1000


def now_ms() -> int:
    """Return the wall clock, in milliseconds."""
    return time.time_ns() // 1_000_000


class Shuffle:
    """See the module.

    Attributes:
        has_ended: whether it was deleted. What goes on in threads may still have to end.
    """

    def __init__(self, name: str, process: Process, path: Path) -> None:
        self.here = Here(name, process, path)
        self.name = name
        self.member = self.here.member
        self._process = process
        self._folder = self.here.folder
        self._home = Home(self._cut)
        self._stored: Stored | None = None
        self._reading = trio.Lock()
        self._read_began = 0
        self.has_ended = False
        self._changed = trio.Event()
        self._wishing = trio.Lock()
        self._refused: Refused | None = None
        self._refusal: ShuffleRefused | None = None
        self._duties = Duties(self.here)

    # The record.

    @property
    def record(self) -> Record:
        """The newest record that was read. Raises ShuffleUnavailable before the first reading."""
        return self.here.record

    async def fresh(self, uid: int, version: int) -> bool:
        """Return whether the record here is new enough to answer what names these."""
        came_at = now_us()
        if not self.member.must_read(uid, version, came_at):
            return True
        async with self._reading:
            # All tasks that wait for a read share the next one that begins.
            return self._read_began > came_at or await self._read()

    async def read(self) -> bool:
        """Read the record and go by it; return whether it could be read."""
        async with self._reading:
            return await self._read()

    async def _read(self) -> bool:
        began = now_us()
        if self.has_ended:
            return False
        try:
            stored = await self._process.register.read(self.name)
        except ShuffleUnavailable:
            return False
        if stored is None or self.has_ended:
            return False
        self._read_began = began
        self.go_by(stored, began)
        return True

    def go_by(self, stored: Stored, asked_at: int) -> None:
        """Go by a record that was asked for at *asked_at*."""
        if self.has_ended:
            return  # it may be of another shuffle of that name, which another object serves
        former = self.member.record
        changes = self.member.apply(stored.record, asked_at, now_ms())
        if self.member.record is former:
            return
        self._stored = stored
        if former is None or former.uid != stored.record.uid:
            definition = decode(c.Definition, stored.record.definition)
            schema = schema_in(definition.schema)
            self.here.order = Order(schema, definition.by)
        self._folder.carry_out(changes)
        if changes:  # a life has ended, or the rows are merged
            self._duties.forget()
        if former is not None and former.state is not stored.record.state:
            state = stored.record.state
            level = log.error if state is State.DAMAGED else log.info
            text = (
                f"shuffle {self.name!r} is in the state {state.value} {stored.record.why}".rstrip()
            )
            level("shuffle-state", text=text, shuffle=self.name, state=state.value)
        self._changed.set()
        self._changed = trio.Event()
        self.here.nudge()

    # Puts.

    async def put(self, uid: int, body: Bytes) -> c.Said:
        """Take a frame of a client."""
        entry, frame = whole_frame(body)
        if not await self.fresh(uid, 0):
            return self._said(Answer.NOT_NOW)
        store = self.member.put(uid, entry.id)
        if not isinstance(store, Store):
            return self._said(store)
        check_frame(self.here.order, frame)
        life = self.member.life
        failures = await self._store(uid, store, entry, body)
        if failures:
            self.here.nudge()
        for failure in failures:
            # The store's own error is passed on: no other member knows better.
            if isinstance(failure, ShuffleFull | ShuffleRefused) or store.replica == STORE:
                raise failure
        if failures:
            return self._said(Answer.NOT_NOW)
        return self._said(self.member.stored(life, store, entry.id, now_us()))

    async def _store(self, uid: int, store: Store, entry: Entry, body: Bytes) -> list[ShuffleError]:
        """Add a frame to a segment, here and at its replica or in the store.

        Returns:
            What went wrong.
        """
        failures: list[ShuffleError] = []
        call = c.Append(self.name, uid, self.record.version, store.segment)

        async def there() -> None:
            try:
                if store.replica == STORE:
                    place = Place(self.name, uid, store.segment)
                    await self._process.frames.put(place, entry.id, body)
                    return
                said, _ = await self._process.peers.call(
                    store.replica, call, body, timeout_s=APPEND_S
                )
                if said != c.Said(Answer.OK.value):
                    failures.append(ShuffleUnavailable(f"{store.replica} answers {said}"))
            except ShuffleError as error:
                failures.append(error)

        async def here() -> None:
            try:
                if not await self._append(uid, store.segment, body):
                    failures.append(ShuffleUnavailable(f"segment {store.segment} is closed"))
            except ShuffleError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(there)
            nursery.start_soon(here)
        return failures

    async def append(self, call: c.Append, body: Bytes) -> c.Said:
        """Add a frame to a segment, as its replica."""
        _, frame = whole_frame(body)
        is_fresh = await self.fresh(call.uid, call.version)
        if not is_fresh or not self.member.may_append(call.uid, call.segment):
            return c.Said(Answer.NOT_NOW.value)
        check_frame(self.here.order, frame)
        taken = await self._append(call.uid, call.segment, body)
        return c.Said((Answer.OK if taken else Answer.NOT_NOW).value)

    async def _append(self, uid: int, number: int, body: Bytes) -> bool:
        if not self.member.may_append(uid, number):
            return False
        life, entry = self.member.life, entry_at(body, 0)
        if not self._process.disk.has_room(len(body)):
            raise ShuffleFull("the disk that --shuffle-disk allows for rows is used up")
        try:
            await self._folder.append(number, body)
        except OSError as error:
            self.here.failed(error, life)
            raise _failure_of(error) from None
        counts = self.member.appended(life, number, entry.id, entry.receipt)
        # It may have been closed meanwhile, and copied without this frame.
        return counts and self.member.may_append(uid, number)

    def _said(self, answer: Answer) -> c.Said:
        record = self.member.record
        return c.Said(answer.value, record.version if record is not None else 0)

    # Gets.

    async def get(self, call: c.Get) -> c.Said | tuple[c.File, Path]:
        """Return the file of an interval, or why it is not here."""
        if not await self.fresh(call.uid, call.version):
            return self._said(Answer.NOT_NOW)
        answer = self.member.get(call.interval, call.version)
        if answer is not Answer.OK:
            return self._said(answer)
        return _file_of(self.member.intervals[call.interval]), self._folder.interval(call.interval)

    # For other members.

    async def sent(self, call: c.FetchSegment | c.FetchInterval) -> c.Said | tuple[c.File, Path]:
        """Return the file that another member is to hold as well."""
        if not await self.fresh(call.uid, call.version):
            return self._said(Answer.NOT_NOW)
        if isinstance(call, c.FetchInterval):
            if not self.member.may_copy_interval(call.uid, call.interval):
                return self._said(Answer.NOT_NOW)
            held = self.member.intervals[call.interval]
            return _file_of(held), self._folder.interval(call.interval)
        if not self.member.may_copy_segment(call.uid, call.segment):
            return self._said(Answer.NOT_NOW)
        return c.File(), self._folder.segment(call.segment).path

    async def take(self, call: c.PushPart | c.PushEnd, body: Bytes) -> c.Said:
        """Take a part of what a segment has of an interval."""
        taken = await self.fresh(call.uid, call.version) and await self._duties.take(call, body)
        return c.Said((Answer.OK if taken else Answer.NOT_NOW).value)

    # Reports.

    async def report(self, query: Query) -> Report | None:
        """Return what is here, for a home."""
        if not await self.fresh(query.uid, query.version):
            return None
        summary = await self._summary() if query.with_frames else b""
        return self.member.report(query, summary)

    def counted(self) -> c.Counted:
        """Return how far this member is."""
        record, me, folder = self.record, self.member.me, self._folder
        rows = size = 0
        finished: dict[int, Winner] = {}
        for number, segment in folder.segments.items():
            entries = list(segment.entries.values())
            finished |= {each.id[0]: each.receipt for each in entries if each.receipt is not None}
            known = record.segments.get(number)
            if known is not None and known.holders[:1] == (me,):
                rows += sum(entry.rows for entry in entries)
                size += segment.bytes
        return c.Counted(rows, size, folder.sizes.bytes, len(self.member.intervals), finished)

    async def _summary(self) -> bytes:
        order, record = self.here.order, self.record
        assert order is not None
        segments = [
            self._folder.segments[number]
            for number, segment in record.segments.items()
            if segment.holders[:1] == (self.member.me,) and number in self._folder.segments
        ]

        def summed_up() -> bytes:
            schema = summary_of(order, []).schema
            points = (unpacked(each, schema) for one in segments for each in one.points())
            summary, count = summary_of(order, points), SUMMARY_POINTS_MAX
            while summary.nbytes > SUMMARY_BYTES_MAX:  # the keys are long
                count //= 2
                summary = summary_of(order, [summary], count)
            return _as_stream(summary)

        life = self.member.life
        try:
            return await trio.to_thread.run_sync(summed_up)
        except (BodyError, OSError) as error:
            self.here.failed(error, life)
            return b""  # a life has ended, or is about to, and what it reports is of no use

    def _cut(self, summaries: Sequence[bytes], count: int) -> bytes:
        assert self.here.order is not None
        definition = decode(c.Definition, self.record.definition)
        if definition.seed is not None:
            return _as_stream(even_cuts(self.here.order, count))
        tables = [table_in(each) for each in summaries if each]
        keep = definition.keep_keys_together
        return _as_stream(cuts_of(self.here.order, tables, count, keep_keys_together=keep))

    # In the background.

    async def run(self) -> None:
        """Do what is due, until the shuffle is deleted; then nothing of it is left here."""
        self.member.busy.clear()  # a bug may have ended a former run, with what was under way
        async with trio.open_nursery() as nursery:
            while self.member.record is None or self.member.record.state is not State.DELETED:
                try:
                    await self._step(nursery)
                except ShuffleUnavailable:
                    pass
                except Exception:  # a bug in one shuffle does not end the others
                    log.exception("shuffle-failed", shuffle=self.name)
                    await trio.sleep(REST_S)
                with trio.move_on_after(BUSY_S if self._is_busy() else REST_S):
                    await self.here.nudged.wait()
                self.here.nudged = trio.Event()
            # If it is created again, a new object serves it. This one no longer reads records.
            self.has_ended = True
            nursery.cancel_scope.cancel()
        self._folder.remove()

    async def _step(self, nursery: trio.Nursery) -> None:
        if not await self.read():
            return
        for task in self._duties.begin(now_us()):
            nursery.start_soon(task)
        record = self.record
        view = self._process.watch.view_of(record, self.member.me, is_member=self.member.is_member)
        if self.here.parts:
            view = replace(view, gone=view.gone | {self.member.me})
        if self._acts(record, view):
            await self._act(view)

    def _is_busy(self) -> bool:
        record = self.member.record
        if record is None or self.member.busy or self._home.wish != Wish():
            return True
        if record.state is State.PUT:
            return any(segment.copy_to is not None for segment in record.segments.values())
        if record.state is State.GET:
            return any(interval.fetched_by is not None for interval in record.intervals)
        return record.state is State.ENDING

    def _acts(self, record: Record, view: View) -> bool:
        """Return whether this process is the home now: any may be, and one suffices."""
        wishes = self._home.wish.uid == record.uid or self.here.parts
        if wishes or not self.member.is_member:
            return True
        there = [member for member in record.members if member not in view.gone]
        return bool(there) and there[record.uid % len(there)] == self.member.me

    async def _act(self, view: View) -> None:
        stored = self._stored
        assert stored is not None
        query = self._home.looked(stored.record)
        async with trio.open_nursery() as nursery:
            for member in stored.record.members:
                if member not in view.gone:
                    nursery.start_soon(self._ask, member, query)
        following = self._home.decide(view)
        if isinstance(following, Refused):
            self._refused = following
            self._changed.set()
            self._changed = trio.Event()
        elif following is not None:
            self._home.forget()
            try:
                was_set = await self._process.register.set(self.name, stored, following)
            except ShuffleRefused as error:
                if self._home.wish == Wish():
                    raise
                self._refusal = error
                self._changed.set()
                self._changed = trio.Event()
            else:
                if was_set and following.is_stored and following.state in _DONE_WITH_FRAMES:
                    # Beside what goes on here, and after its end.
                    what = f"the removal of frames of shuffle {self.name!r}"
                    remove = partial(self._remove_frames, following.uid)
                    self._process.nursery.start_soon(keep_running, what, remove)
            self.here.nudge()

    async def _remove_frames(self, uid: int) -> None:
        """Remove from the store the frames that are no longer needed."""
        try:
            await self._process.frames.remove(self.name, uid)
        except ShuffleError as error:
            text = f"frames of shuffle {self.name!r} stay in the store until the next start of"
            text = f"{text} a process for shuffles: {error}"
            log.warning("shuffle-trouble", text=text, shuffle=self.name)

    async def _ask(self, member: MemberId, query: Query) -> None:
        with suppress(ShuffleError, OSError):  # a member that does not answer is asked again
            if member == self.member.me:
                report = await self.report(query)
            else:
                call = c.Ask(self.name, query)
                told, _ = await self._process.peers.call(member, call, timeout_s=ASK_S)
                report = told.report if isinstance(told, c.Told) else None
            if report is not None:
                self._home.reported(report)

    # Wishes of clients.

    async def end(self, uid: int, winners: Mapping[int, Winner]) -> None:
        """End the shuffle with *winners*, or find that it has ended with them.

        Raises:
            ShuffleIncomplete: if not all of them are here.
            ShuffleConflict: if it has ended with others.
            ShuffleDeleted, ShuffleDamaged, ShuffleUnavailable
        """
        async with self._wishing:
            await self._wish(Wish(uid, dict(winners)), lambda record: record.state is not State.PUT)
        record = self.record
        if record.state is State.DELETED:
            raise ShuffleDeleted(f"shuffle {self.name!r} was deleted")
        if record.state is State.DAMAGED:
            raise ShuffleDamaged(f"shuffle {self.name!r}: {record.why}")
        if {**record.committed, **winners} != record.winners:
            rows = sum(winner.rows for winner in record.winners.values())
            raise ShuffleConflict(
                f"shuffle {self.name!r} was ended with other attempts: it has "
                f"{len(record.winners)} of them, with {rows} rows"
            )

    async def delete(self, uid: int) -> None:
        """Delete the shuffle. Raises ShuffleDeleted if that is another one, ShuffleUnavailable."""
        async with self._wishing:
            await self._wish(Wish(uid, delete=True), lambda record: record.state is State.DELETED)

    async def _wish(self, wish: Wish, is_done: Callable[[Record], bool]) -> None:
        if not await self.read():
            raise ShuffleUnavailable(f"the record of shuffle {self.name!r} cannot be read now")
        self._refused = self._refusal = None
        try:
            with trio.move_on_after(WISH_S):
                while True:
                    if self.record.uid != wish.uid:
                        raise ShuffleDeleted(f"this shuffle {self.name!r} was deleted")
                    if is_done(self.record):
                        return
                    if self._refused is not None:
                        raise _incomplete(self.name, self._refused)
                    if self._refusal is not None:
                        raise self._refusal
                    if self._home.wish != wish:
                        self._home.ask_for(wish)
                        self.here.nudge()
                    await self._changed.wait()
        finally:
            self._home.ask_for(Wish())
        raise ShuffleUnavailable(
            f"not all members of shuffle {self.name!r} have answered within {WISH_S:g} s; try again"
        )

    async def take_attempts(self, uid: int, count: int) -> int:
        """Return the first of *count* numbers of attempts that no other client has.

        Raises:
            ShuffleEnded, ShuffleDeleted, ShuffleUnavailable
        """
        taken = await self._set_in_put(uid, lambda record: with_attempts(record, count))
        return taken.next_attempt

    async def commit(self, call: c.Commit) -> None:
        """Let the attempts of a batch count. Raises as `take_attempts` and `with_batch`."""
        await self._set_in_put(call.uid, lambda record: with_batch(record, call))

    async def _set_in_put(self, uid: int, change: Callable[[Record], Record | None]) -> Record:
        """Change the record of a shuffle that takes rows; return the one before."""
        for _ in range(TRIES):
            if not await self.read():
                break
            stored = self._stored
            assert stored is not None
            record = stored.record
            if record.uid != uid or record.state is State.DELETED:
                raise ShuffleDeleted(f"this shuffle {self.name!r} was deleted")
            if record.state is not State.PUT:
                raise ShuffleEnded(f"shuffle {self.name!r} takes no more rows: it was ended")
            changed = change(record)
            if changed is None or await self._process.register.set(self.name, stored, changed):
                return record
        raise ShuffleUnavailable(f"the record of shuffle {self.name!r} cannot be changed now")


def _incomplete(name: str, refused: Refused) -> ShuffleIncomplete:
    wrong = [f"{attempt}: {why}" for attempt, why in refused.attempts.items()]
    more = f", and {len(wrong) - NAMED_MAX} more" if len(wrong) > NAMED_MAX else ""
    return ShuffleIncomplete(
        f"shuffle {name!r} cannot end with these attempts: {'; '.join(wrong[:NAMED_MAX])}{more}. "
        "Put their rows again, as new attempts",
        attempts=sorted(refused.attempts),
    )


def _file_of(held: Held) -> c.File:
    return c.File(held.rows, held.checksum, held.totals)


def _failure_of(error: OSError) -> ShuffleError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ShuffleFull(f"no room for more rows: {error.strerror}")
    return ShuffleUnavailable(f"the folder of shuffles cannot be written: {error.strerror}")


def _as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
