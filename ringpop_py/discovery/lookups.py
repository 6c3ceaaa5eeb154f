"""Hosts that DNS knows: all addresses behind a name, or the targets of a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import dns.asyncresolver
import dns.exception
import dns.rdatatype
import dns.resolver

from ringpop_py.address import Address
from ringpop_py.discovery.names import RESOLVE_S_MAX, is_numeric

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.address import Lookup

    LookUp = Callable[[Lookup], Awaitable[Sequence[Address]]]

ADDRESSES_MAX: Final = 1_000
"""So many hosts are taken of an answer."""


def lookups_for(own: str) -> LookUp:
    """Return what looks hosts up, for a node with the host *own*: addresses of its family only.

    It raises OSError, with the reason, if there is no answer, or none with an address.
    """
    kinds = [dns.rdatatype.A, dns.rdatatype.AAAA]
    if is_numeric(own):
        kinds = [dns.rdatatype.AAAA if ":" in own else dns.rdatatype.A]

    async def look_up(lookup: Lookup) -> Sequence[Address]:
        resolver = _resolver(lookup)
        try:
            if lookup.kind == "dns":
                found = [
                    Address(host, lookup.port)
                    for host in await _hosts(resolver, lookup.name, kinds)
                ]
            else:
                found = await _targets(resolver, lookup.name, kinds)
        except dns.exception.DNSException as error:
            raise OSError(_reason(error)) from None
        return list(dict.fromkeys(found))[:ADDRESSES_MAX]

    return look_up


def _resolver(lookup: Lookup) -> dns.asyncresolver.Resolver:
    try:
        resolver = dns.asyncresolver.Resolver(configure=lookup.server is None)
    except dns.resolver.NoResolverConfiguration as error:
        raise OSError(str(error)) from None
    if lookup.server is not None:
        resolver.nameservers = [lookup.server.host]
        resolver.port = lookup.server.port
    resolver.lifetime = RESOLVE_S_MAX
    return resolver


async def _hosts(
    resolver: dns.asyncresolver.Resolver, name: str, kinds: Sequence[dns.rdatatype.RdataType]
) -> list[str]:
    """Return the addresses of *name*, of all *kinds* that it has."""
    hosts: list[str] = []
    trouble: dns.exception.DNSException | None = None
    for kind in kinds:
        try:
            answer = await resolver.resolve(name, kind, search=True)
            hosts += sorted(record.address for record in answer)
        except dns.exception.DNSException as error:
            trouble = error
    if not hosts and trouble is not None:
        raise trouble
    return hosts


async def _targets(
    resolver: dns.asyncresolver.Resolver, name: str, kinds: Sequence[dns.rdatatype.RdataType]
) -> list[Address]:
    """Return the addresses of all targets of the service *name*; those of low priority first."""
    answer = await resolver.resolve(name, dns.rdatatype.SRV, search=True)
    found: list[Address] = []
    trouble: dns.exception.DNSException | None = None
    for record in sorted(answer, key=lambda each: (each.priority, each.target, each.port)):
        try:
            target = record.target.to_text(omit_final_dot=True)
            found += [Address(host, record.port) for host in await _hosts(resolver, target, kinds)]
        except dns.exception.DNSException as error:
            trouble = error  # the others may have addresses
    if not found and trouble is not None:
        raise trouble
    return found


def _reason(error: dns.exception.DNSException) -> str:
    if isinstance(error, dns.resolver.NXDOMAIN):
        return "there is no such name"
    if isinstance(error, dns.resolver.NoAnswer):
        return "it has no address of this kind"
    if isinstance(error, dns.resolver.LifetimeTimeout):
        return f"no DNS server has answered within {RESOLVE_S_MAX:g} s"
    return str(error) or type(error).__name__
