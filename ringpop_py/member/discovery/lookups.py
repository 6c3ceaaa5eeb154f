"""Hosts that DNS knows: all addresses behind a name, or the targets of a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver
import trio
from dns.asyncresolver import Resolver

from ringpop_py.base.address import Address, is_numeric
from ringpop_py.member.discovery.names import RESOLVE_S_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dns.rdatatype import RdataType

    from ringpop_py.base.address import DnsLookup

    LookUp = Callable[[DnsLookup], Awaitable[Sequence[Address]]]

ADDRESSES_MAX: Final = 1_000
"""The most hosts that are used of one answer; the others are ignored."""


def lookups_for(own: str) -> LookUp:
    """Return a function that looks up hosts, with addresses only of the family of our host *own*.

    The function raises OSError, with the reason, if no answer comes, or none with an address.
    """
    kinds = [dns.rdatatype.A, dns.rdatatype.AAAA]
    if is_numeric(own):
        kinds = [dns.rdatatype.AAAA if ":" in own else dns.rdatatype.A]

    async def look_up(lookup: DnsLookup) -> Sequence[Address]:
        try:
            resolver = _resolver(lookup)
            if lookup.kind == "dns":
                found = [
                    Address(host, lookup.port)
                    for host in await _hosts(resolver, lookup.name, kinds)
                ]
            else:
                found = await _targets(resolver, lookup.name, kinds)
        except dns.exception.DNSException as error:
            raise OSError(_reason(error)) from None
        except ValueError as error:
            raise OSError(f"it cannot be asked for: {error}") from None
        return list(dict.fromkeys(found))[:ADDRESSES_MAX]

    return look_up


def _resolver(lookup: DnsLookup) -> Resolver:
    try:
        resolver = Resolver(configure=lookup.server is None)
    except dns.resolver.NoResolverConfiguration as error:
        raise OSError(str(error)) from None
    if lookup.server is not None:
        resolver.nameservers = [lookup.server.host]
        resolver.port = lookup.server.port
    resolver.lifetime = RESOLVE_S_MAX
    return resolver


async def _hosts(
    resolver: Resolver, name: str | dns.name.Name, kinds: Sequence[RdataType]
) -> list[str]:
    """Return the addresses of *name*, of all *kinds* it has; a `Name` skips the search list."""
    hosts: dict[RdataType, list[str]] = {}
    trouble: list[dns.exception.DNSException] = []

    async def one(kind: RdataType) -> None:
        try:
            answer = await resolver.resolve(name, kind, search=isinstance(name, str))
            hosts[kind] = sorted(record.address for record in answer)
        except dns.exception.DNSException as error:
            trouble.append(error)

    async with trio.open_nursery() as nursery:
        for kind in kinds:
            nursery.start_soon(one, kind)
    if not hosts:
        raise trouble[0]
    return [host for kind in kinds for host in hosts.get(kind, ())]


async def _targets(resolver: Resolver, name: str, kinds: Sequence[RdataType]) -> list[Address]:
    """Return the addresses of all targets of the service *name*; those of low priority first."""
    answer = await resolver.resolve(name, dns.rdatatype.SRV, search=True)
    records = sorted(answer, key=lambda each: (each.priority, each.target, each.port))
    found: dict[int, list[Address]] = {}
    trouble: list[dns.exception.DNSException] = []

    async def one(place: int, target: dns.name.Name, port: int) -> None:
        try:
            hosts = await _hosts(resolver, target, kinds)
            found[place] = [Address(host, port) for host in hosts]
        except dns.exception.DNSException as error:
            trouble.append(error)  # the others may have addresses

    async with trio.open_nursery() as nursery:
        for place, record in enumerate(records):
            nursery.start_soon(one, place, record.target, record.port)
    if not found:
        raise trouble[0]
    return [address for place in sorted(found) for address in found[place]]


def _reason(error: dns.exception.DNSException) -> str:
    if isinstance(error, dns.resolver.NXDOMAIN):
        return "there is no such name"
    if isinstance(error, dns.resolver.NoAnswer):
        return "it has no address of this kind"
    if isinstance(error, dns.resolver.LifetimeTimeout):
        return f"no DNS server has answered within {RESOLVE_S_MAX:g} s"
    return str(error) or type(error).__name__
