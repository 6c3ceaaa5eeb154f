"""Hosts that DNS knows, asked of a DNS server that is a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from ringpop_py.base.address import Address, DnsLookup
from ringpop_py.member.discovery import lookups
from ringpop_py.member.discovery.lookups import lookups_for
from ringpop_py.member.discovery.names import RESOLVE_S_MAX
from ringpop_py.member.discovery.seeds import Resolver, Seeds
from tests.e2e.local_cluster import LocalCluster, free_addresses, wait_until
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SERVER: Final = Path(__file__).with_name("dns_server.py")
Zone = dict[str, dict[str, list[str]]]
ZONE: Final[Zone] = {
    "all.test": {"A": ["10.0.0.2", "10.0.0.1"], "AAAA": ["fd00::1"]},
    "six.test": {"AAAA": ["fd00::6"]},
    "many.test": {"A": [f"10.1.{n // 250}.{n % 250}" for n in range(90)]},
    "_ringpop._tcp.svc.test": {
        "SRV": ["20 0 3002 all.test.", "10 0 3001 one.test.", "10 0 3003 nowhere.test."]
    },
    "_gone._tcp.svc.test": {"SRV": ["10 0 3001 nowhere.test."]},
    "one.test": {"A": ["10.0.0.9"]},
}


class Dns:
    """The server, and what it says."""

    def __init__(self, folder: Path) -> None:
        self._zone = folder / "zone.json"
        self.says(ZONE)
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER), str(self._zone)], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.address = Address("127.0.0.1", int(self._process.stdout.readline()))

    def says(self, zone: Mapping[str, Mapping[str, list[str]]]) -> None:
        new = self._zone.with_suffix(".new")
        new.write_text(json.dumps(zone))
        new.replace(self._zone)

    def dns(self, name: str, port: int = 3000) -> DnsLookup:
        return DnsLookup("dns", name, port, self.address)

    def srv(self, name: str) -> DnsLookup:
        return DnsLookup("srv", name, 0, self.address)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def dns(tmp_path: Path) -> Iterator[Dns]:
    server = Dns(tmp_path)
    yield server
    server.close()


async def found(lookup: DnsLookup, own: str = "127.0.0.1") -> list[str]:
    return [str(address) for address in await lookups_for(own)(lookup)]


async def test_a_name_stands_for_all_its_addresses_of_the_family_of_the_node(dns: Dns) -> None:
    assert await found(dns.dns("all.test")) == ["10.0.0.1:3000", "10.0.0.2:3000"]
    assert await found(dns.dns("all.test"), "::1") == ["[fd00::1]:3000"]
    both = await found(dns.dns("all.test"), "a.host.by.name")
    assert both == ["10.0.0.1:3000", "10.0.0.2:3000", "[fd00::1]:3000"]


async def test_a_service_stands_for_its_targets_at_their_ports_those_of_low_priority_first(
    dns: Dns,
) -> None:
    assert await found(dns.srv("_ringpop._tcp.svc.test")) == [
        "10.0.0.9:3001",
        "10.0.0.1:3002",
        "10.0.0.2:3002",
    ]


async def test_only_so_many_addresses_are_taken(dns: Dns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "ADDRESSES_MAX", 50)
    assert len(await found(dns.dns("many.test"))) == 50


async def test_the_reason_is_told_if_nothing_is_found(dns: Dns) -> None:
    for lookup, why in (
        (dns.dns("none.test"), "there is no such name"),
        (dns.dns("six.test"), "it has no address of this kind"),
        (dns.srv("none.test"), "there is no such name"),
        (dns.srv("_gone._tcp.svc.test"), "there is no such name"),
    ):
        with pytest.raises(OSError, match=why):
            await found(lookup)
    dns.says({"silent": {}})
    with pytest.raises(OSError, match=f"no DNS server has answered within {RESOLVE_S_MAX:g} s"):
        await found(dns.dns("all.test"))


async def test_a_host_that_cannot_be_looked_up_stays_as_it_was_and_is_reported_once(
    dns: Dns, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(_name: str) -> Sequence[str]:
        raise OSError

    def told() -> list[str]:
        return [
            str(event.fields["why"]) for event in events_in(caplog) if event.name == "host-unknown"
        ]

    lookup = dns.dns("late.test")
    resolver = Resolver(never, lookups_for("127.0.0.1"), lambda _address: False)
    seeds = Seeds([lookup, Address("10.0.0.7", 1)], None, lambda _hosts: None, resolver)
    always = Address("10.0.0.7", 1)

    assert await seeds.resolved(seeds.read()) == (always,)
    dns.says({"late.test": {"A": ["10.0.0.1"]}})
    assert await seeds.resolved(seeds.read()) == (always, Address("10.0.0.1", 3000))
    dns.says({})
    for _ in range(2):
        assert await seeds.resolved(seeds.read()) == (always, Address("10.0.0.1", 3000))
    dns.says({"late.test": {"A": ["10.0.0.2"]}})
    assert await seeds.resolved(seeds.read()) == (always, Address("10.0.0.2", 3000))

    assert told() == ["there is no such name", "there is no such name"]


@pytest.mark.e2e
def test_answers_that_are_old_partial_or_of_another_cluster_harm_nobody(
    dns: Dns, tmp_path: Path
) -> None:
    """The name stands for a dead host, for some of the live ones, and for a stranger's."""
    port = free_addresses(1)[0].port
    addresses = [Address(f"127.0.0.{place}", port) for place in (1, 2, 3)]
    dead, stranger = "127.0.0.9", "127.0.0.8"
    dns.says({"all.test": {"A": [dead, addresses[0].host, stranger]}})
    with ExitStack() as stack:
        strangers = LocalCluster(
            tmp_path / "strangers", 1, "--cluster", "others", addresses=[Address(stranger, port)]
        )
        stack.enter_context(strangers)
        cluster = LocalCluster(tmp_path / "cluster", 3, addresses=addresses)
        for node in cluster.nodes:
            at = node.command.index("--hosts") + 1
            node.command[at] = f"dns://all.test:{port}?server={dns.address}"
        stack.enter_context(cluster)

        cluster.wait_converged(timeout_s=40)

        assert len(strangers[0].statuses()) == 1
        # All that DNS knows is wrong by now; nobody forgets anybody.
        dns.says({"all.test": {"A": [dead, stranger]}})
        for node in cluster.nodes:
            node.admin("/admin/healpartition/disco")
        assert all(set(node.statuses().values()) == {"alive"} for node in cluster.nodes)
        assert all(len(node.statuses()) == 3 for node in cluster.nodes)
        # A host that starts now finds nobody, and joins as soon as DNS knows one again.
        cluster[2].stop()
        cluster.wait_converged(*cluster.nodes[:2])
        cluster[2].start()
        wait_until(lambda: bool(cluster[2].ask("/admin/node")), 20, "the node")
        dns.says({"all.test": {"A": [dead, addresses[1].host]}})
        cluster.wait_converged(timeout_s=40)
        assert len(strangers[0].statuses()) == 1


@pytest.mark.e2e
def test_daemons_find_each_other_by_a_name_that_is_unknown_at_first(
    dns: Dns, tmp_path: Path
) -> None:
    port = free_addresses(1)[0].port
    addresses = [Address(f"127.0.0.{place}", port) for place in (1, 2, 3)]
    dns.says({})
    with ExitStack() as stack:
        cluster = LocalCluster(tmp_path / "cluster", 3, addresses=addresses)
        for node in cluster.nodes:
            at = node.command.index("--hosts") + 1
            node.command[at] = f"dns://all.test:{port}?server={dns.address}"
        stack.enter_context(cluster)
        wait_until(lambda: all(node.ask("/admin/node") for node in cluster.nodes), 20, "the nodes")
        assert all(len(node.statuses()) == 1 for node in cluster.nodes)

        dns.says({"all.test": {"A": [address.host for address in addresses]}})

        cluster.wait_converged(timeout_s=40)
