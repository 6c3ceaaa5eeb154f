"""The part of a node in one run: what is left of it when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import trio

from ringpop_py.base.errors import BadElement
from ringpop_py.base.values.declared import replace
from ringpop_py.flow.dataflow.channels import ElementReply, Incoming
from ringpop_py.flow.dataflow.dataflow import _with_state
from ringpop_py.flow.dataflow.part import Part, Plan
from ringpop_py.flow.dataflow.stage import checked_stage
from ringpop_py.flow.exchange.elements import Barrier, Hop, Watermark
from ringpop_py.flow.exchange.epochs import Aligned, EpochRecord, StatePart, Worker
from ringpop_py.flow.exchange.state import StageState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.flow.dataflow.channels import Bring
    from ringpop_py.flow.dataflow.checkpoints import Checkpoints

ME = Worker("a", "life")


class Nothing:
    """A source without splits."""

    def splits(self) -> Sequence[str]:
        return []

    def read(self, *_: object) -> Sequence[object]:
        raise AssertionError


class Objects:
    """A store of objects that takes its time for the second one."""

    def __init__(self) -> None:
        state = StageState()
        for key in "kj":
            state.set(key, 1, None)
        whole, _ = state.keep(whole=True)
        state.set("k", 99, None)
        state.set("new", 5, None)
        change, _ = state.keep(whole=False)
        self.payloads = {"whole": whole, "change": change}
        self.asked = trio.Event()
        self.may_go_on = trio.Event()

    async def get_object(self, name: str) -> bytes:
        if name == "change":
            self.asked.set()
            await self.may_go_on.wait()
        return self.payloads[name]


def a_plan(objects: Objects) -> Plan:
    limiter = trio.CapacityLimiter
    return Plan(
        name="f",
        source=Nothing(),  # type: ignore[arg-type]
        stage=checked_stage(lambda state, _rows, _context: state),
        sink=None,
        time=None,
        lateness=0,
        idle_after_s=30.0,
        refused=None,
        me=ME,
        checkpoints=cast("Checkpoints", objects),
        line_to=lambda _: cast("Bring", None),
        read_limiter=limiter(1),
        stage_limiter=limiter(1),
        sink_limiter=limiter(1),
    )


async def test_a_part_that_ends_while_it_loads_hands_no_state_on() -> None:
    objects = Objects()
    plan = a_plan(objects)
    state = (StatePart(0, 256, ("whole", "change")),)
    record = EpochRecord(7, 7, (ME,), 256, state, cut=7)
    again = replace(record, epoch=8, run=8)
    with trio.fail_after(30):
        part = Part(plan, record, None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(part.run)
            await objects.asked.wait()
            part.scope.cancel()
        assert part.runner.state.values == {"k": 1, "j": 1}  # half of it
        assert _with_state(part, again) is None

        objects.may_go_on.set()
        whole = Part(plan, again, None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(whole.run)
            while whole.clean_at is None:
                await trio.sleep(0.01)
            whole.scope.cancel()
        assert whole.runner.state.values == {"k": 99, "j": 1, "new": 5}
        assert _with_state(whole, replace(again, epoch=9, run=9)) is whole
        assert _with_state(whole, replace(again, epoch=9, run=9, cut=9)) is None

        objects.payloads.clear()  # nothing has to be read again
        kept = Part(plan, replace(again, epoch=9, run=9), whole)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kept.run)
            while kept.clean_at is None:
                await trio.sleep(0.01)
            kept.scope.cancel()
        assert kept.runner.state.values == {"k": 99, "j": 1, "new": 5}


async def test_an_element_that_comes_again_is_in_the_queue_once() -> None:
    record = EpochRecord(7, 7, (ME, Worker("b", "other")), 256)
    incoming = Incoming(record, ME)
    hop = Hop("f", 7, "b", "other", 0)
    for _ in range(2):  # the first answer was lost
        assert await incoming.take(hop, Watermark(5)) == ElementReply(taken=True)
    assert await incoming.take(replace(hop, number=1), Barrier(8)) == ElementReply(taken=True)
    receiver = incoming.receiver("b")
    assert [receiver.receive_nowait() for _ in range(2)] == [Watermark(5), Barrier(8)]
    with pytest.raises(trio.WouldBlock):
        receiver.receive_nowait()
    with pytest.raises(BadElement, match="element 3 of b, and not 2"):
        await incoming.take(replace(hop, number=3), Watermark(6))
    former = replace(hop, life="a former one")
    assert await incoming.take(former, Watermark(6)) == ElementReply(taken=False, over=True)


async def test_an_epoch_does_not_end_before_the_results_of_the_one_before_have_arrived() -> None:
    part = Part(a_plan(Objects()), EpochRecord(7, 7, (ME,), 256), None)
    aligned = Aligned(StatePart(0, 256, ()), whole=True, offsets={})
    part._aligned = 8, aligned
    assert part.aligned() == (0, None)
    part._delivered = 7
    assert part.aligned() == (8, aligned)
