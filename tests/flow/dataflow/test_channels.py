"""Elements come once and in order, whatever the other worker, or the way to it, does with them."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
import trio

from ringpop_py.base.errors import BadElement, BodyError, ConnectionLost
from ringpop_py.flow.dataflow.batches import body_of
from ringpop_py.flow.dataflow.channels import (
    PAUSE_S_MAX,
    PAUSE_S_MIN,
    QUEUED,
    ElementReply,
    Incoming,
    Outgoing,
    element_of,
)
from ringpop_py.flow.exchange.elements import Data
from ringpop_py.flow.exchange.epochs import EpochRecord, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ringpop_py.flow.exchange.elements import Element

pytestmark = pytest.mark.virtual_time

A: Final = Worker("a", "1")
B: Final = Worker("b", "1")
RECORD: Final = EpochRecord(0, 0, (A, B), 1)
WAYS: Final = ("as usual", "refused", "lost", "answer lost", "answer damaged", "late")


class Peer:
    """Worker b behind a line: *does* says what happens to each attempt to bring an element.

    Attributes:
        began: when each attempt began.
    """

    def __init__(self, does: Callable[[], str], *, at: Worker = A) -> None:
        self.incoming = Incoming(RECORD, B)
        self.began: list[float] = []
        self._does = does
        self._at = at

    async def bring(self, head: bytes, body: bytes) -> ElementReply:
        self.began.append(trio.current_time())
        way = self._does()
        if way == "refused":
            return ElementReply(taken=False)
        if way == "lost":
            raise ConnectionLost("it never came")
        if way == "too large":
            raise BadElement("it does not fit")
        if way == "late":
            await trio.sleep(3)
        taken = await self.incoming.take(*element_of(head, body))
        if way == "answer lost":
            raise ConnectionLost("its answer was lost")
        if way == "answer damaged":
            raise BodyError("its answer is damaged")
        return taken


@asynccontextmanager
async def channel_to(peer: Peer, me: Worker = A) -> AsyncIterator[Outgoing]:
    outgoing = Outgoing("flow", RECORD, me, peer.bring)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outgoing.run)
        yield outgoing
        nursery.cancel_scope.cancel()


def batches(*values: str) -> list[Data[pa.RecordBatch]]:
    return [Data(pa.record_batch([pa.array([value])], ["value"])) for value in values]


def arrived(sent: list[Data[pa.RecordBatch]]) -> list[Data[bytes]]:
    return [Data(body_of(element.batch)) for element in sent]


@pytest.mark.parametrize("seed", range(20))
async def test_elements_come_once_and_in_order_whatever_happens_to_each(seed: int) -> None:
    rng = random.Random(seed)
    peer = Peer(lambda: rng.choice(WAYS))
    sent = batches(*map(str, range(40)))
    came: list[Element[bytes]] = []
    async with channel_to(peer) as outgoing, trio.open_nursery() as nursery:

        async def put() -> None:
            for element in sent:
                await outgoing.put(element)

        nursery.start_soon(put)
        with trio.fail_after(1_000):
            while len(came) < len(sent):
                came.append(await peer.incoming.receiver("a").receive())
                await trio.sleep(rng.choice([0, 0, 7]))  # longer than an element waits for room
    assert came == arrived(sent)


async def test_a_peer_that_refuses_is_asked_less_and_less_often_and_then_each_second() -> None:
    ways = iter(["refused"] * 12 + ["as usual"] * 2)
    peer = Peer(lambda: next(ways))
    async with channel_to(peer) as outgoing:
        for element in batches("1", "2"):
            await outgoing.put(element)
        for _ in "12":
            await peer.incoming.receiver("a").receive()
    pauses = [after - before for before, after in pairwise(peer.began)]
    expected = [min(PAUSE_S_MIN * 2**number, PAUSE_S_MAX) for number in range(12)]
    assert pauses == pytest.approx([*expected, 0])  # the next element begins anew


async def test_a_sender_waits_while_the_peer_takes_nothing() -> None:
    peer = Peer(lambda: "refused")
    async with channel_to(peer) as outgoing:
        with trio.move_on_after(100) as waiting:
            for element in batches(*"12345678"):
                await outgoing.put(element)
    assert waiting.cancelled_caught


async def test_a_run_that_is_over_there_is_tried_no_more() -> None:
    peer = Peer(lambda: "as usual")
    async with channel_to(peer, Worker("a", "a former life")) as outgoing:
        for element in batches("1", "2"):
            await outgoing.put(element)
        await trio.sleep(100)
        assert len(peer.began) == 1


async def test_an_element_that_cannot_be_sent_ends_the_worker_and_is_not_retried() -> None:
    peer = Peer(lambda: "too large")
    with pytest.RaisesGroup(pytest.RaisesExc(BadElement, match="does not fit")):
        async with channel_to(peer) as outgoing:
            await outgoing.put(batches("1")[0])
            await trio.sleep(100)
    assert len(peer.began) == 1


async def test_more_than_the_queue_holds_waits_for_room_and_its_sender_is_told() -> None:
    peer = Peer(lambda: "as usual")
    async with channel_to(peer) as outgoing:
        sent = batches(*"1234")
        for element in sent:
            await outgoing.put(element)
        await trio.sleep(60)
        assert len(peer.began) > QUEUED + 2  # the third is sent again and again
        came = [await peer.incoming.receiver("a").receive() for _ in sent]
    assert came == arrived(sent)
