"""A process that holds bytes: what the product's driver does, on a heap of events."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.values.declared import decode, encode
from ringpop_py.flow.shuffle.protocol.home import Home, Refused, View, Wish
from ringpop_py.flow.shuffle.protocol.member import ShuffleMember
from ringpop_py.flow.shuffle.protocol.messages import (
    Answer,
    Copied,
    CopyInterval,
    CopySegment,
    Merge,
    Push,
    Query,
    Report,
    Store,
)
from ringpop_py.flow.shuffle.protocol.record import STORE
from ringpop_sim.flow.shuffle.disk import Disk, file_of, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ringpop_py.flow.shuffle.protocol.messages import Duty, FrameId
    from ringpop_py.flow.shuffle.protocol.record import MemberId, Record, Winner
    from ringpop_sim.flow.shuffle.around import Around, Reply
    from ringpop_sim.flow.shuffle.truth import Rows

WRITE: Final = 3
"""A write to the disk takes less than this."""
SLOW_WRITE: Final = 250
"""Some writes take as long as this."""
DONE: Final = "done"
"""The reply to what was stored; None otherwise."""


class Frame(NamedTuple):
    """A frame on its way.

    Attributes:
        receipt: of its attempt, if it is the last one of that.
    """

    id: FrameId
    rows: Rows
    receipt: Winner | None = None


class Process:
    """See the module.

    Attributes:
        up: whether it runs.
        silenced: whether its messages that are on their way no longer arrive.
        cut_off: whether it cannot read the record.
    """

    def __init__(self, world: Around[Process], host: str, incarnation: int) -> None:
        self.world = world
        self.member = ShuffleMember(host, incarnation, world.lease)
        self.home = Home(cut)
        self.disk = Disk()
        self.up = True
        self.silenced = False
        self.cut_off = False

    def __str__(self) -> str:
        return str(self.member.me)

    def later(self, delay: int, what: Callable[[], None]) -> None:
        """Call *what* after *delay*, if this process runs then."""
        self.world.after(delay, partial(self._if_up, what))

    def _if_up(self, what: Callable[[], None]) -> None:
        if self.up:
            what()

    # The record.

    def read(
        self, then: Callable[[], None] = lambda: None, otherwise: Callable[[], None] = lambda: None
    ) -> None:
        """Read the record and go by it; then call *then*, or *otherwise* if it cannot be read."""
        asked_at = self.world.now

        def arrive() -> None:
            if self.cut_off or self.world.fails():
                self.later(self.world.delay(), otherwise)
            else:
                answer = partial(self._read, self.world.register.record, asked_at, then)
                self.later(self.world.delay(), answer)

        self.later(self.world.delay(), arrive)

    def _read(self, record: Record, asked_at: int, then: Callable[[], None]) -> None:
        changes = self.member.apply(record, asked_at, self.world.incarnation())
        self.disk.carry_out(changes)
        self.world.changed = self.world.changed or bool(changes)
        then()

    def _when_fresh(
        self, uid: int, version: int, then: Callable[[], None], otherwise: Callable[[], None]
    ) -> None:
        """Call *then* as soon as what names *uid* and *version* can be answered."""
        if self.member.must_read(uid, version, self.world.now):
            self.read(then, otherwise)
        else:
            then()

    # Puts.

    def put(self, uid: int, frame: Frame, reply: Callable[[Answer], None]) -> None:
        """Take a frame of a client."""
        self._when_fresh(
            uid, 0, partial(self._put, uid, frame, reply), partial(reply, Answer.NOT_NOW)
        )

    def _put(self, uid: int, frame: Frame, reply: Callable[[Answer], None]) -> None:
        store = self.member.put(uid, frame.id)
        if not isinstance(store, Store):
            self._reply(uid, frame, reply, store)
            return
        assert self.member.record is not None
        life, missing = self.member.life, {"here", "there"}

        def stored(where: str, said: str | None) -> None:
            missing.discard(where)
            if said is None:
                missing.add("failed")
            if not missing:
                answer = self.member.stored(life, store, frame.id, self.world.now)
                self._reply(uid, frame, reply, answer)
            elif missing == {"failed"}:
                reply(Answer.NOT_NOW)

        version = self.member.record.version
        self._append(uid, store.segment, frame, partial(stored, "here"))
        if store.replica == STORE:
            self._put_into_store(store.segment, frame, partial(stored, "there"))
            return
        self.world.call(
            store.replica,
            lambda peer, answer: peer.append(uid, version, store.segment, frame, answer),
            partial(stored, "there"),
            self,
        )

    def _put_into_store(self, number: int, frame: Frame, then: Reply) -> None:
        """Put *frame* into the store, which takes everything, at any time; it may not answer."""
        world, segments = self.world, self.world.store.segments

        def put() -> None:
            segments.setdefault(number, {}).setdefault(frame.id, frame.rows)
            if frame.receipt is not None:
                world.receipts[frame.id] = frame.receipt
            self.later(world.delay(), partial(then, None if world.fails() else DONE))

        if world.fails():
            self.later(world.timeout, partial(then, None))
        else:
            world.after(world.store_delay(), put)  # even if this process dies meanwhile

    def _reply(
        self, uid: int, frame: Frame, reply: Callable[[Answer], None], answer: Answer
    ) -> None:
        if answer is Answer.OK:
            self.world.truth.acknowledges(str(self), uid, frame.id, self.world.now)
            self.world.changed = True
        reply(answer)

    def append(self, uid: int, version: int, number: int, frame: Frame, answer: Reply) -> None:
        """Add a frame to segment *number*, as its replica."""
        self._when_fresh(
            uid, version, partial(self._append, uid, number, frame, answer), partial(answer, None)
        )

    def _append(self, uid: int, number: int, frame: Frame, then: Reply) -> None:
        life = self.member.life
        if not self.member.may_append(uid, number):
            then(None)
            return

        def written() -> None:
            if self.member.appended(life, number, frame.id, frame.receipt):
                self.disk.segments.setdefault(number, {}).setdefault(frame.id, frame.rows)
                # It may have been closed meanwhile, and copied without this frame.
                then(DONE if self.member.may_append(uid, number) else None)
            else:
                then(None)

        self.later(self._write_time(), written)

    # Gets.

    def get(self, uid: int, number: int, version: int, reply: Callable[[Answer], None]) -> None:
        """Answer a reader."""
        self._when_fresh(
            uid,
            version,
            partial(self._get, number, version, reply),
            partial(reply, Answer.NOT_NOW),
        )

    def _get(self, number: int, version: int, reply: Callable[[Answer], None]) -> None:
        answer, record = self.member.get(number, version), self.member.record
        if answer is Answer.OK and record is not None:
            rows = self.disk.intervals[number]
            self.world.truth.answered(str(self), record.uid, number, rows, self.world.now)
        reply(answer)

    def _write_time(self) -> int:
        rng = self.world.rng
        if self.world.lossy and rng.random() < 0.08:  # noqa: PLR2004 - a share
            return rng.randrange(SLOW_WRITE)
        return rng.randrange(WRITE)

    # Duties.

    def work(self) -> None:
        """Begin what is due."""
        record = self.member.record
        for duty in self.member.begin(self.world.now):
            assert record is not None
            self._carry_out(duty, record)

    def _carry_out(self, duty: Duty, record: Record) -> None:
        names = record.uid, record.version
        match duty:
            case CopySegment(number=number, source=to) if to == STORE:
                self.later(self.world.store_delay(), partial(self._copy_from_store, duty))
            case CopySegment(number=number, source=to):
                then = partial(self._segment_came, duty)
                self.world.call(
                    to, lambda peer, answer: peer.send_segment(*names, number, answer), then, self
                )
            case Push(interval=interval, number=number, to=to):
                rows = self.disk.slice_of(record, number, interval)
                self.world.call(
                    to,
                    lambda peer, answer: peer.take_slice(*names, interval, number, rows, answer),
                    partial(self._pushed, duty),
                    self,
                )
            case Merge():
                self.later(self._write_time(), partial(self._merge, duty))
            case CopyInterval(interval=interval, source=to):
                then = partial(self._interval_came, duty)
                self.world.call(
                    to,
                    lambda peer, answer: peer.send_interval(*names, interval, answer),
                    then,
                    self,
                )

    def send_segment(self, uid: int, version: int, number: int, answer: Reply) -> None:
        """Send a segment to the member that is to hold it as well."""

        def send() -> None:
            if self.member.may_copy_segment(uid, number):
                frames = dict(self.disk.segments.get(number, {}))
                answer((frames, self.member.contents_of(number).finished))
            else:
                answer(None)

        self._when_fresh(uid, version, send, partial(answer, None))

    def _copy_from_store(self, duty: CopySegment) -> None:
        world = self.world
        frames = dict(world.store.segments.get(duty.number, {}))
        finished = {each[0]: world.receipts[each] for each in frames if each in world.receipts}
        self._segment_came(duty, None if world.fails() else (frames, finished))

    def _segment_came(self, duty: CopySegment, contents: Any) -> None:  # noqa: ANN401 - a reply
        if contents is None:
            self.member.failed(duty)
            return
        frames, finished = contents
        if self.member.done(duty, Copied(frozenset(frames), finished)):
            self.disk.segments[duty.number] = dict(frames)

    def take_slice(
        self, uid: int, version: int, interval: int, number: int, rows: Rows, answer: Reply
    ) -> None:
        """Take what a segment has of an interval."""

        def take() -> None:
            life = self.member.life
            if self.member.may_push(uid):
                self.later(self._write_time(), partial(written, life))
            else:
                answer(None)

        def written(life: int) -> None:
            if self.member.pushed(life, interval, number):
                self.disk.slices[interval, number] = rows
            answer(DONE if life == self.member.life else None)

        self._when_fresh(uid, version, take, partial(answer, None))

    def _pushed(self, duty: Push, said: str | None) -> None:
        if said is not None:
            self.member.done(duty, None)
        else:
            self.member.failed(duty)

    def _merge(self, duty: Merge) -> None:
        slices = [self.disk.slices.get((duty.interval, each)) for each in duty.segments]
        rows = merged(each for each in slices if each is not None)
        if self.member.done(duty, file_of(rows)):
            self.disk.intervals[duty.interval] = rows

    def send_interval(self, uid: int, version: int, number: int, answer: Reply) -> None:
        """Send the file of an interval to a member that is to hold it."""

        def send() -> None:
            if self.member.may_copy_interval(uid, number):
                answer((self.disk.intervals[number], self.member.intervals[number]))
            else:
                answer(None)

        self._when_fresh(uid, version, send, partial(answer, None))

    def _interval_came(self, duty: CopyInterval, contents: Any) -> None:  # noqa: ANN401 - a reply
        if contents is None:
            self.member.failed(duty)
            return
        rows, held = contents
        if self.member.done(duty, held):
            self.disk.intervals[duty.interval] = rows

    # At home.

    @property
    def joining(self) -> tuple[MemberId, ...]:
        """This process, if it is not a member and may become one."""
        record = self.member.record
        return () if record is None or self.member.is_member else (self.member.me,)

    def look(self) -> None:
        """Read the record, and ask all its members."""
        self.read(self._ask)

    def _ask(self) -> None:
        record = self.member.record
        assert record is not None
        query = self.home.looked(record)
        for member in record.members:
            self.world.call(
                member, lambda peer, answer: peer.report(query, answer), self._reported, self
            )

    def report(self, query: Query, answer: Reply) -> None:
        """Tell a home what is here."""

        def tell() -> None:
            frames = [each for segment in self.disk.segments.values() for each in segment.values()]
            keys = sorted(row.id for rows in frames for row in rows)
            answer(self.member.report(query, encode(keys)))

        self._when_fresh(query.uid, query.version, tell, partial(answer, None))

    def _reported(self, report: Report | None) -> None:
        if report is not None:
            self.home.reported(report)

    def end(self, uid: int, winners: Mapping[int, Winner]) -> None:
        """Ask for an end with *winners*."""
        if self.home.wish != Wish(uid, winners):
            self.home.ask_for(Wish(uid, winners))

    def decide(self, view: View) -> bool:
        """Change the record, if that is due; return whether an end was refused."""
        following = self.home.decide(view)
        if isinstance(following, Refused):
            self.world.truth.refused(following.attempts)
            self.home.ask_for(Wish())
            return True
        if following is not None:
            self.home.forget()
            if not self.cut_off:
                self.later(self.world.delay(), partial(self._set, following))
        return False

    def _set(self, record: Record) -> None:
        self.world.register.compare_and_set(record.version - 1, record)


def cut(summaries: Sequence[bytes], count: int) -> bytes:
    """Return where *count* intervals begin, by the rows that members have."""
    keys = sorted({each for one in summaries for each in decode(list[tuple[int, ...]], one)})
    return encode([keys[len(keys) * place // count] for place in range(1, count)] if keys else [])
