"""`discovery.seeds`: the hosts file, read again whenever that is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from ringpop_py.base.address import Address, DnsLookup
from ringpop_py.base.errors import HostsFileError
from ringpop_py.member.discovery.seeds import Resolver, Seeds
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

A, B, C = (Address("10.0.0.1", port) for port in (1, 2, 3))


class Told:
    """What was told, and a way to wait for the next time."""

    def __init__(self) -> None:
        self.hosts: list[tuple[Address, ...]] = []
        self._event = trio.Event()

    def __call__(self, hosts: tuple[Address, ...]) -> None:
        self.hosts.append(hosts)
        self._event.set()

    async def next(self) -> None:
        with trio.fail_after(5):
            await self._event.wait()
        self._event = trio.Event()


async def _run(seeds: Seeds, act: Callable[[], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seeds.run)
        await act()
        nursery.cancel_scope.cancel()


async def test_hosts_of_the_present_file_come_after_the_static_hosts(tmp_path: Path) -> None:
    file, told = tmp_path / "hosts", Told()
    file.write_text(f"{B}\n")
    seeds = Seeds([A], str(file), told)

    async def act() -> None:
        seeds.want()
        await told.next()
        file.write_text(f"{C}\n{A}\n")
        seeds.want()
        await told.next()

    await _run(seeds, act)

    assert told.hosts == [(A, B), (A, C)]


async def test_a_file_that_cannot_be_read_is_told_once_and_nothing_is_handed_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ringpop")
    file, told = tmp_path / "hosts", Told()
    seeds = Seeds([], str(file), told)

    for _ in range(3):
        await seeds._read_again()
    file.write_text("nonsense\n")
    await seeds._read_again()
    file.write_text(f"{B}\n")
    await seeds._read_again()
    await seeds._read_again()

    assert told.hosts == [(B,), (B,)]
    assert [event.name for event in events_in(caplog)] == [
        "kept the old hosts",
        "kept the old hosts",
        "the hosts file can be read again",
    ]


def test_reading_by_hand_says_what_is_wrong(tmp_path: Path) -> None:
    seeds = Seeds([A], str(tmp_path / "nothing"), lambda _hosts: None)

    with pytest.raises(HostsFileError, match="nothing"):
        seeds.read()


def test_without_a_file_the_static_hosts_are_all() -> None:
    assert Seeds([A, A, B], None, lambda _hosts: None).read() == (A, B)


async def test_a_caller_of_refresh_waits_until_the_present_hosts_file_is_told(
    tmp_path: Path,
) -> None:
    file, told = tmp_path / "hosts", Told()
    file.write_text(f"{B}\n")
    seeds = Seeds([A], str(file), told)
    troubles: list[str] = []

    async def act() -> None:
        troubles.append(await seeds.refresh())
        file.write_text("nonsense\n")
        troubles.append(await seeds.refresh())
        file.write_text(f"{C}\n")
        troubles.append(await seeds.refresh())

    await _run(seeds, act)

    assert told.hosts == [(A, B), (A, C)]
    assert troubles[0] == troubles[2] == ""
    assert f"hosts file {file}: line 1" in troubles[1]


async def test_without_a_file_a_refresh_is_over_at_once() -> None:
    seeds = Seeds([A], None, Told())

    async def act() -> None:
        with trio.fail_after(1):
            assert await seeds.refresh() == ""

    await _run(seeds, act)


async def test_a_file_that_hangs_does_not_hold_up_who_waits_for_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    seeds = Seeds([A], "/somewhere/hosts", Told())

    trouble = await seeds.refresh()  # nobody reads

    assert trouble == "hosts file /somewhere/hosts: not read within 2 s"
    assert seeds._waiting == []


async def test_a_request_during_a_reading_is_for_the_next_one(tmp_path: Path) -> None:
    file, told = tmp_path / "hosts", Told()
    file.write_text(f"{B}\n")
    troubles: list[str] = []

    async with trio.open_nursery() as nursery:

        async def refresh() -> None:
            troubles.append(await seeds.refresh())

        async def look_up(_: DnsLookup) -> list[Address]:
            assert not troubles
            file.write_text("nonsense\n")  # it was read before
            nursery.start_soon(refresh)
            await trio.testing.wait_all_tasks_blocked()
            return [A]

        async def resolve(name: str) -> list[str]:
            return [name]

        resolver = Resolver(resolve, look_up, lambda _: False)
        seeds = Seeds([DnsLookup("dns", "peers", 1)], str(file), told, resolver)
        seeds.want()
        nursery.start_soon(seeds.run)
        with trio.fail_after(5):
            while not troubles:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()

    assert told.hosts == [(B, A)]
    assert f"hosts file {file}: line 1" in troubles[0]
