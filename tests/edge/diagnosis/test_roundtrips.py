"""ringpopctl rtt, at nodes on loopback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import trio

from ringpop_py.base.values.packed import encode_value
from ringpop_py.edge.cli.commands import ExitCode
from ringpop_py.net.wire.calls import Answer
from tests.edge.ctl.served import ctl, nodes

if TYPE_CHECKING:
    import pytest

    from ringpop_py.net.transport.channel import IncomingCall
    from ringpop_py.node.ringpop import Ringpop


async def pinged(node: Ringpop, other: Ringpop) -> None:
    with trio.fail_after(20):
        while other.address not in node.signals.reach.peers:
            await trio.sleep(0.01)


async def test_both_directions_are_shown_as_each_end_measures_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with nodes("ant", "bee") as (ant, bee):
        await pinged(ant, bee)
        await pinged(bee, ant)
        ant.signals.reach.failed(bee.address, "timeout", "it was \x1b too slow")

        done = await ctl(ant, capsys, "rtt", "ant", "bee", "--format", "json")
        shown = await ctl(bee, capsys, "rtt", "ant", "bee")

    there, back = json.loads(done.out)["round_trips"]
    assert (there["from"], there["to"], back["from"], back["to"]) == ("ant", "bee", "bee", "ant")
    assert (there["failed"], back["failed"], there["failure"]) == (1, 0, "it was \x1b too slow")
    assert there["last_300_s"][2] == 1
    for row in (there, back):
        assert row["answered"] >= 1
        assert 0 < row["round_trip_s"] < 10
        assert 0 <= row["answered_s_ago"] < 60
    heads, first, second = shown.out.splitlines()
    assert heads.startswith("FROM  TO   ROUND TRIP")
    assert first.startswith("ant   bee  ")
    assert first.endswith(" s ago: it was \\x1b too slow")
    assert second.startswith("bee   ant  ")
    assert (done.code, shown.code) == (0, 0)


async def test_a_member_alone_has_a_row_for_each_other_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with nodes("ant", "bee", "cat") as (ant, bee, _):
        done = await ctl(bee, capsys, "rtt", "ant", "--format", "json")
        shown = await ctl(ant, capsys, "rtt", "ant")

    assert [row["to"] for row in json.loads(done.out)["round_trips"]] == ["bee", "cat"]
    assert len(shown.out.splitlines()) == 3


async def test_a_name_that_is_nearly_right_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    async with nodes("ant") as (ant,):
        done = await ctl(ant, capsys, "rtt", "ant", "anr")

    assert done.code == ExitCode.USAGE
    assert done.err.endswith(" knows no member 'anr'; did you mean ant?\n")


async def lie(_: IncomingCall) -> Answer:
    return Answer(ok=True, arg3=encode_value("msgpack", {"at": "now", "pings": []}))


async def test_the_end_that_cannot_be_asked_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    async with nodes("ant", "bee") as (ant, bee):
        await pinged(ant, bee)
        bee.channel.serve("ringpop", "/admin/reach", lie)

        done = await ctl(ant, capsys, "rtt", "ant", "bee")

    assert done.code == ExitCode.UNREACHABLE
    assert done.out.splitlines()[1].startswith("ant   bee  ")
    assert done.out.splitlines()[2].startswith("bee cannot be asked: the answer of /admin/reach")
