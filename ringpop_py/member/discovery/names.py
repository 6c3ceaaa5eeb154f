"""The addresses behind the name of a host, as the system's resolver knows them now."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.address import is_numeric

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ringpop_py.base.address import Address

    Resolve = Callable[[str], Awaitable[Sequence[str]]]

RESOLVE_S_MAX: Final = 2.0
"""The most seconds to resolve names; a name that takes longer stays a name this time."""


def resolver_for(own: str) -> Resolve:
    """Return a function that resolves names to addresses of the family of our *own* host.

    Many machines have an address of the other family for each name, at which no peer listens.
    """
    family = socket.AF_UNSPEC
    if is_numeric(own):
        family = socket.AF_INET6 if ":" in own else socket.AF_INET

    async def resolve(name: str) -> Sequence[str]:
        found = await trio.socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
        return list(dict.fromkeys(str(place[0]) for *_, place in found))

    return resolve


async def resolved(
    hosts: Sequence[Address],
    resolve: Resolve,
    is_member: Callable[[Address], bool] = lambda _: False,
) -> tuple[tuple[Address, ...], Mapping[str, str]]:
    """Return *hosts*, with a name that has several addresses replaced by these.

    A name with one address stays a name, under which its member may be known, unless *is_member*
    says that a member has the address and none has the name. A name that cannot be resolved now
    stays, too; the second result has the reason for each.
    """
    names = dict.fromkeys(host.host for host in hosts if not is_numeric(host.host))
    found: dict[str, Sequence[str]] = {}
    unknown = dict.fromkeys(names, f"it was not resolved within {RESOLVE_S_MAX:g} s")

    async def one(name: str) -> None:
        try:
            found[name] = await resolve(name)
            del unknown[name]
        except (OSError, UnicodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or str(error)
            unknown[name] = f"unknown name: {why}"

    with trio.move_on_after(RESOLVE_S_MAX):
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(one, name)
    every: list[Address] = []
    for host in hosts:
        addresses = found.get(host.host, ())
        several = [host._replace(host=address) for address in addresses]
        is_known_by_address = bool(several) and is_member(several[0]) and not is_member(host)
        every += several if len(several) > 1 or is_known_by_address else [host]
    return tuple(dict.fromkeys(every)), unknown
