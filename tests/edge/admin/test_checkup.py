"""The checkup of a node: what happened and is over has its time."""

from __future__ import annotations

import time
from typing import Any, cast

import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.logs import log
from ringpop_py.edge.admin.accounts import checked
from ringpop_py.edge.admin.checkup import checkup
from ringpop_py.testing import MemoryNetwork


async def test_the_last_refused_connection_and_lost_line_have_their_time() -> None:
    async with open_ringpop(Config(listen=Address("a", 1)), network=MemoryNetwork()) as node:
        before = cast("dict[str, Any]", await checkup(node, None))
        node.channel.links.refused_count = 2
        node.channel.links.refused_at = trio.current_time() - 90
        began = time.time()
        log.lose()
        after = cast("dict[str, Any]", await checkup(node, None))

    assert before["connections_refused_at"] == 0
    assert after["connections_refused"] == 2
    assert 89 < after["at"] - after["connections_refused_at"] < 100
    assert after["log_lines_lost"] == before["log_lines_lost"] + 1
    # Told by another clock, whose readings are a moment apart.
    assert began - 0.001 <= after["log_lost_at"] <= after["at"]
    assert checked("/admin/checkup", after) == after


def test_an_account_of_an_older_member_is_taken_without_these_times() -> None:
    older = {"at": 1_000.0, "health_score": 0, "log_lines_lost": 1, "disks": []}

    assert checked("/admin/checkup", older) == older
