"""Hosts of a StatefulSet."""

from __future__ import annotations

import pytest

from ringpop_py import Address
from ringpop_py.discovery.hosts import parse_hosts, statefulset_hosts
from ringpop_py.errors import ConfigError


def test_each_replica_has_its_name_at_the_headless_service() -> None:
    hosts = statefulset_hosts("volley", "streams", 3, 3000)

    assert list(map(str, hosts)) == [
        "volley-0.volley-headless.streams.svc:3000",
        "volley-1.volley-headless.streams.svc:3000",
        "volley-2.volley-headless.streams.svc:3000",
    ]


def test_the_names_read_back_as_addresses() -> None:
    hosts = statefulset_hosts("volley", "streams", 2, 3000)

    assert tuple(Address.parse(str(host)) for host in hosts) == hosts


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
        "statefulset://volley.streams:3000",
        "statefulset://volley.streams:3000?replicas=0",
        "statefulset://volley.streams:3000?replicas=many",
        "statefulset://volley.streams:3000?replicas=1001",
        "statefulset://volley.streams:99999?replicas=2",
        "statefulset://vol_ley.streams:3000?replicas=2",
        "statefulset://volley.streams:3000?replicas=2&x=1",
        "statefulset://[",
    ],
)
def test_what_is_no_statefulset_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="hosts 'statefulset://"):
        parse_hosts(text)
