"""Calls over TCP, on trio: many at a time on one connection, answered in any order."""

from __future__ import annotations

import os
import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import trio

from ringpop_py.base.address import Address
from ringpop_py.base.errors import BodyError, ShuffleUnavailable
from ringpop_py.base.supervision import keep_running
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.net.security.proof import LASTING, Proof
from ringpop_py.net.security.streams import Accepted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ringpop_py.flow.shuffle.protocol.record import MemberId
    from ringpop_py.flow.shuffle.server.view import Watch
    from ringpop_py.flow.shuffle.sorting.frames import Bytes
    from ringpop_py.net.security.streams import Keys, Stream

CHUNK_BYTES: Final = 1024 * 1024
CONNECT_S: Final = 2.0
HEAD_S: Final = 20.0
"""Seconds in which the head of a message has to be here, once it has begun."""
LARGE_AT_A_TIME: Final = 4
"""How many heads of more than `SMALL_HEAD_BYTES` are read at a time; others wait."""


class Message(NamedTuple):
    """A message that came: the number of a call, a head, and the length of the body to follow."""

    number: int
    head: bytes
    body_bytes: int


class Line:
    """One end of a connection. One task reads; any may send, one at a time.

    Args:
        large: acquired while a large head is read.
        proof: what the other end has shown.
    """

    def __init__(
        self, stream: Stream, large: trio.Semaphore | None = None, proof: Proof = LASTING
    ) -> None:
        self._stream = stream
        self.proof = proof
        self._large = large or trio.Semaphore(LARGE_AT_A_TIME)
        plain = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        # A peer whose machine has lost its power does not close its connections.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._sending = trio.Lock()

    async def aclose(self) -> None:
        """Close it; tasks that wait for it get an error."""
        await trio.aclose_forcefully(self._stream)

    async def receive(self) -> Message | None:
        """Return the next message, without its body; None if the peer has ended it.

        Raises:
            BodyError: if it is not a message.
            trio.BrokenResourceError, trio.ClosedResourceError: if the connection is lost.
        """
        fixed = bytearray(c.FIXED.size)
        began = await self._received(memoryview(fixed), at_start=True)
        if not began:
            return None
        with trio.move_on_after(HEAD_S):
            await self._fill(memoryview(fixed)[began:])
            number, head_bytes, body_bytes = c.fixed_part(fixed)
            head = await self._read(min(head_bytes, c.SMALL_HEAD_BYTES))
            if head_bytes > len(head):
                c.check_may_be_large(head)
                async with self._large:
                    head += await self._read(head_bytes - len(head))
            return Message(number, bytes(head), body_bytes)
        raise BodyError(f"the head of a message took longer than {HEAD_S:g} s")

    async def body(self, size: int) -> bytearray:
        """Return a body that is held in memory. Raises as `receive`."""
        if size > c.HELD_BYTES_MAX:
            raise BodyError(f"a body of {size} bytes is too long")
        return await self._read(size, c.BODY_PIECE_BYTES)

    async def _read(self, size: int, first: int = c.PIECE_BYTES) -> bytearray:
        found = bytearray(min(size, first))
        await self._fill(memoryview(found))
        while more := c.next_piece(len(found), size):
            found += bytes(more)
            await self._fill(memoryview(found)[-more:])
        return found

    async def _fill(self, buffer: memoryview) -> None:
        while buffer:
            buffer = buffer[await self._received(buffer) :]

    async def fill(self, buffer: memoryview, *, within_s: float, silent_s: float) -> bool:
        """Read just as many bytes as *buffer* has. Raises as `receive`.

        Returns:
            Whether all of it came *within_s*, without a silence of *silent_s* in it.
        """
        end = trio.current_time() + within_s
        with trio.CancelScope() as waiting:
            while buffer:
                waiting.deadline = min(end, trio.current_time() + silent_s)
                buffer = buffer[await self._received(buffer) :]
        return not buffer

    async def body_to(self, path: Path, size: int) -> None:
        """Write a body into the new file at *path*. Raises as `receive`, and OSError."""
        buffer = memoryview(bytearray(min(size, CHUNK_BYTES) or 1))
        async with await trio.open_file(path, "wb") as file:
            while size:
                part = buffer[: min(size, len(buffer))]
                await self._fill(part)
                await file.write(part)
                size -= len(part)

    async def _received(self, view: memoryview, *, at_start: bool = False) -> int:
        """Read some bytes into *view*; return 0, no error, if the connection ends *at_start*."""
        if isinstance(self._stream, trio.SSLStream):
            data = await self._stream.receive_some(len(view))
            count = len(data)
            view[:count] = data
        else:
            try:
                count = await self._stream.socket.recv_into(view)
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error
        if not count and not at_start:
            raise trio.BrokenResourceError("the peer has ended the connection")
        return count

    async def send(self, number: int, head: c.Call | c.Reply, body: Bytes = b"") -> None:
        """Send a message. Raises as `receive`."""
        packed = c.packed_head(number, head, len(body))
        async with self._sending, self._whole():
            if len(body) < CHUNK_BYTES // 16:
                await self._stream.send_all(packed + body)
            else:
                await self._stream.send_all(packed)
                view = memoryview(body)
                for start in range(0, len(view), CHUNK_BYTES):  # TLS makes a copy of each
                    await self._stream.send_all(view[start : start + CHUNK_BYTES])

    async def send_file(self, number: int, head: c.Reply, file: BinaryIO) -> None:
        """Send a message whose body is *file*. Raises as `receive`, and OSError."""
        size = os.fstat(file.fileno()).st_size
        async with self._sending, self._whole():
            await self._stream.send_all(c.packed_head(number, head, size))
            while size:
                data = await trio.to_thread.run_sync(file.read, min(size, CHUNK_BYTES))
                if not data:
                    raise trio.BrokenResourceError("the file is shorter than it was")
                await self._stream.send_all(data)
                size -= len(data)

    @asynccontextmanager
    async def _whole(self) -> AsyncIterator[None]:
        """Close the connection if the block does not end: a part of a message would stand in it."""
        try:
            yield
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.aclose()
            raise


class _Waiting:
    """A call under way: where its body goes, and what came."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.done = trio.Event()
        self.reply: c.Reply | None = None
        self.body: bytearray = bytearray()


class Peer:
    """Calls to the process of the member *name*, over a connection that is made when needed.

    Args:
        keys: of the cluster, if it has some.
    """

    def __init__(self, name: str, address: str, nursery: trio.Nursery, keys: Keys | None) -> None:
        self.address = Address.parse(address, what="a shuffle process")
        self._name = name
        self._nursery = nursery
        self._keys = keys
        self._line: Line | None = None
        self._connecting = trio.Lock()
        self._number = 0
        self._waiting: dict[int, _Waiting] = {}

    async def call(
        self,
        call: c.Call,
        body: Bytes = b"",
        *,
        timeout_s: float,
        path: Path | None = None,
    ) -> tuple[c.Reply, bytearray]:
        """Return the reply to *call*, and its body, which goes into the file at *path* if given.

        Raises:
            ShuffleUnavailable: if no reply comes in time.
            ShuffleError: the error in the answer of the peer.
        """
        with trio.move_on_after(timeout_s):
            try:
                line = await self._connected()
                self._number += 1
                number, waiting = self._number, _Waiting(path)
                self._waiting[number] = waiting
                try:
                    await line.send(number, call, body)
                    await waiting.done.wait()
                finally:
                    self._waiting.pop(number, None)
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ShuffleUnavailable(f"{self.address}: {error}") from None
            if waiting.reply is None:
                raise ShuffleUnavailable(f"{self.address}: the connection was lost")
            if isinstance(waiting.reply, c.Failed):
                raise c.error_of(waiting.reply)
            return waiting.reply, waiting.body
        raise ShuffleUnavailable(f"{self.address} did not answer within {timeout_s:g} s")

    async def _connected(self) -> Line:
        async with self._connecting:
            if self._line is not None and self._line.proof.why_over():
                await self._line.aclose()  # its calls end, and are made again
                self._line = None
            if self._line is None:
                made = None
                with trio.move_on_after(CONNECT_S):
                    made = await self._secured(await trio.open_tcp_stream(*self.address))
                if made is None:
                    raise ShuffleUnavailable(f"{self.address} does not answer")
                self._line = Line(made.stream, proof=made.proof)
                what = f"the connection to {self._name}"
                # After a bug it is closed, and there is nothing more to receive.
                self._nursery.start_soon(keep_running, what, partial(self._receive, self._line))
            return self._line

    async def _secured(self, stream: trio.SocketStream) -> Accepted:
        if self._keys is None:
            return Accepted(stream, LASTING)
        try:
            return await self._keys.connect(stream, self._name)
        except BaseException:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
            raise

    async def _receive(self, line: Line) -> None:
        try:
            while (message := await line.receive()) is not None:
                await self._take(line, message)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, BodyError):
            pass
        finally:
            if self._line is line:
                self._line = None
                waiting, self._waiting = self._waiting, {}
                for each in waiting.values():
                    each.done.set()
            with trio.CancelScope(shield=True):
                await line.aclose()

    async def _take(self, line: Line, message: Message) -> None:
        reply = c.reply_in(message.head)
        # It stays among those that wait, until the body is here: if that breaks off, it ends.
        waiting = self._waiting.get(message.number)
        if waiting is not None and waiting.path is not None and isinstance(reply, c.File):
            await line.body_to(waiting.path, message.body_bytes)
        else:
            body = await line.body(message.body_bytes)
            if waiting is not None:
                waiting.body = body
        if waiting is not None:
            self._waiting.pop(message.number, None)
            waiting.reply = reply
            waiting.done.set()


class Peers:
    """Calls other processes. Files and slices do not share connections with short messages."""

    def __init__(self, watch: Watch, nursery: trio.Nursery, keys: Keys | None) -> None:
        self._watch = watch
        self._nursery = nursery
        self._keys = keys
        self._peers: dict[tuple[str, str, bool], Peer] = {}

    async def call(
        self,
        member: MemberId,
        call: c.Call,
        body: Bytes = b"",
        *,
        timeout_s: float,
        path: Path | None = None,
        bulk: bool = False,
    ) -> tuple[c.Reply, bytearray]:
        """Return the reply of *member*, whatever life it is in; see `Peer.call`.

        Raises:
            ShuffleUnavailable: if it is not known, or does not answer in time.
        """
        shuffler = self._watch.shufflers.get(member.host)
        if shuffler is None:
            raise ShuffleUnavailable(f"{member.host} has no process for shuffles now")
        key = member.host, shuffler.address, bulk
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = Peer(member.host, shuffler.address, self._nursery, self._keys)
        return await peer.call(call, body, timeout_s=timeout_s, path=path)
