"""Counts of a node as statsd gets them: Ringpop's names, what was added, and whole datagrams."""

from __future__ import annotations

import re
import socket
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import Address, Config, Request, open_ringpop
from ringpop_py.edge.statsd import (
    DATAGRAM_BYTES_MAX,
    StatsdFigures,
    datagrams_of,
    lines_between,
    prefix_of,
)
from ringpop_py.testing import MemoryNetwork
from tests.logged import events_in

if TYPE_CHECKING:
    from ringpop_py.route.proxy.request import AppCall

DOCUMENT = Path(__file__).parents[2] / "docs" / "monitoring.md"
LINE = re.compile(r"ringpop\.a_1\.([\w.-]+):(\d+(?:\.\d+)?)\|(c|g|ms)(\|@0\.\d+)?")


def test_a_count_is_what_was_added_and_nothing_is_said_of_none() -> None:
    before = StatsdFigures({"ping.send": 5, "ping.recv": 2})
    after = StatsdFigures({"ping.send": 9, "ping.recv": 2, "updates": 3}, {"num-members": 4})

    assert lines_between(before, after) == [
        "ping.send:4|c",
        "updates:3|c",
        "num-members:4|g",
        "changes.apply:3|g",
    ]


def test_members_of_the_ring_are_compared_with_those_before() -> None:
    before, after = (StatsdFigures(ring=frozenset(names)) for names in ("abc", "cd"))

    assert lines_between(before, after)[:2] == ["ring.server-added:1|c", "ring.server-removed:2|c"]


@pytest.mark.parametrize(
    ("pings", "line"), [((3, 0.25), "ping:50.000|ms"), ((6, 0.28), "ping:20.000|ms|@0.250000")]
)
def test_a_timer_is_the_mean_with_the_weight_of_all(pings: tuple[int, float], line: str) -> None:
    before, after = StatsdFigures(pings=(2, 0.2)), StatsdFigures(pings=pings)

    assert lines_between(before, after)[-1] == line


def test_lines_fill_datagrams_of_limited_size_and_none_is_cut() -> None:
    lines = [f"n{number}:1|c" for number in range(500)]

    datagrams = datagrams_of("ringpop.a_1.", lines)

    assert all(len(datagram) <= DATAGRAM_BYTES_MAX for datagram in datagrams)
    told = [line for datagram in datagrams for line in datagram.decode().split("\n")]
    assert told == [f"ringpop.a_1.{line}" for line in lines]
    whole = len("\n".join(told))
    assert len(datagrams) <= whole // (DATAGRAM_BYTES_MAX - len(told[-1])) + 1


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        (Address("10.30.8.26", 3000), "ringpop.10_30_8_26_3000."),
        (Address("node-1.rack|c", 1), "ringpop.node-1_rack_c_1."),
    ],
)
def test_the_address_is_one_part_of_the_name(address: Address, prefix: str) -> None:
    assert prefix_of(address) == prefix


async def test_counts_of_forwarded_requests_and_of_members_arrive_by_udp() -> None:
    network = MemoryNetwork()
    one, two = Address("a", 1), Address("a", 2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        to = Address(*statsd.getsockname())
        here = open_ringpop(Config(listen=one, hosts=(one,), statsd=to), network=network)
        there = open_ringpop(Config(listen=two, hosts=(one,)), network=network)
        async with here as a, there as b:

            @b.handler("/who")
            def who(_: AppCall) -> bytes:
                return b"b"

            await a.wait_until(lambda ringpop: len(ringpop.ring) == 2)
            key = next(key for n in range(1_000) if a.lookup(key := f"k{n}") == b.name)
            for _ in range(3):
                assert (await a.proxy(key, Request("/who"))).body == b"b"
            sums: defaultdict[str, float] = defaultdict(float)
            with trio.fail_after(20):
                while sums["requestProxy.send.success"] < 3 or not sums["ping"]:
                    await trio.lowlevel.wait_readable(statsd)
                    for line in statsd.recv(1 << 16).decode().split("\n"):
                        found = LINE.fullmatch(line)
                        assert found is not None, line
                        name, value, kind, _ = found.groups()
                        sums[name] = float(value) if kind == "g" else sums[name] + float(value)

    assert (sums["requestProxy.egress"], sums["requestProxy.send.success"]) == (3, 3)
    assert (sums["membership-update.alive"], sums["ring.server-added"]) == (1, 2)
    assert (sums["num-members"], sums["join.complete"]) == (2, 1)
    assert sums["ping.send"] > 0
    listed = set(re.findall(r"`([\w.-]+)`", DOCUMENT.read_text("utf-8")))
    shown = {re.sub(r"^(membership-\w+)\.\w+", r"\1.STATUS", name) for name in sums}
    assert shown <= listed


async def test_a_statsd_that_is_away_is_logged_once_and_the_node_goes_on(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        to = Address(*gone.getsockname())
    config = Config(listen=Address("a", 1), statsd=to)
    async with open_ringpop(config, network=MemoryNetwork()) as node:
        await trio.sleep(10)

        assert node.ready
        assert len(events_in(caplog, "statsd-not-sent")) == 1
        assert not events_in(caplog, "task-failed")
