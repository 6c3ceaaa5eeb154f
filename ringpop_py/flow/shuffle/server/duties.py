"""Carries out the duties of a shuffle's member: copies, pushes and merges."""

from __future__ import annotations

import secrets
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ringpop_py.base.errors import BodyError, ShuffleError, ShuffleUnavailable
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import one_line
from ringpop_py.base.values.arrow import table_in
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.messages import (
    Answer,
    Copied,
    CopyInterval,
    CopySegment,
    Duty,
    Held,
    Merge,
    Push,
)
from ringpop_py.flow.shuffle.protocol.record import STORE
from ringpop_py.flow.shuffle.server.framestore import Place
from ringpop_py.flow.shuffle.sorting.frame_builder import check_frame
from ringpop_py.flow.shuffle.sorting.frames import unpacked
from ringpop_py.flow.shuffle.sorting.interval import (
    Part,
    checksum_of,
    entry_of_part,
    parts_in,
    parts_of,
    write_interval,
)
from ringpop_py.flow.shuffle.sorting.segment import SegmentFile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ringpop_py.flow.shuffle.protocol.messages import FrameId
    from ringpop_py.flow.shuffle.protocol.record import MemberId, Record
    from ringpop_py.flow.shuffle.server.context import Here
    from ringpop_py.flow.shuffle.sorting.frames import Bytes

FETCH_S: Final = 600.0
"""A file that was not fetched after so many seconds is fetched again."""
PUSH_S: Final = 30.0
FETCHES: Final = 2
MERGE_PAUSE_S: Final = 0.02
"""Seconds before a member is asked again for an interval that it has not merged yet."""
PAUSE_S: Final = 0.25
"""Seconds after a failure before a duty is begun again."""
PARTS_WAITING_MAX: Final = 4
UNDER_WAY: Final = 4
"""The parts of a segment that are sent at a time: each is acknowledged once it is written."""


class Duties:
    """See the module."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._coming: dict[tuple[int, int, int], Coming] = {}
        """Pushes from elsewhere that have not ended, by interval, segment and number."""
        self._fetching: defaultdict[MemberId, trio.CapacityLimiter] = defaultdict(
            partial(trio.CapacityLimiter, FETCHES)
        )
        """Limits the intervals that come from a member at a time."""

    def forget(self) -> None:
        """Forget unfinished pushes: a life has ended, or the rows are merged."""
        for coming in self._coming.values():
            self._here.folder.drop(coming.path)
        self._coming.clear()

    def begin(self, now: int) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yield the work to run now."""
        pushes: dict[int, list[Push]] = {}
        for duty in self._here.member.begin(now):
            if isinstance(duty, Push):
                pushes.setdefault(duty.number, []).append(duty)
            else:
                yield partial(self._carry_out, [duty], partial(self._one, duty))
        for number, of_segment in pushes.items():
            yield partial(self._carry_out, of_segment, partial(self._push, number, of_segment))

    async def _carry_out(self, duties: Sequence[Duty], work: Callable[[], Awaitable[None]]) -> None:
        member = self._here.member
        try:
            await work()
        except Exception as error:
            names = {"shuffle": self._here.name, "duty": str(duties[0])}
            self._doubt(error, duties[0])
            if isinstance(error, _NotYet):
                pass  # the other member has not merged it yet
            elif _is_expected(error):
                log.info("shuffle-retries", why=one_line(error), **names)
            else:  # a bug costs this duty, and not all shuffles of the process
                log.exception("shuffle-duty-failed", **names)
            await trio.sleep(PAUSE_S)
        finally:
            for duty in duties:
                member.failed(duty)  # those that are done are not begun again
            self._here.nudge()

    def _doubt(self, error: BaseException, duty: Duty) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if not isinstance(error, BodyError) or isinstance(duty, Push | Merge):  # of a file here
            self._here.failed(error, duty.life)

    async def _one(self, duty: Duty) -> None:
        match duty:
            case CopySegment():
                await self._copy_segment(duty)
            case CopyInterval():
                await self._copy_interval(duty)
            case Merge():
                async with self._here.process.sorting:
                    await self._merge(duty)
            case Push():
                raise AssertionError("pushes of a segment are carried out together")

    # Copies.

    async def _copy_segment(self, duty: CopySegment) -> None:
        here, record = self._here, self._here.record
        with here.folder.new() as path:
            if duty.source == STORE:
                place = Place(here.name, record.uid, duty.number)
                await here.process.frames.copy(place, path)
            else:
                call = c.FetchSegment(here.name, record.uid, record.version, duty.number)
                await self._fetch(duty.source, call, path)
            fetched = await trio.to_thread.run_sync(
                SegmentFile.adopted, path, partial(check_frame, here.order)
            )
            finished = {
                entry.id[0]: entry.receipt
                for entry in fetched.entries.values()
                if entry.receipt is not None
            }
            if here.member.done(duty, Copied(frozenset(fetched.entries), finished)):
                here.folder.adopt(duty.number, fetched)
            else:
                fetched.close()

    async def _copy_interval(self, duty: CopyInterval) -> None:
        here, record = self._here, self._here.record
        call = c.FetchInterval(here.name, record.uid, record.version, duty.interval)
        with here.folder.new() as path:
            file = await self._merged_file(duty.source, call, path)
            if await trio.to_thread.run_sync(checksum_of, path) != file.checksum:
                raise BodyError(f"interval {duty.interval} was damaged on its way")
            if here.member.done(duty, Held(file.rows, file.checksum, file.totals)):
                here.folder.keep(path, here.folder.interval(duty.interval))

    async def _merged_file(self, source: MemberId, call: c.FetchInterval, path: Path) -> c.File:
        """Fetch an interval as soon as its owner has merged it, by the record as it is now."""
        record = self._here.record
        while True:
            # In turns: whichever is merged first is fetched first.
            async with self._fetching[source]:
                try:
                    return await self._fetch(source, call, path)
                except _NotYet:
                    if self._here.record is not record:
                        raise
            await trio.sleep(MERGE_PAUSE_S)

    async def _fetch(self, source: MemberId, call: c.Call, path: Path) -> c.File:
        peers = self._here.process.peers
        reply, _ = await peers.call(source, call, timeout_s=FETCH_S, path=path, bulk=True)
        if not isinstance(reply, c.File):
            raise _NotYet(f"{source} does not have it: {reply}")
        return reply

    # Merges.

    async def _merge(self, duty: Merge) -> None:
        here, order = self._here, self._here.order
        assert order is not None
        slices = [here.folder.slice(duty.interval, number) for number in duty.segments]

        def parts() -> Iterator[Part]:
            return (part for each in slices for part in parts_in(each))

        size = here.process.sort_bytes
        with here.folder.new() as path:
            held = await trio.to_thread.run_sync(
                partial(write_interval, path, order, parts, bytes_max=size)
            )
            if here.member.done(duty, held):
                here.folder.keep(path, here.folder.interval(duty.interval))
                for each in slices:
                    here.folder.drop(each)  # they are in the file now

    # Pushes to others.

    async def _push(self, number: int, pushes: list[Push]) -> None:
        here, record = self._here, self._here.record
        # The one that is here now: what another life has under that number, or has not, is another.
        segment = here.folder.segments.get(number)
        wanted = {push.interval: push for push in pushes}
        push_id = secrets.randbits(53)  # tells pushes from each other
        send, receive = trio.open_memory_channel[tuple[int, Part]](PARTS_WAITING_MAX)

        async def cut() -> None:
            async with send, here.process.sorting:
                await trio.to_thread.run_sync(self._cut, segment, record, wanted.__contains__, send)

        async def send_on() -> None:
            async for interval, part in receive:
                which = interval, number, push_id
                call = c.PushPart(here.name, record.uid, record.version, *which, part.frames)
                await self._send(wanted[interval], call, part.body)

        async with receive, trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            for _ in range(UNDER_WAY):
                nursery.start_soon(send_on)
        left = iter(pushes)

        async def end() -> None:
            names = here.name, record.uid, record.version
            for push in left:
                await self._send(push, c.PushEnd(*names, push.interval, number, push_id))
                here.member.done(push, None)

        async with trio.open_nursery() as nursery:
            for _ in range(UNDER_WAY):
                nursery.start_soon(end)

    def _cut(
        self,
        segment: SegmentFile | None,
        record: Record,
        is_wanted: Callable[[int], bool],
        send: trio.MemorySendChannel[tuple[int, Part]],
    ) -> None:
        order = self._here.order
        assert order is not None
        if segment is None or not record.cuts:
            return
        cuts = table_in(record.cuts)

        def frames() -> Iterator[tuple[FrameId, pa.Table]]:
            for entry in list(segment.entries.values()):
                attempt, sequence = entry.id
                winner = record.winners.get(attempt)
                if winner is not None and sequence < winner.frames:
                    yield entry.id, unpacked(segment.read(entry).body, order.schema, is_known=True)

        size = self._here.process.sort_bytes
        for interval, part in parts_of(order, cuts, frames(), bytes_max=size):
            if is_wanted(interval):
                trio.from_thread.run(send.send, (interval, part))

    async def _send(self, push: Push, call: c.PushPart | c.PushEnd, body: Bytes = b"") -> None:
        here = self._here
        if push.life != here.member.life:
            raise ShuffleUnavailable("this member has begun a new life, without its rows")
        if push.to == here.member.me:
            said = await self.take(call, body)
        else:
            reply, _ = await here.process.peers.call(
                push.to, call, body, timeout_s=PUSH_S, bulk=True
            )
            said = reply == c.Said(Answer.OK.value)
        if not said:
            raise ShuffleUnavailable(f"{push.to} does not take interval {push.interval}")

    # Pushes from others.

    async def take(self, call: c.PushPart | c.PushEnd, body: Bytes) -> bool:
        """Take a part of a slice, or its end; return whether it was taken. Raises OSError."""
        here = self._here
        if not here.member.may_push(call.uid):
            return False
        life = here.member.life
        try:
            return await self._taken(call, body, life)
        except OSError as error:
            here.failed(error, life)
            raise

    async def _taken(self, call: c.PushPart | c.PushEnd, body: Bytes, life: int) -> bool:
        here = self._here
        key = call.interval, call.segment, call.push
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = Coming(here.folder.begun(), trio.Lock())
        if isinstance(call, c.PushPart):
            async with coming.lock:
                await here.folder.extend(coming.path, entry_of_part(Part(call.frames, body)))
            if self._coming.get(key) is not coming:
                here.folder.drop(coming.path)  # it was forgotten meanwhile
            return life == here.member.life
        del self._coming[key]
        if here.member.pushed(life, call.interval, call.segment):
            here.folder.keep(coming.path, here.folder.slice(call.interval, call.segment))
        else:
            here.folder.drop(coming.path)
        here.nudge()
        return life == here.member.life


class _NotYet(ShuffleUnavailable):
    """The file to fetch is not there yet."""


def _is_expected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_expected, error.exceptions))
    return isinstance(error, ShuffleError | BodyError | OSError)


class Coming(NamedTuple):
    """A slice whose parts have begun to come, and whose end has not come."""

    path: Path
    lock: trio.Lock
