"""The network of a world: streams of bytes, as TCP has them, on the links of a `VirtualNetwork`.

What is lost is sent again, later and later, so a stream is late or breaks, and never has a gap.
A connection is there as soon as its kernel has answered, even if the process is paused. When a
process ends, its connections are closed, or reset if it had not read everything; at a loss of power
nothing is said, and the other end learns of it only from the machine that has started again.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import trio
import xxhash
from outcome import Error, Value

from ringpop_py.net.security.proof import LASTING
from ringpop_py.net.transport.network import RECEIVE_BYTES_MAX
from ringpop_sim.units import ms, s
from ringpop_sim.whole.stage.scheduling import ARRIVED, TaskSlot
from ringpop_sim.whole.stage.threads import ThreadSlot
from ringpop_sim.world.network import STRANGERS, address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.address import Address
    from ringpop_py.net.security.identity import Identity
    from ringpop_py.net.security.proof import Proof
    from ringpop_py.net.transport.network import Listener
    from ringpop_sim.whole.stage.scheduling import Processes, TrioProcess
    from ringpop_sim.world.network import VirtualNetwork

WINDOW_BYTES: Final = 256 * 1024
"""The most bytes that were sent and not received yet."""
BACKLOG_MAX: Final = 128
RESEND_US_MIN: Final = 200 * ms
RESEND_US_MAX: Final = 4 * s
CONNECT_AGAIN_US: Final = 1 * s
TOGETHER_SHARE: Final = 0.7
"""How often a receive takes one more piece of those that have arrived."""
PART_SHARE: Final = 0.05
"""How often a receive takes a part of what has arrived."""


def _error(number: int, kind: type[OSError] = OSError) -> OSError:
    return kind(number, os.strerror(number))


class Links:
    """Who listens where, and how messages get from one machine to another.

    Attributes:
        pieces_count, bytes_count: what was sent in streams.
    """

    def __init__(self, world: Processes, network: VirtualNetwork) -> None:
        self.world = world
        self.network = network
        self.listeners: dict[Address, SimulatedListener] = {}
        self.pieces_count = self.bytes_count = 0

    def carry(
        self, a: int, b: int, arrived: Callable[[object], None], again_us: int = RESEND_US_MIN
    ) -> None:
        """Call *arrived* when a message has come from machine *a* to *b*, at whatever try."""
        world, network = self.world, self.network
        delays_us = () if network.is_silent(b) else network.delays_us(a, b, world.now)
        # What was damaged is dropped, as its checksum is wrong, and so is a second copy.
        if delays_us and not (network.may_damage(a, b) and network.is_damaged(a, b, world.now)):
            world.after(delays_us[0], arrived)
            return
        following_us = min(2 * again_us, RESEND_US_MAX)
        world.after(again_us, lambda _: self.carry(a, b, arrived, following_us))


class SimulatedNetwork:
    """The network as a process at *machine* sees it. See `Network`."""

    def __init__(self, links: Links, process: TrioProcess, machine: int) -> None:
        self._links = links
        self._process = process
        self._machine = machine

    async def listen(self, address: Address) -> list[Listener]:
        await trio.lowlevel.checkpoint()
        if address in self._links.listeners:
            raise _error(errno.EADDRINUSE)
        return [SimulatedListener(self._links, self._process, self._machine, address)]

    async def connect(self, to: Address, *, origin: Address | None) -> SimulatedStream:
        await trio.lowlevel.checkpoint_if_cancelled()
        slot = TaskSlot(self._process)
        self._begin(slot, to, origin)
        found: SimulatedStream = await slot.wait()
        return found

    def connect_in_thread(self, to: Address, timeout_s: float) -> SimulatedStream:
        """Return a connection for a thread, which blocks. Raises OSError."""
        slot = ThreadSlot(self._process)
        self._begin(slot, to, None)
        found: SimulatedStream = slot.wait(timeout_s)
        return found

    def _begin(self, slot: TaskSlot | ThreadSlot, to: Address, origin: Address | None) -> None:
        _Attempt(self._links, self._process, self._machine, to, origin, slot).begin(None)


class _Attempt:
    """An attempt of a process to connect."""

    def __init__(
        self,
        links: Links,
        process: TrioProcess,
        machine: int,
        to: Address,
        origin: Address | None,
        slot: TaskSlot | ThreadSlot,
    ) -> None:
        self.slot = slot
        self._links = links
        self._process = process
        self._here = machine
        self._there = links.network.machine_of(to)
        self._to = to
        self._from = (origin or address_of(machine)).host

    def begin(self, _: object) -> None:
        links, here, there = self._links, self._here, self._there
        if there < STRANGERS and links.network.is_refused(here, there):
            self._fail(_error(errno.EHOSTUNREACH))
        else:
            links.carry(here, there, self._arrived, CONNECT_AGAIN_US)

    def _fail(self, error: OSError) -> None:
        # Later: it may be called before the task waits.
        self._links.world.after(0, self.slot.wake, Error(error))

    def _arrived(self, _: object) -> None:
        if not self.slot.is_taken:
            return  # nobody waits for it any more
        links, here, there = self._links, self._here, self._there
        listener = links.listeners.get(self._to)
        if listener is None:
            refused = _error(errno.ECONNREFUSED, ConnectionRefusedError)
            links.carry(there, here, lambda _: self.slot.wake(Error(refused)))
        elif len(listener.backlog) >= BACKLOG_MAX:
            links.world.after(CONNECT_AGAIN_US, self.begin)
        else:
            kind = type(self.slot)
            ours = SimulatedStream(links, self._process, here, self._to.host, kind)
            theirs = SimulatedStream(links, listener.process, there, self._from)
            ours.join(theirs)
            listener.arrived(theirs)
            links.carry(there, here, lambda _: self._is_up(ours))

    def _is_up(self, stream: SimulatedStream) -> None:
        if self.slot.is_taken:
            self.slot.wake(Value(stream))
        else:
            stream.close()


class SimulatedListener:
    """See `Listener`."""

    def __init__(self, links: Links, process: TrioProcess, machine: int, address: Address) -> None:
        self.address = address
        self.process = process
        self.machine = machine
        self.backlog: deque[SimulatedStream] = deque()
        self._links = links
        self._slot = TaskSlot(process)
        self._is_closed = False
        self._listen()
        process.on_end[self._forget] = self._listen

    def arrived(self, stream: SimulatedStream) -> None:
        """Take *stream* from the network."""
        self.backlog.append(stream)
        self._slot.wake()

    async def accept(self) -> SimulatedStream:
        await trio.lowlevel.checkpoint()
        while not self.backlog:
            if self._is_closed:
                raise trio.ClosedResourceError
            await self._slot.wait()
        return self.backlog.popleft()

    def close(self) -> None:
        if self._is_closed or not self.process.alive:
            return
        self._is_closed = True
        self._forget()
        for stream in self.backlog:
            stream.close()
        self._slot.wake()

    def _listen(self) -> None:
        if not self._is_closed:
            self._links.listeners[self.address] = self

    def _forget(self) -> None:
        self._links.listeners.pop(self.address, None)


class StreamEnd(Enum):
    """The end of a stream for the process that receives it."""

    NOT_YET = "not yet"
    REACHED = "reached"
    BROKEN = "broken"


class _Way:
    """What one end of a connection sends to the other: all of it arrives in order.

    Attributes:
        to: the other end.
        in_flight_count: the bytes that were sent and not received yet.
        is_over: whether nothing more is sent.
    """

    def __init__(self, links: Links, machine: int) -> None:
        self.to: SimulatedStream
        self.in_flight_count = 0
        self.is_over = False
        self._links = links
        self._machine = machine
        # Bytes; none of them for the end, None for a reset.
        self._pieces: deque[bytes | None] = deque()
        self._is_busy = False

    def send(self, piece: bytes) -> None:
        """Send *piece*."""
        self.in_flight_count += len(piece)
        self._links.pieces_count += 1
        self._links.bytes_count += len(piece)
        self._pieces.append(piece)
        self._go_on()

    def end(self, *, reset: bool) -> None:
        """Send the end of the stream or, in place of all that waits, a reset."""
        if reset:
            self.drop()
        if reset or not self.is_over:
            self.is_over = True
            self._pieces.append(None if reset else b"")
            self._go_on()

    def drop(self) -> None:
        """Drop what waits."""
        self._pieces.clear()

    def _go_on(self) -> None:
        """Send what waits, unless something is on its way."""
        here, there, network = self._machine, self.to.machine, self._links.network
        if not self._pieces or self._is_busy:
            return
        if network.is_silent(here):
            self.drop()  # the machine has lost its power
        elif network.is_refused(here, there):
            for end in (self.to, self.to.peer):
                end.is_broken_off()
        else:
            self._is_busy = True
            count = len(self._pieces)
            self._links.carry(here, there, lambda _: self._deliver(count))

    def _deliver(self, count: int) -> None:
        self._is_busy = False
        for _ in range(min(count, len(self._pieces))):
            piece = self._pieces.popleft()
            if self.to.is_gone:
                if piece:  # nobody will read it
                    self.to.peer.is_broken_off()
                return
            self.to.arrives(piece)
        self._go_on()


class SimulatedStream:
    """One end of a connection. See `Stream`.

    Args:
        slot: where those wait that have it: tasks or, with the methods of `Socket`, threads.

    Attributes:
        peer: the other end.
        is_gone: whether the process no longer has it.
    """

    def __init__(
        self,
        links: Links,
        process: TrioProcess,
        machine: int,
        remote_host: str,
        slot: type[TaskSlot | ThreadSlot] = TaskSlot,
    ) -> None:
        self.remote_host = remote_host
        self.identity: Identity | None = None
        self.proof: Proof = LASTING
        self.peer: SimulatedStream
        self.process = process
        self.machine = machine
        self.is_gone = False
        self.way = _Way(links, machine)
        self.reader: Any = slot(process)
        self.writer: Any = slot(process)
        # What has arrived, and how it goes on.
        self._arrived: deque[bytes] = deque()
        self._unread_count = 0
        self._end = StreamEnd.NOT_YET
        self._is_closed = False
        process.on_end[self._let_go] = None

    def join(self, peer: SimulatedStream) -> None:
        """Make *peer* the other end."""
        self.peer, peer.peer = peer, self
        self.way.to, peer.way.to = peer, self

    # For the process.

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while (found := self.receive_nowait()) is None:
            await self.reader.wait()
        return found

    def receive_nowait(self) -> bytes | None:
        """Return what `receive` would; None if that would wait."""
        if self._is_closed:
            raise trio.ClosedResourceError("the stream is closed")
        if self._arrived:
            return self._take()
        if self._end is StreamEnd.BROKEN:
            raise trio.BrokenResourceError(os.strerror(errno.ECONNRESET))
        return b"" if self._end is StreamEnd.REACHED else None

    def _take(self) -> bytes:
        """Return what has arrived: one piece, several, or a part of one."""
        rng = self.process.rng
        found = self._arrived.popleft()
        while self._arrived and rng.random() < TOGETHER_SHARE:
            if len(found) + len(self._arrived[0]) > RECEIVE_BYTES_MAX:
                break
            found += self._arrived.popleft()
        if len(found) > 1 and rng.random() < PART_SHARE:
            cut = rng.randrange(1, len(found))
            self._arrived.appendleft(found[cut:])
            found = found[:cut]
        self._unread_count -= len(found)
        self.peer.has_been_read(len(found))
        return found

    @property
    def is_readable(self) -> bool:
        """Whether `receive` would not wait."""
        return bool(self._arrived) or self._end is not StreamEnd.NOT_YET

    def send_nowait(self, data: bytes | memoryview) -> int:
        if not self.process.alive:
            return len(data)
        if self._is_closed:
            raise trio.ClosedResourceError("the stream is closed")
        if self._end is StreamEnd.BROKEN:
            raise trio.BrokenResourceError(os.strerror(errno.EPIPE))
        room = min(WINDOW_BYTES - self.way.in_flight_count, RECEIVE_BYTES_MAX)
        if room <= 0:
            return 0
        piece = bytes(data[:room])
        self.way.send(piece)
        return len(piece)

    async def send_some(self, data: memoryview) -> int:
        await trio.lowlevel.checkpoint()
        while not (sent := self.send_nowait(data)):
            await self.writer.wait()
        return sent

    def end_sending(self) -> None:
        if self.process.alive:
            self.way.end(reset=False)

    def close(self) -> None:
        if self.process.alive and not self._is_closed:
            self._is_closed = True
            self._let_go()
            self._wake()

    # In the kernel.

    def _let_go(self) -> None:
        """End the stream, since the process does or has closed it."""
        if not self.is_gone:
            self.is_gone = True
            self._end = StreamEnd.BROKEN
            self.process.on_end.pop(self._let_go, None)
            self.way.end(reset=self._unread_count > 0)

    def arrives(self, piece: bytes | None) -> None:
        """Take what the other end has sent; see `_Way`."""
        world = self.process.world
        detail = xxhash.xxh32_intdigest(piece) if piece else -1 if piece is None else 0
        world.trace.event(world.now, ARRIVED, self.process.serial, detail)
        if piece is None:
            self.is_broken_off()
        elif not piece:
            self._end = StreamEnd.REACHED
        else:
            self._arrived.append(piece)
            self._unread_count += len(piece)
        self.reader.wake()

    def is_broken_off(self) -> None:
        """Break: nothing more is sent or will arrive."""
        self._end = StreamEnd.BROKEN
        self.way.drop()
        self._wake()

    def has_been_read(self, count: int) -> None:
        """Note that the other process has received *count* bytes."""
        self.way.in_flight_count -= count
        if self.way.in_flight_count < WINDOW_BYTES:
            self.writer.wake()

    def _wake(self) -> None:
        self.reader.wake()
        self.writer.wake()
