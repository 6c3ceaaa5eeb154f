"""Hosts of a StatefulSet."""

from __future__ import annotations

import pytest

from ringpop_py import Address, DnsLookup
from ringpop_py.base.errors import ConfigError
from ringpop_py.member.discovery.hosts import parse_hosts, statefulset_hosts


def test_each_replica_has_its_name_at_the_headless_service() -> None:
    hosts = statefulset_hosts("volley", "streams", 3, 3000)

    assert list(map(str, hosts)) == [
        "volley-0.volley-headless.streams.svc:3000",
        "volley-1.volley-headless.streams.svc:3000",
        "volley-2.volley-headless.streams.svc:3000",
    ]


def test_a_statefulset_stands_for_its_hosts_and_an_address_for_itself() -> None:
    assert parse_hosts("statefulset://volley.streams:3000?replicas=2") == statefulset_hosts(
        "volley", "streams", 2, 3000
    )
    assert parse_hosts("10.0.0.1:3000") == (Address("10.0.0.1", 3000),)


@pytest.mark.parametrize(
    "text",
    [
        "statefulset://volley:3000?replicas=2",
        "statefulset://volley.a.b:3000?replicas=2",
        "statefulset://volley.streams?replicas=2",
        "statefulset://volley.streams:3000?replicas=0",
        "statefulset://volley.streams:3000?replicas=many",
        "statefulset://volley.streams:3000?replicas=1001",
        "statefulset://volley.streams:99999?replicas=2",
        "statefulset://vol_ley.streams:3000?replicas=2",
        "statefulset://volley.streams:3000?replicas=2&x=1",
        "statefulset://[",
    ],
)
def test_a_malformed_statefulset_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="hosts 'statefulset://"):
        parse_hosts(text)


def test_a_statefulset_without_a_count_is_looked_up() -> None:
    [lookup] = parse_hosts("statefulset://volley.streams:3000")
    assert lookup == DnsLookup("dns", "volley-headless.streams.svc", 3000)


@pytest.mark.parametrize(
    "text",
    [
        "dns://all.example:3000",
        "dns://all.example:3000?server=10.0.0.53:53",
        "srv://_ringpop._tcp.example.org",
        "srv://_ringpop._tcp.example.org?server=10.0.0.53:5353",
    ],
)
def test_a_lookup_is_read_and_said_as_it_was_written(text: str) -> None:
    [lookup] = parse_hosts(text)
    assert isinstance(lookup, DnsLookup)
    assert str(lookup) == text


@pytest.mark.parametrize(
    "text",
    [
        "dns://all.example",
        "dns://all.example:0",
        "dns://:3000",
        "dns://all example:3000",
        "dns://all.example:3000/path",
        "dns://all.example:3000?servers=1",
        "dns://all.example:3000?server=x",
        "dns://all.example:3000?server=localhost:53",
        "dns://all.example:99999",
        "srv://_ringpop._tcp.example.org:3000",
        "srv://",
        "srv://[",
    ],
)
def test_a_malformed_lookup_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"hosts '(dns|srv)://"):
        parse_hosts(text)
