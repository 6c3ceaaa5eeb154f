"""`ringpop.events`: members, the ring and lookups in one stream, at the pace of its reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import EventsLost, HashRing, LookedUp, Request, RingChanged, open_ringpop
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import StatusChanged
from ringpop_py.member.swim.member import Status
from ringpop_py.testing import MemoryNetwork
from tests.node.test_ringpop import a_node, newcomers, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.node.stream import RingpopEvent

pytestmark = pytest.mark.virtual_time


async def read(stream: AsyncIterator[RingpopEvent], count: int) -> list[RingpopEvent]:
    return [await anext(stream) for _ in range(count)]


async def is_empty(stream: AsyncIterator[RingpopEvent]) -> bool:
    with trio.move_on_after(0.01) as limit:  # before a probe finds that a newcomer is not there
        await anext(stream)
    return limit.cancelled_caught


async def test_changes_of_one_message_come_in_order_and_then_the_ring_they_lead_to() -> None:
    async with open_ringpop(a_node(), network=MemoryNetwork()) as node:
        one, two = newcomers(2)
        async with node.events() as stream, node.events() as another:
            await told(node, one, two)
            came = await read(stream, 3)
            await told(node, replace(one, status=Status.FAULTY))
            went = await read(stream, 2)
            assert await read(another, 5) == [*came, *went]

        assert [(e.before, e.after) for e in came[:2] if isinstance(e, StatusChanged)] == [
            (None, one),
            (None, two),
        ]
        before, ring = HashRing([node.name, one.name, two.name]), node.ring
        assert came[2] == RingChanged((one.name, two.name), (), before.checksum)
        changed = went[0]
        assert isinstance(changed, StatusChanged)
        assert changed.before is not None
        assert changed.after is not None
        assert (changed.before.status, changed.after.status) == (Status.ALIVE, Status.FAULTY)
        assert went[1] == RingChanged((), (one.name,), ring.checksum)


async def test_lookups_of_all_kinds_are_told_if_they_are_asked_for_and_only_then() -> None:
    async with open_ringpop(a_node(), network=MemoryNetwork()) as node:
        plain = node.ring
        async with node.events() as members:
            assert node.ring is plain
            async with node.events(lookups=True) as stream:
                assert node.ring == plain
                node.lookup("a")
                node.lookup_n("b", 2)
                await node.handle_or_proxy("c", Request("/any"))
                node.ring.lookup_many(["d", "e"])
                us = (node.name,)
                assert await read(stream, 5) == [LookedUp(key, us) for key in "abcde"]

                await told(node, *newcomers(1))
                assert len(await read(stream, 2)) == 2
                owner = node.lookup("f")
                assert await anext(stream) == LookedUp("f", (owner,))
            assert type(node.ring) is HashRing
            assert node.ring == node.placement.ring
            assert len(await read(members, 2)) == 2
            node.lookup("g")
            assert await is_empty(members)


async def test_a_reader_that_is_too_slow_loses_the_oldest_and_learns_how_many() -> None:
    async with (
        open_ringpop(a_node(), network=MemoryNetwork()) as node,
        node.events(lookups=True, unread_max=3) as stream,
    ):
        for key in "abcdefgh":
            node.lookup(key)

        seen = await read(stream, 4)
        us = (node.name,)
        assert seen == [EventsLost(5), *(LookedUp(key, us) for key in "fgh")]
        assert await is_empty(stream)
        node.lookup("i")
        assert await anext(stream) == LookedUp("i", us)


@pytest.mark.parametrize("unread_max", [0, "10"])
async def test_a_stream_has_room_for_one_event_or_more(unread_max: int) -> None:
    async with open_ringpop(a_node(), network=MemoryNetwork()) as node:
        with pytest.raises(ConfigError, match="unread_max"):
            async with node.events(unread_max=unread_max):
                pass
