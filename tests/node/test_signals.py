"""What a node tells operators: recent pings, machines in trouble, processor time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py.base.address import Address
from ringpop_py.node.signals.knocks import FRESH_S, TOGETHER_MAX, Knocks
from ringpop_py.node.signals.reach import Reach
from ringpop_py.node.signals.recent import Recent
from ringpop_py.node.signals.strain import Lateness, Strain

if TYPE_CHECKING:
    from pathlib import Path

PEER = Address("peer", 1)


def test_what_is_recent_is_forgotten_step_by_step() -> None:
    recent = Recent(1.0, 3, 2)
    for now, outcome in ((10.0, 0), (10.9, 1), (11.5, 1), (12.0, 0)):
        recent.note(outcome, now)
    assert recent.sums(12.9) == [2, 2]
    assert recent.sums(13.0) == [1, 1]
    assert recent.sums(14.0) == [1, 0]
    assert recent.sums(1_000.0) == [0, 0]


async def test_pings_are_in_time_late_or_lost(autojump_clock: object) -> None:
    del autojump_clock
    reach = Reach(lambda: [PEER])
    for took_s in (0.01, 0.02, 0.3):
        reach.answered(PEER, took_s)
    for reason in ("timeout", "refused", "declined"):  # the last two say nothing of the path
        reach.failed(PEER, reason)
    row = reach.peers[PEER]
    assert row.seconds.sums(trio.current_time()) == [2, 1, 1]
    assert (row.answered, row.failed, row.failure) == (3, 3, "declined")
    await trio.sleep(11)
    assert row.seconds.sums(trio.current_time()) == [0, 0, 0]
    assert row.minutes.sums(trio.current_time()) == [2, 1, 1]


async def test_a_wall_clock_that_is_set_back_keeps_no_losses(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    del autojump_clock
    reach = Reach(lambda: [PEER])
    reach.failed(PEER, "timeout")
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    await trio.sleep(11)
    reach.answered(PEER, 0.01)
    assert reach.peers[PEER].seconds.sums(trio.current_time()) == [1, 0, 0]


class Machines:
    """A channel and its network, at which each machine does what its port says."""

    host_port = Address("here", 1)

    def __init__(self) -> None:
        self.network = self
        self.asked: list[Address] = []

    async def connect(self, to: Address, *, origin: Address) -> Any:  # noqa: ANN401 - a stream
        assert origin == self.host_port
        self.asked.append(to)
        if to.port == 1:
            raise ConnectionRefusedError
        if to.port == 2:
            await trio.sleep_forever()
        return trio.testing.memory_stream_pair()[0].send_stream


async def test_machines_refuse_accept_or_are_silent(autojump_clock: object) -> None:
    del autojump_clock
    machines: Any = Machines()
    knocks = Knocks(machines)
    where = [Address("a", port) for port in (1, 2, 3)]
    found = await knocks.at(where)
    assert [*found.values()] == ["refused", "silent", "accepted"]
    await knocks.at(where)
    assert len(machines.asked) == 3  # the answers are fresh
    await trio.sleep(FRESH_S + 1)
    await knocks.at(where)
    assert len(machines.asked) == 6


async def test_few_machines_are_asked_however_many_callers_there_are(
    autojump_clock: object,
) -> None:
    del autojump_clock
    machines: Any = Machines()
    knocks = Knocks(machines)
    many = [Address(f"m{number}", 2) for number in range(60)]
    async with trio.open_nursery() as nursery:
        for at in (0, 20):  # at the same time, about others
            nursery.start_soon(knocks.at, many[at : at + 20])
    assert len(machines.asked) == 2 * TOGETHER_MAX
    await knocks.at(many)
    assert len(machines.asked) == 2 * TOGETHER_MAX


async def test_strain_is_told_from_what_the_system_says(
    autojump_clock: object, tmp_path: Path
) -> None:
    del autojump_clock
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/pressure/cpu").write_text("some avg10=25.50 avg60=1.00 total=1\n")
    (tmp_path / "proc/stat").write_text("cpu 100 0 100 800 0 0 0 0 0 0\n")
    stalls = [(trio.current_time(), 2.0)]
    strain = Strain(Lateness(), stalls, tmp_path)
    (tmp_path / "proc/stat").write_text("cpu 150 0 100 820 0 0 0 30 0 0\n")
    told = strain.told()
    assert (told["waiting"], told["stolen"], told["stalled_s"]) == (0.255, 0.3, 2.0)
    await trio.sleep(11)
    assert strain.told()["stalled_s"] == 0.0
    assert await strain.lag_s() == pytest.approx(0, abs=1e-6)


async def test_without_the_systems_figures_there_are_none(tmp_path: Path) -> None:
    told = Strain(Lateness(), (), tmp_path).told()
    assert (told["waiting"], told["stolen"]) == (None, None)
