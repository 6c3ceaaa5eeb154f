"""A node's side of Arrow Flight: starts the process for it, and passes elements to and from it."""

from __future__ import annotations

import subprocess
import sys
from secrets import compare_digest, token_bytes
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.dataflow.channels import WAIT_S, Taken, element_of
from ringpop_py.dataflow.relayed import (
    FIXED,
    NOT_TAKEN,
    OVER,
    TAKEN,
    TOKEN_BYTES,
    frame,
    sizes_in,
)
from ringpop_py.errors import BadElement, ConnectFailed
from ringpop_py.logs import log
from ringpop_py.supervision import end_process
from ringpop_py.values.declared import Named, Natural, Text, convert, decode, encode
from ringpop_py.values.packed import decode_value, encode_value
from ringpop_py.wire.calls import NODE_SERVICE, Answer, Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.address import Address
    from ringpop_py.exchange.elements import Element, Hop
    from ringpop_py.transport.channel import Channel, IncomingCall

WHERE: Final = "/dataflow/flight"
READY_S: Final = 30.0
CALL_S: Final = 5.0
LINE_BYTES_MAX: Final = 4_096


class _Said(Named, frozen=True):
    """The addresses at which the process listens: for other nodes, and for this one."""

    flight: Natural
    relay: Natural


class FlightSide:
    """See the module.

    Args:
        take: called with each element that arrives.
    """

    def __init__(
        self,
        channel: Channel,
        host: str,
        address_of: Callable[[str], Address | None],
        take: Callable[[Hop, Element[bytes]], Awaitable[Taken]],
    ) -> None:
        self._channel = channel
        self._host = host
        self._address_of = address_of
        self._take = take
        self._token = token_bytes(TOKEN_BYTES)
        self._said: _Said | None = None

    @property
    def runs(self) -> bool:
        """Whether the process listens."""
        return self._said is not None

    async def run(self) -> None:
        """Run the process once, to its end. Raises RuntimeError when it ends."""
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, self._serve, listeners)
            port = listeners[0].socket.getsockname()[1]
            command = [sys.executable, "-P", "-m", "ringpop_py.dataflow.relay"]
            process = await trio.lowlevel.open_process(
                [*command, self._host, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            try:
                await self._wait(process)
            finally:
                self._said = None
                with trio.CancelScope(shield=True):
                    await end_process(process)
            raise RuntimeError(f"the process for Arrow Flight has ended with {process.returncode}")

    async def _wait(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send_all(self._token)
        line = b""
        with trio.fail_after(READY_S):
            while not line.endswith(b"\n"):
                more = await process.stdout.receive_some(LINE_BYTES_MAX)
                if not more:
                    return
                line += bytes(more)
        self._said = convert(_Said, decode_value("json", line))
        log.info("flight-served", where=f"{self._host}:{self._said.flight}")
        await process.wait()

    # From other nodes.

    def where(self, _call: IncomingCall) -> Answer:
        """Answer with the address of this node over Flight; empty while it has none."""
        said = self._said
        host = f"[{self._host}]" if ":" in self._host else self._host
        text = "" if said is None else f"grpc://{host}:{said.flight}"
        return Answer(ok=True, arg3=encode(text))

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Take the elements of one channel, until it ends."""
        try:
            async with stream:
                if not compare_digest(await _exactly(stream, TOKEN_BYTES), self._token):
                    return
                while True:
                    head, body = sizes_in(await _exactly(stream, FIXED.size))
                    element = element_of(await _exactly(stream, head), await _exactly(stream, body))
                    taken = await self._take(*element)
                    answer = TAKEN if taken.taken else OVER if taken.over else NOT_TAKEN
                    await stream.send_all(bytes([answer]))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except BadElement as error:
            log.info("dataflow-retries", why=str(error))

    # To other nodes.

    def line(self, to: str) -> FlightLine:
        """Return a channel to the member *to*."""
        return FlightLine(self, to)

    async def connected(self, to: str) -> trio.SocketStream:
        """Return a connection over which the process passes elements on to the member *to*.

        Raises:
            CallError: the process here or at the member does not run now.
        """
        address = self._address_of(to)
        said = self._said
        if address is None or said is None:
            raise ConnectFailed("the process for Arrow Flight does not run now")
        call = Call(NODE_SERVICE, WHERE, b"", b"", ttl_s=CALL_S)
        location = decode(Text, (await self._channel.call(address, call)).arg3)
        if not location:
            raise ConnectFailed(f"{to} cannot be reached over Arrow Flight now")
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", said.relay)
            await stream.send_all(
                self._token + frame(encode_value("json", {"location": location}), b"")
            )
        except (OSError, trio.BrokenResourceError) as error:
            raise ConnectFailed(f"the process for Arrow Flight: {error}") from None
        return stream


class FlightLine:
    """A channel to one other node, which is connected when needed."""

    def __init__(self, side: FlightSide, to: str) -> None:
        self._side = side
        self._to = to
        self._stream: trio.SocketStream | None = None

    async def bring(self, head: bytes, body: bytes) -> Taken:
        """Send an element; return whether it was taken. Raises CallError, BodyError."""
        if self._stream is None:
            self._stream = await self._side.connected(self._to)
        try:
            with trio.fail_after(CALL_S + WAIT_S):
                await self._stream.send_all(frame(head, body))
                answer = (await _exactly(self._stream, 1))[0]
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            raise ConnectFailed(f"{self._to}: {error}") from None
        finally:
            if sys.exc_info()[0] is not None:  # also if it was cancelled in the middle
                await self.aclose()
        return Taken(taken=answer == TAKEN, over=answer == OVER)

    async def aclose(self) -> None:
        """Close it."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await trio.aclose_forcefully(stream)


async def _exactly(stream: trio.SocketStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            raise trio.BrokenResourceError("the connection has ended")
        data += more
    return bytes(data)
