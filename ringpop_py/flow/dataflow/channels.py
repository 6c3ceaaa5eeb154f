"""The channels between the workers of a run: calls of one node by another, one element each.

A call is answered when its element is in the queue of the receiver. So a slow stage puts
back-pressure on its senders, and on the readers of its sources.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.base.errors import BadElement, BodyError, CallError, ConnectFailed
from ringpop_py.base.values.declared import Declared, decode
from ringpop_py.flow.dataflow.batches import body_of
from ringpop_py.flow.exchange.elements import Data, Hop, element_in, head_of
from ringpop_py.net.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.flow.exchange.elements import Element
    from ringpop_py.flow.exchange.epochs import EpochRecord, Worker
    from ringpop_py.net.transport.channel import Channel

ELEMENT: Final = "/dataflow/element"
QUEUED: Final = 2
"""The most elements of a channel that wait at the receiver, and likewise at the sender."""
CALL_S: Final = 10.0
WAIT_S: Final = 5.0
"""The most seconds that an element waits for room, or for its run, before its sender is told."""
HEAD_ROOM: Final = 1_024
PAUSE_S_MIN: Final = 0.01
PAUSE_S_MAX: Final = 1.0


class ElementReply(Declared, frozen=True):
    """The answer to an element.

    Attributes:
        taken: whether it is in the queue; otherwise it is to be sent again, unless *over*.
        over: whether its run is over, so that no more of its elements are taken.
    """

    taken: bool
    over: bool = False


class Incoming:
    """The channels into one worker, in one run."""

    def __init__(self, record: EpochRecord, me: Worker) -> None:
        self.run = record.run
        self._lives = {worker.name: worker.life for worker in record.workers}
        self._me = me
        self._boxes = {name: trio.open_memory_channel[Any](QUEUED) for name in record.names}
        self._next = dict.fromkeys(record.names, 0)
        self._locks = {name: trio.Lock() for name in record.names}

    def receiver(self, worker: str) -> trio.MemoryReceiveChannel[Element[Any]]:
        """Return the channel with the elements of *worker*, in order."""
        return self._boxes[worker][1]

    async def put(self, worker: str, element: Element[Any]) -> None:
        """Put an element of this same process into its queue, as soon as it has room."""
        await self._boxes[worker][0].send(element)

    async def take(self, hop: Hop, element: Element[Any]) -> ElementReply:
        """Put an element of another worker into its queue, if it is the next one.

        Raises:
            BadElement: an element before it is missing.
        """
        if self._lives.get(hop.sender) != hop.life:
            return ElementReply(taken=False, over=True)
        with trio.move_on_after(WAIT_S):
            async with self._locks[hop.sender]:
                number = self._next[hop.sender]
                if hop.number < number:
                    return ElementReply(taken=True)  # its answer was lost
                if hop.number > number:
                    raise BadElement(f"element {hop.number} of {hop.sender}, and not {number}")
                await self._boxes[hop.sender][0].send(element)
                self._next[hop.sender] = number + 1
                return ElementReply(taken=True)
        return ElementReply(taken=False)


Bring = Callable[[bytes, bytes], Awaitable[ElementReply]]
"""Brings a head and a body to one other worker, which answers. Raises CallError, BodyError."""


def bring_to(to: str, channel: Channel, address_of: Callable[[str], Address | None]) -> Bring:
    """Return the way of elements to the node *to*: over the connections that nodes have anyway.

    Args:
        address_of: returns where a member listens.
    """

    async def bring(head: bytes, body: bytes) -> ElementReply:
        address = address_of(to)
        if address is None:
            raise ConnectFailed(f"{to} is not a member")
        size, size_max = len(head) + len(body), channel.limits.message_bytes_max
        if size + HEAD_ROOM > size_max:
            raise BadElement(
                f"records of {size} bytes do not fit into a message of {size_max} "
                "(WireLimits.message_bytes_max)"
            )
        call = Call(NODE_SERVICE, ELEMENT, head, body, ttl_s=CALL_S)
        return decode(ElementReply, (await channel.call(address, call)).arg3)

    return bring


class Outgoing:
    """The channel from this worker to another one, in one run."""

    def __init__(self, flow: str, record: EpochRecord, me: Worker, bring: Bring) -> None:
        self._about = flow, record.run, me.name, me.life
        self._bring_once = bring
        self._send, self._receive = trio.open_memory_channel[Any](QUEUED)

    async def put(self, element: Element[Any]) -> None:
        """Send *element*, whose batch is Arrow's, behind all before it."""
        await self._send.send(element)

    async def run(self) -> None:
        """Send one element after the other, until cancelled, or until the run is over there."""
        number = 0
        async for element in self._receive:
            head = head_of(element, Hop(*self._about, number))
            body = body_of(element.batch) if isinstance(element, Data) else b""
            if not await self._bring(head, body):
                await trio.sleep_forever()  # a newer record ends this run here as well
            number += 1

    async def _bring(self, head: bytes, body: bytes) -> bool:
        """Send an element until it is taken; return whether the run goes on there."""
        pause_s = PAUSE_S_MIN
        while True:
            try:
                said = await self._bring_once(head, body)
            except (CallError, BodyError):
                pass  # the leader finds out whether that worker is there
            else:
                if said.taken or said.over:
                    return said.taken
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


def element_of(arg2: bytes, arg3: bytes) -> tuple[Hop, Element[bytes]]:
    """Return the element of a call. Raises BadElement."""
    return element_in(arg2, arg3, has_body=bool(arg3))
