"""What a node logs of its hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.address import Address
from ringpop_py.member.swim.effects import HostSilent
from ringpop_py.node.reporter import Reporter
from tests.logged import events_in

if TYPE_CHECKING:
    import pytest


async def test_a_silent_host_is_told_of_once_for_each_reason_though_they_take_turns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reporter = Reporter("a", "default")
    host = Address("10.0.0.9", 3000)

    for _ in range(3):
        for why in ("refused: nobody listens", "timeout"):
            reporter.tell(HostSilent(host, why), is_burst=False)

    told = [str(event) for event in events_in(caplog, "host-silent")]
    assert told == [
        "the host 10.0.0.9:3000 does not answer: refused: nobody listens",
        "the host 10.0.0.9:3000 does not answer: timeout",
    ]
