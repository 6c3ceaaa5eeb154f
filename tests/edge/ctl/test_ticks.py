"""`ctl.ticks`, `check`, and metrics: what operators see of schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ringpop_py.edge.web.metrics import NodeMetrics
from tests.edge.ctl.served import ctl, nodes

if TYPE_CHECKING:
    import pytest

    from ringpop_py import Tick


async def test_schedules_are_listed_with_what_runs_and_what_is_overdue(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began, ends = trio.Event(), trio.Event()
    async with nodes("a") as (node,):
        none = await ctl(node, capsys, "ticks")

        @node.every("1s", name="rollup")
        async def rollup(_tick: Tick) -> None:
            began.set()
            await ends.wait()

        @node.every(cron="0 3 1 1 *", tz="Europe/Berlin", name="tidy")
        async def tidy(_tick: Tick) -> None:
            pass

        with trio.fail_after(20):
            await began.wait()
            while node.schedules["tidy"].record is None:
                await trio.sleep(0.01)
        listed = await ctl(node, capsys, "ticks")
        one = await ctl(node, capsys, "ticks", "tidy")
        unknown = await ctl(node, capsys, "ticks", "x")
        well = await ctl(node, capsys, "check")
        clocks = node.reporter.clocks
        wall_s = clocks.wall_s
        clocks.wall_s = lambda: wall_s() + 200
        warned = await ctl(node, capsys, "check")
        text = NodeMetrics(node).exposed("")[0].decode()
        clocks.wall_s = wall_s
        ends.set()

    assert none.out == "no schedule was ever run\n"
    rows = [line.split() for line in listed.out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["rollup", "tidy"]
    assert (rows[0][1], rows[0][4:7]) == ("1s", ["UTC", "1", "a"])
    (row,) = one.out.splitlines()[1:]
    assert " 03:00:00 Europe/Berlin " in row
    assert row.split()[-4:] == ["0", "-", "-", "-"]
    assert (unknown.code, "no schedule 'x'" in unknown.err) == (2, True)
    assert "tick" not in well.out
    assert "schedule rollup: the tick that was due at" in warned.out
    assert 'ringpop_ticks_ended_total{schedule="rollup"} 0.0' in text
    assert 'ringpop_ticks_failed_total{schedule="rollup"} 0.0' in text
    assert 'ringpop_tick_overdue_seconds{schedule="rollup"} 20' in text
