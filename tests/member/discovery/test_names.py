"""A host is a name, not an address: all addresses of it are tried, as they are now."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import Config, open_ringpop
from ringpop_py.base.address import Address, DnsLookup
from ringpop_py.base.config.settings import PRESETS
from ringpop_py.member.discovery import names
from ringpop_py.member.discovery.names import resolved
from ringpop_py.member.discovery.seeds import Resolver, Seeds
from tests.e2e.local_cluster import free_addresses
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.node.ringpop import Ringpop

BOTH = pytest.mark.parametrize("dialect", ["native", "ringpop"])


async def nothing(_lookup: DnsLookup) -> Sequence[Address]:
    raise AssertionError


def never(_address: Address) -> bool:
    return False


class Names:
    """What names stand for; a name that is not among them is unknown."""

    def __init__(self, known: Mapping[str, Sequence[str]]) -> None:
        self.known = dict(known)
        self.asked: list[str] = []

    async def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        await trio.lowlevel.checkpoint()
        if name not in self.known:
            raise OSError(-2, "Name or service not known")
        return self.known[name]


async def test_a_name_with_several_addresses_is_all_of_them_and_others_stay_as_they_are() -> None:
    hosts = [Address(host, 3000) for host in ("all", "one", "10.0.0.9", "none", "10.0.0.1")]
    several = Names({"all": ["10.0.0.1", "10.0.0.2"], "one": ["10.0.0.3"]})

    found, unknown = await resolved(hosts, several)

    expected = ("10.0.0.1", "10.0.0.2", "one", "10.0.0.9", "none")
    assert found == tuple(Address(host, 3000) for host in expected)
    assert unknown == {"none": "unknown name: Name or service not known"}
    assert sorted(several.asked) == ["all", "none", "one"]


async def test_a_name_gives_way_to_the_address_by_which_a_member_is_known() -> None:
    hosts = [Address(host, 3000) for host in ("one", "two")]
    known = Names({"one": ["10.0.0.1"], "two": ["10.0.0.2"]})
    members = {Address("10.0.0.1", 3000), Address("two", 3000), Address("10.0.0.2", 3000)}

    found, _ = await resolved(hosts, known, members.__contains__)

    assert found == (Address("10.0.0.1", 3000), Address("two", 3000))


async def test_a_name_that_takes_too_long_stays_a_name(autojump_clock: object) -> None:
    del autojump_clock

    async def never(_name: str) -> Sequence[str]:
        await trio.sleep_forever()
        raise AssertionError

    found, unknown = await resolved([Address("slow", 1)], never)

    assert found == (Address("slow", 1),)
    assert unknown == {"slow": f"it was not resolved within {names.RESOLVE_S_MAX:g} s"}


async def test_names_are_resolved_at_each_reading_and_an_unknown_one_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[Address, ...]] = []
    some = Names({})
    seeds = Seeds([Address("late", 1)], None, told.append, Resolver(some, nothing, never))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(seeds.run)
        for _ in range(2):
            await seeds.refresh()
        some.known["late"] = ["10.0.0.1", "10.0.0.2"]
        await seeds.refresh()
        nursery.cancel_scope.cancel()

    assert told[0] == told[1] == (Address("late", 1),)
    assert told[2] == (Address("10.0.0.1", 1), Address("10.0.0.2", 1))
    (warning,) = events_in(caplog, "host-unknown")
    assert "the host late is not tried: unknown name" in str(warning)
    assert seeds.unknown == {}


class _Resolver(trio.abc.HostnameResolver):
    """One name, whose first address is that of whoever asks last."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002
        proto: int = 0,
        flags: int = 0,
    ) -> Any:  # noqa: ANN401 - as trio has it
        del family, proto, flags
        await trio.lowlevel.checkpoint()
        assert host == b"cluster.test", host
        return [(2, type, 6, "", (address, port or 0)) for address in self.addresses]

    async def getnameinfo(self, sockaddr: object, flags: int) -> tuple[str, str]:
        raise NotImplementedError


@BOTH
async def test_nodes_that_have_one_name_for_all_of_them_are_one_cluster(dialect: str) -> None:
    """Each machine's own address comes first, as with a headless service or round robin."""
    resolver = _Resolver(["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    (free,) = free_addresses(1)
    before = trio.socket.set_custom_hostname_resolver(resolver)
    try:
        async with AsyncExitStack() as stack:
            nodes: list[Ringpop] = []
            for address in list(resolver.addresses):
                resolver.addresses.sort(key=lambda other: other != address)
                config = Config(
                    listen=Address(address, free.port),
                    hosts=(Address("cluster.test", free.port),),
                    dialect=dialect,  # type: ignore[arg-type]
                    gossip=PRESETS["local" if dialect == "native" else "ringpop"],
                )
                opened = open_ringpop(config, wait_ready=False)
                nodes.append(await stack.enter_async_context(opened))
            with trio.fail_after(20):
                for node in nodes:
                    await node.wait_until(lambda node: len(node.members) == len(nodes))
    finally:
        trio.socket.set_custom_hostname_resolver(before)
