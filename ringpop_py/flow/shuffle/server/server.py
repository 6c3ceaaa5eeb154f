"""Serves clients and other processes, many calls at a time on each connection."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, BinaryIO, Final, Generic, NamedTuple, TypeVar

import trio

from ringpop_py.base.errors import BodyError, RingpopError, ShuffleUnavailable
from ringpop_py.base.logs import log
from ringpop_py.base.metering import Tally
from ringpop_py.base.supervision import one_line
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.messages import Answer
from ringpop_py.flow.shuffle.protocol.record import State
from ringpop_py.flow.shuffle.server.wire import LARGE_AT_A_TIME, Line
from ringpop_py.net.security.identity import SHUFFLERS
from ringpop_py.net.security.proof import LASTING
from ringpop_py.net.security.streams import Accepted
from ringpop_py.node.events import LoggedTroubles

if TYPE_CHECKING:
    from ringpop_py.flow.shuffle.protocol.record import Record
    from ringpop_py.flow.shuffle.server.host import Host
    from ringpop_py.flow.shuffle.server.shuffle import Shuffle
    from ringpop_py.net.security.proof import Proof
    from ringpop_py.net.security.streams import Keys

CONNECTIONS_MAX: Final = 256
RESERVED: Final = 64
"""The connections beyond `CONNECTIONS_MAX` that hosts of members may have."""

ConnectionT = TypeVar("ConnectionT")


class Door(Generic[ConnectionT]):
    """The connections of a process: that which has been idle for longest makes room for another."""

    def __init__(self) -> None:
        self._calls_counts: dict[ConnectionT, int] = {}
        """How many calls of each are at work; the connection that was used last is the last."""

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._calls_counts)

    def admit(self, one: ConnectionT, *, of_member: bool) -> ConnectionT | None:
        """Add a connection; return the one to close for it: itself, if all others are at work."""
        self._calls_counts[one] = 0
        if len(self) <= CONNECTIONS_MAX + (RESERVED if of_member else 0):
            return None
        closed = next(each for each, count in self._calls_counts.items() if not count)
        del self._calls_counts[closed]
        return closed

    def note_calls(self, one: ConnectionT, change: int) -> None:
        """Note that calls of a connection have begun, or have ended."""
        if (count := self._calls_counts.pop(one, None)) is not None:
            self._calls_counts[one] = count + change

    def forget(self, one: ConnectionT) -> None:
        """Forget a connection that has ended."""
        self._calls_counts.pop(one, None)


REUSED_BYTES_MIN: Final = 64 * 1024
"""Bytes of the shortest buffer that is used again; shorter ones are made anew."""
REUSED_MAX: Final = 2
"""A buffer is used again for a body if it is at most so many times as long."""


class Buffers:
    """Memory for bodies of messages, limited to *size* bytes. Requests for more wait, in order.

    Buffers are used again: the first use of new pages of memory takes longer than receiving and
    writing the frame in them.

    Attributes:
        held_bytes: the bytes in use.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.held_bytes = 0
        self._turn = trio.Lock()
        self._freed = trio.Event()
        self._free: deque[bytearray] = deque()
        """The buffers that may be used again, the last used one last."""

    async def acquire(self, size: int) -> memoryview:
        """Return a buffer of *size* bytes, as soon as there is room, or nothing else is held."""
        async with self._turn:
            while self.held_bytes and self.held_bytes + size > self._size:
                await self._freed.wait()
            self.held_bytes += size
        return memoryview(self._found(size))[:size]

    def _found(self, size: int) -> bytearray:
        for place, buffer in enumerate(self._free):
            if size <= len(buffer) <= REUSED_MAX * size:
                del self._free[place]
                return buffer
        self._make_room()
        return bytearray(size)

    def release(self, buffer: memoryview) -> None:
        """Give back a buffer of `acquire`, no part of which is in use any longer."""
        self.held_bytes -= len(buffer)
        if len(buffer) >= REUSED_BYTES_MIN and isinstance(buffer.obj, bytearray):
            self._free.append(buffer.obj)
            self._make_room()
        self._freed.set()
        self._freed = trio.Event()

    def _make_room(self) -> None:
        kept = sum(map(len, self._free))
        while self._free and kept + self.held_bytes > self._size:
            kept -= len(self._free.popleft())


BODY_S: Final = 20.0
"""Seconds in which a peer has to end a message that it has begun: others wait for the memory."""
SILENT_S: Final = 5.0
"""Seconds in which a peer has to send some bytes of a message that it has begun."""
CALLS_MAX: Final = 16
"""The most calls of one connection at work at a time; no more of it is read meanwhile."""
LOST: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class _Came(NamedTuple):
    """A call that came, and where its body's memory goes back to."""

    number: int
    call: c.Call
    body: memoryview
    buffers: Buffers


async def _body(line: Line, size: int, buffers: Buffers) -> memoryview:
    """Return the body of a message, in one of *buffers*."""
    if size > c.HELD_BYTES_MAX:
        raise BodyError(f"a body of {size} bytes is too long")
    buffer = await buffers.acquire(size)
    try:
        if await line.fill(buffer, within_s=BODY_S, silent_s=SILENT_S):
            return buffer
    except BaseException:
        buffers.release(buffer)
        raise
    buffers.release(buffer)
    raise BodyError(f"a body of {size} bytes has stopped, or took longer than {BODY_S:g} s")


class Server:
    """See the module.

    Attributes:
        tally: counts the calls of clients.
    """

    def __init__(self, host: Host, held_bytes: int, keys: Keys | None) -> None:
        self.tally = Tally()
        self._host = host
        self._keys = keys
        # Puts wait for calls to other members. Those must never wait for puts, or all would.
        self._puts = Buffers(held_bytes)
        self._others = Buffers(held_bytes)
        self._large = trio.Semaphore(LARGE_AT_A_TIME)
        self._door: Door[trio.CancelScope] = Door()
        self._told = LoggedTroubles()

    @property
    def held_bytes(self) -> int:
        """The memory of rows on their way."""
        return self._puts.held_bytes + self._others.held_bytes

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection to its end. A bug costs this connection alone."""
        here = trio.CancelScope()
        try:
            host = stream.socket.getpeername()[0]
            closed = self._door.admit(here, of_member=self._host.has_member_at(host))
            if closed is not None:
                closed.cancel()
                self._tell(host, f"it came when {len(self._door)} were open: idle ones end")
            with here:
                await self._serve(stream, host, here)
        except* LOST:
            pass
        except* Exception:
            log.exception("shuffle-trouble", text="a connection is closed after a bug")
        finally:
            self._door.forget(here)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    def _tell(self, host: str, why: str) -> None:
        if self._told.first_time(host, why, trio.current_time()):
            log.warning("shuffle-trouble", text=f"a connection of {host}: {why}")

    async def _serve(self, stream: trio.SocketStream, host: str, here: trio.CancelScope) -> None:
        accepted = Accepted(stream, LASTING)
        if self._keys is not None:
            try:
                accepted = await self._keys.accept(stream)
            except trio.BrokenResourceError as error:
                log.debug("shuffle-refused", reason=str(error))
                return
        line = Line(accepted.stream, self._large, accepted.proof)
        calls = trio.Semaphore(CALLS_MAX)
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    await calls.acquire()
                    message = await line.receive()
                    if message is None:
                        break
                    call = c.call_in(message.head)
                    _check_caller(call, accepted.proof)
                    buffers = self._puts if isinstance(call, c.Put) else self._others
                    body = await _body(line, message.body_bytes, buffers)
                    came = _Came(message.number, call, body, buffers)
                    nursery.start_soon(self._answer, line, came, calls, here)
        except* BodyError as errors:
            self._tell(host, f"it is closed: {errors.exceptions[0]}")

    async def _answer(
        self, line: Line, came: _Came, calls: trio.Semaphore, here: trio.CancelScope
    ) -> None:
        self._door.note_calls(here, 1)
        tally = Tally() if isinstance(came.call, c.OF_MEMBERS) else self.tally
        try:
            file: BinaryIO | None = None
            try:
                answer = await self._answer_of(came.call, came.body)
                if isinstance(answer, tuple):
                    answer, file = answer
                tally.done += 1
            except Exception as error:  # noqa: BLE001 - a bug costs this call alone
                answer = _failed(error)
                tally.fail(error)
            if file is None:
                await line.send(came.number, answer)
            else:
                with file:
                    await line.send_file(came.number, answer, file)
        except LOST:
            pass  # the caller is gone
        finally:
            came.buffers.release(came.body)
            calls.release()
            self._door.note_calls(here, -1)

    async def _answer_of(self, call: c.Call, body: memoryview) -> c.Reply | tuple[c.File, BinaryIO]:
        host = self._host
        if isinstance(call, c.List):
            return await host.all()
        if isinstance(call, c.Create):
            shuffle = await host.create(call)
        else:
            shuffle = await host.find(call.name)
        match call:
            case c.Put() | c.Append() | c.PushPart() | c.PushEnd():
                return await _took(shuffle, call, body)
            case c.Get() | c.FetchSegment() | c.FetchInterval():
                return await _file(shuffle, call)
            case c.Feed():
                return await host.feed(shuffle, call)
            case c.Ask() | c.TakeAttempts() | c.Count():
                return await _asked(shuffle, call)
            case _:
                return host.described(call.name, await _changed(shuffle, call))


def _check_caller(call: c.Call, proof: Proof) -> None:
    """Raise BodyError if *proof* counts no more, or *call* is not for whom it names."""
    identity, why = proof.identity, proof.why_over()
    if why is not None:
        raise BodyError(why)
    if identity is not None and identity.role not in SHUFFLERS and isinstance(call, c.OF_MEMBERS):
        raise BodyError(f"{type(call).__name__} is for members, not {identity}")


async def _took(
    shuffle: Shuffle, call: c.Put | c.Append | c.PushPart | c.PushEnd, body: memoryview
) -> c.Said:
    """Take rows."""
    match call:
        case c.Put(uid=uid):
            return await shuffle.put(uid, body)
        case c.Append():
            return await shuffle.append(call, body)
        case c.PushPart() | c.PushEnd():
            return await shuffle.take(call, body)


async def _file(
    shuffle: Shuffle, call: c.Get | c.FetchSegment | c.FetchInterval
) -> c.Said | tuple[c.File, BinaryIO]:
    """Open the file that is asked for. Raises OSError."""
    found = await (shuffle.get(call) if isinstance(call, c.Get) else shuffle.sent(call))
    if isinstance(found, c.Said):
        return found
    said, path = found
    try:
        return said, path.open("rb")
    except OSError as error:
        shuffle.here.failed(error, shuffle.member.life)
        raise


async def _asked(
    shuffle: Shuffle, call: c.Ask | c.TakeAttempts | c.Count
) -> c.Told | c.Said | c.Counted:
    """Answer with what is here, or with numbers of attempts."""
    if isinstance(call, c.Ask):
        return c.Told(await shuffle.report(call.query))
    if isinstance(call, c.Count):
        return shuffle.counted()
    return c.Said(Answer.OK.value, await shuffle.take_attempts(call.uid, call.count))


async def _changed(
    shuffle: Shuffle, call: c.Create | c.Describe | c.Commit | c.End | c.Delete
) -> Record:
    """Do what a client asks for; return the record, which says that it is done."""
    match call:
        case c.Create():
            pass  # it was read just now
        case c.Describe():
            if not await shuffle.read() and shuffle.record.state is not State.DELETED:
                raise ShuffleUnavailable(f"the record of {call.name!r} cannot be read now")
        case c.Commit():
            await shuffle.commit(call)
        case c.End(uid=uid, winners=winners):
            await shuffle.end(uid, winners)
        case c.Delete(uid=uid):
            await shuffle.delete(uid)
    return shuffle.record


def _failed(error: Exception) -> c.Failed:
    if isinstance(error, RingpopError):
        return c.Failed(error.code, str(error), tuple(getattr(error, "attempts", ())))
    if isinstance(error, OSError):
        return c.Failed("shuffle-unavailable", f"the folder of shuffles: {error.strerror}")
    log.error("shuffle-call-failed", exc_info=error)
    return c.Failed("shuffle-error", one_line(error))
