"""Connections of asynchronous programs: one for each event loop, which its calls share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol, Self

import anyio
import sniffio
from anyio.lowlevel import RunVar

from ringpop_py.base.errors import TooManyInFlight
from ringpop_py.base.values.declared import replace
from ringpop_py.client.lines.local_daemon import TTL_S_MIN, BaseClient
from ringpop_py.client.lines.outcomes import no_time_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.address import Peer
    from ringpop_py.net.wire.calls import Answer, Call

CALLS_MAX: Final = 256
"""So many calls of an event loop to one daemon are under way; more wait, in their time."""
_NUMBERS: Final = count()

now: Final = anyio.current_time
sleep: Final = anyio.sleep


class AsyncClosing(ABC):
    """A base class: the end of an ``async with`` block closes its connections."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections of this event loop; one that a call uses closes after it."""


class AsyncPending(Protocol):
    """A call under way."""

    @property
    def peer(self) -> Peer:
        """The daemon that was called."""

    async def result(self) -> Answer:
        """Wait for the answer and return it, once. Raises CallError.

        If the task is cancelled, the call ends at the daemon as well, and others go on.
        """

    async def aclose(self) -> None:
        """Want no answer any more: the call ends at the daemon, unless it has an outcome."""


class AsyncLine(Protocol):
    """A connection to a daemon, which is made when it is first used, and not made again.

    Attributes:
        sends_itself: whether what is begun is sent without `flush`.
    """

    sends_itself: bool

    @property
    def is_open(self) -> bool:
        """Whether a call can be sent, now or soon, as far as is known."""

    @property
    def is_ready(self) -> bool:
        """Whether it is there."""

    async def ready(self, timeout_s: float) -> None:
        """Wait until it is there. Raises CallError."""

    def begin(self, call: Call, on_end: Callable[[], None]) -> AsyncPending:
        """Begin *call*; *on_end* is called once it is over. Raises CallError."""

    async def flush(self) -> None:
        """Send what is begun."""

    async def aclose(self) -> None:
        """Begin no more calls on it; it closes as soon as none is under way."""


def _nothing() -> None:
    pass


def _with_time_left(call: Call, began_at: float) -> Call:
    """Return *call* with the time that is left of that which it had at *began_at*."""
    left_s = began_at + call.ttl_s - anyio.current_time()
    return replace(call, ttl_s=max(left_s, TTL_S_MIN))


class _OfLoop:
    """The connection of one client in one event loop, and how many more calls it may have."""

    def __init__(self, client: AsyncLines) -> None:
        self._client = client
        self._is_asyncio = sniffio.current_async_library() == "asyncio"
        self.slots = anyio.Semaphore(CALLS_MAX)
        self.line: AsyncLine | None = None

    async def turn(self, call: Call) -> Call:
        """Wait for a slot; return *call* with the time that is left. Raises TooManyInFlight."""
        began_at = anyio.current_time()
        with anyio.move_on_after(call.ttl_s):
            await self.slots.acquire()
            return _with_time_left(call, began_at)
        peer = self._client.peer
        raise TooManyInFlight(f"{CALLS_MAX} calls to {peer} are under way in this program")

    async def renewed(self) -> AsyncLine:
        """Return a new connection in place of one that cannot be used."""
        former, self.line = self.line, self._new_line()
        line = self.line
        if former is not None:
            await former.aclose()
        return line

    def _new_line(self) -> AsyncLine:
        client = self._client
        about = client.peer, client.cluster_key, client.limits
        if self._is_asyncio:
            from ringpop_py.client.lines.asyncio_line import AsyncioLine  # noqa: PLC0415

            return AsyncioLine(*about)
        from ringpop_py.client.lines.anyio_line import AnyioLine  # noqa: PLC0415

        return AnyioLine(*about)


class AsyncLines(BaseClient, AsyncClosing):
    """Calls over a connection for each event loop, made when it is needed, and after a failure.

    A loop that ends before the program does has to close it: use the client in an ``async with``.
    """

    def _prepare(self) -> None:
        # Older ones of anyio know such a variable by its name.
        self._of_loop: RunVar[_OfLoop] = RunVar(f"connections {next(_NUMBERS)}")

    def _mine(self) -> _OfLoop:
        mine = self._of_loop.get(None)
        if mine is None:
            mine = _OfLoop(self)
            self._of_loop.set(mine)
        return mine

    async def aclose(self) -> None:
        """Close the connection of this event loop; while a call uses it, after that call."""
        line = self._mine().line
        if line is not None:
            await line.aclose()

    async def begin(self, call: Call, *, more: bool = False) -> AsyncPending:
        """Send *call*; several may be under way, and each has to be awaited or closed.

        Args:
            more: whether the caller has others under way. Then it does not wait for a turn, which
                others might have who wait as well.

        Raises:
            ConnectFailed: if the daemon cannot be reached.
            ConnectionLost: if the connection broke while the call was sent.
            CallError: if the call cannot be sent, for example because it is too large.
        """
        if not call.ttl_s > 0:
            raise no_time_left()
        mine, on_end = self._mine(), _nothing
        if not more:
            try:
                mine.slots.acquire_nowait()
            except anyio.WouldBlock:
                call = await mine.turn(call)
            on_end = mine.slots.release
        try:
            line = mine.line
            if line is None or not line.is_open:
                line = await mine.renewed()
            if not line.is_ready:
                began_at = anyio.current_time()
                await line.ready(call.ttl_s)
                call = _with_time_left(call, began_at)
            pending = line.begin(call, on_end)
        except BaseException:
            on_end()
            raise
        if not line.sends_itself:
            await line.flush()
        return pending
