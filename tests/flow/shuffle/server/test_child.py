"""The node's side of the process for shuffles: it is watched as long as it lives."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio

from ringpop_py.base.errors import ShuffleUnavailable
from ringpop_py.base.metering import Tally
from ringpop_py.flow.shuffle.server import child
from ringpop_py.node.sidecars import ShuffleLoad, ShufflesBeside

BEATS = """
import time
for number in range({}):
    print('{{"held_bytes": ' + str(number), end='', flush=True)
    time.sleep(0.05)
    print(', "disk_bytes": 7, "shuffles": {{"put": 1}}}}', flush=True)
    time.sleep(0.05)
"""


async def started(code: str) -> trio.Process:
    return await trio.lowlevel.open_process(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


async def test_a_process_that_says_nothing_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "HANGS_S", 0.5)
    process = await started("import time\ntime.sleep(60)")

    with pytest.raises(ShuffleUnavailable, match=r"has hung for 0\.5 s"):
        await child._while_it_beats(process, ShufflesBeside())

    assert await process.wait() == -9


async def test_a_process_that_says_something_lives_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child, "HANGS_S", 5.0)
    process, beside = await started(BEATS.format(5)), ShufflesBeside()

    await child._while_it_beats(process, beside)

    assert process.returncode == 0
    assert beside.load == ShuffleLoad(held_bytes=4, disk_bytes=7, shuffles={"put": 1})


def test_calls_of_a_process_that_was_started_again_are_added_up() -> None:
    tally = Tally()
    beside = ShufflesBeside(tally)
    for done, failed in ((5, 1), (7, 1), (0, 0), (2, 3)):
        beside.hear(ShuffleLoad(done=done, failed=failed))
    assert (tally.done, tally.refused, tally.failed) == (9, 0, 4)
