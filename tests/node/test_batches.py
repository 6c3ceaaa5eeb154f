"""Batch handlers that take long: in a thread the node goes on; in its own, it says so."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import trio

from ringpop_py import ApplicationError, Config, Request, open_ringpop
from ringpop_py.base.values.declared import decode
from ringpop_py.state.rows import handler
from ringpop_py.state.rows.batches import POSITION, BatchReply, BatchSource, encode_batch
from tests.logged import events_in

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop


def batch(number: int, attempt: int = 1) -> Request:
    rows = {"key": pa.array([f"k{number}"]), POSITION: pa.array([0], pa.int32())}
    source = BatchSource("job", 0, number, attempt)
    return Request("/rows", encode_batch(pa.record_batch(rows), source))


async def send(node: Ringpop, request: Request) -> BatchReply:
    return decode(BatchReply, (await node.proxy("k", request)).body)


async def test_in_a_thread_batches_take_turns_and_the_node_goes_on() -> None:
    async with open_ringpop(Config()) as node:
        threads, order = set[int](), list[str]()
        may_end = threading.Event()

        @node.batch_handler("/rows", key="key", in_thread=True)
        def rows(taken: pa.RecordBatch) -> None:
            threads.add(threading.get_ident())
            may_end.wait(10)
            order.extend(taken.column("key").to_pylist())

        @node.handler("/other")
        def other(_call: Any) -> bytes:  # noqa: ANN401
            return b"answered"

        replies = list[BatchReply]()

        async def one(request: Request) -> None:
            replies.append(await send(node, request))

        async with trio.open_nursery() as nursery:
            for request in (batch(1), batch(2), batch(1, 2)):  # the first is sent again meanwhile
                nursery.start_soon(one, request)
                await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(5):
                assert (await node.proxy("k", Request("/other"))).body == b"answered"
            assert not order
            may_end.set()

        assert order == ["k1", "k2"]
        assert [(reply.accepted, reply.repeated) for reply in replies] == [(1, 0), (1, 0), (0, 1)]
        assert threading.get_ident() not in threads


@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_error_of_the_handler_comes_back_and_the_rows_may_be_sent_again(
    *, in_thread: bool
) -> None:
    async with open_ringpop(Config()) as node:
        fails = [True]

        @node.batch_handler("/rows", key="key", in_thread=in_thread)
        def rows(_taken: pa.RecordBatch) -> None:
            if fails.pop():
                raise ValueError("the third row is odd")

        with pytest.raises(ApplicationError, match=r"the third row is odd .*/rows at"):
            await send(node, batch(1))
        fails.append(False)
        assert (await send(node, batch(1, 2))).accepted == 1


async def test_a_handler_that_holds_the_node_is_told_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handler, "HELD_S", 0.01)
    async with open_ringpop(Config()) as node:
        seconds = [0.0, 0.05, 0.05]

        @node.batch_handler("/rows", key="key")
        def rows(_taken: pa.RecordBatch) -> None:
            time.sleep(seconds.pop(0))  # as one that calls something that blocks

        for number in range(3):
            await send(node, batch(number))

    (warning,) = events_in(caplog, "handler-slow")
    assert warning.fields["endpoint"] == "/rows"
    assert "in_thread=True" in str(warning.fields["text"])
