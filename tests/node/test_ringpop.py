"""`ringpop`: what an application sees when many members change together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import AnswerPeer, Effect, StatusChanged
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import Asked, MemberChange, Ping
from ringpop_py.node.reporter import clock_ahead_ms
from ringpop_py.testing import MemoryNetwork
from tests.logged import events_in

if TYPE_CHECKING:
    from ringpop_py.member.ring.hashring import HashRing
    from ringpop_py.node.ringpop import Ringpop

pytestmark = pytest.mark.virtual_time

US: Final = Address("10.0.0.1", 3000)
STRANGER: Final = Address("10.0.0.9", 3000)
MANY: Final = 200


def newcomers(count: int) -> tuple[Member, ...]:
    return tuple(Member(f"new{n}", *Address(f"10.1.0.{n}", 3000), 1) for n in range(count))


async def told(node: Ringpop, *rows: Member) -> None:
    """Tell *node* of all *rows* by one ping."""
    changes = tuple(MemberChange(member=row) for row in rows)
    ping = Ping("default", 100, "stranger", *STRANGER, 1, None, changes)

    def hear(now: int) -> list[Effect]:
        effects = node.node.receive(Asked(0, ping), now)
        return [effect for effect in effects if not isinstance(effect, AnswerPeer)]

    await node.driver.perform(hear)


def a_node() -> Config:
    return Config(name="us", listen=US, hosts=(US,))


async def test_members_that_come_together_move_the_ring_once_and_each_is_told_of() -> None:
    async with open_ringpop(a_node(), network=MemoryNetwork()) as node:
        names: list[str] = []
        rings: list[HashRing] = []

        def look(effect: Effect) -> None:
            if isinstance(effect, StatusChanged) and effect.after is not None:
                names.append(effect.after.name)
                rings.append(node.ring)

        node.observe(look)
        await told(node, *newcomers(MANY))

        assert names == [row.name for row in newcomers(MANY)]
        assert len({id(ring) for ring in rings}) == 1


async def test_an_observer_of_a_change_sees_a_list_and_a_ring_that_agree() -> None:
    async with open_ringpop(a_node(), network=MemoryNetwork()) as node:
        seen: list[tuple[set[str], set[str]]] = []

        def look(effect: Effect) -> None:
            if isinstance(effect, StatusChanged):
                listed = {member.name for member in node.members if member.status.reachable}
                seen.append((listed, set(node.ring.owners)))

        node.observe(look)
        came = newcomers(5)
        await told(node, *came)
        await told(node, *(Member(m.name, *m.address, 2, Status.FAULTY) for m in came[:3]))

        assert len(seen) == 8
        assert all(listed == owners for listed, owners in seen)


async def test_a_burst_of_changes_is_one_line_of_the_log_and_all_are_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    async with open_ringpop(a_node(), network=MemoryNetwork()) as node:
        before = node.reporter.events.last_number
        caplog.clear()

        await told(node, *newcomers(MANY))

        (line,) = [e for e in events_in(caplog) if e.name.startswith("member")]
        assert line.name == "members-changed"
        assert line.fields["counts"] == {"alive": MANY}
        assert line.fields["members"] == {"alive": [row.name for row in newcomers(MANY)]}
        assert str(line) == (
            "200 members changed: 200 alive (new0, new1, new2, new3, new4 and 195 more): by ping "
            "from stranger"
        )
        assert node.reporter.events.last_number - before == MANY


async def test_a_few_changes_are_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with open_ringpop(a_node(), network=MemoryNetwork()) as node:
        caplog.clear()

        await told(node, *newcomers(3))

        changed = events_in(caplog, "member-changed")
        assert [event.fields["member"] for event in changed] == ["new0", "new1", "new2"]


async def test_a_member_that_is_damped_is_warned_of_in_a_burst_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with open_ringpop(a_node(), network=MemoryNetwork()) as node:
        await told(node, *newcomers(MANY))
        caplog.clear()

        again = [replace(row, incarnation=2) for row in newcomers(MANY)]
        await told(node, replace(again[0], damping=1), *again[1:])

        (line,) = caplog.records
        assert line.levelname == "WARNING"
        assert line.getMessage().startswith("new0 alive, damped: by ping from stranger")


@pytest.mark.parametrize(
    ("said_ms", "ahead_ms"),
    [(1_000, 0), (1_500, 0), (2_000, 0), (2_001, 1), (999, -1), (90_000, 88_000), (0, -1_000)],
)
def test_a_clock_differs_by_no_more_than_the_time_of_the_question_and_the_answer_shows(
    said_ms: int, ahead_ms: int
) -> None:
    assert clock_ahead_ms(said_ms, dialed_ms=1_000, read_ms=2_000) == ahead_ms
