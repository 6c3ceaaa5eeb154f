"""What a cluster at rest costs: how often the tasks of its nodes run, counted in virtual time."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from typing import Final

import pytest
import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.config.settings import PRESETS
from ringpop_py.testing import MemoryNetwork

pytestmark = pytest.mark.virtual_time

NODES: Final = 10
MINUTE_S: Final = 60.0
STEPS: Final = {"NodeDriver.run": 2, "Wheel.run": 0, "Channel._connect": 1, "Channel._run": 1}
"""How often a task may run each period: a node is woken for it, and lets others read first; its
connections bring an answer and a ping. Nothing else is due."""
HEALING: Final = 8
"""How often the tasks of a node may run in addition in a minute: two turns, of one or two looks."""


class Steps(trio.abc.Instrument):
    """How often tasks run, by what they run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.counts[".".join(task.name.split(".")[-2:])] += 1


@pytest.mark.parametrize("preset", ["local", "lan", "wan"])
async def test_a_node_at_rest_runs_for_its_periods_and_for_messages_only(preset: str) -> None:
    gossip, network, steps = PRESETS[preset], MemoryNetwork(), Steps()
    hosts = [Address("10.0.0.1", 3000 + number) for number in range(NODES)]
    async with AsyncExitStack() as nodes:
        for host in hosts:
            config = Config(listen=host, hosts=tuple(hosts), gossip=gossip)
            await nodes.enter_async_context(open_ringpop(config, network=network))
        await trio.sleep(2 * MINUTE_S)

        trio.lowlevel.add_instrument(steps)
        await trio.sleep(MINUTE_S)
        trio.lowlevel.remove_instrument(steps)

    periods = NODES * MINUTE_S / gossip.quiet_period_s
    most = {task: each * periods + HEALING * NODES for task, each in STEPS.items()}
    assert {task: steps.counts[task] for task in STEPS if steps.counts[task] > most[task]} == {}
