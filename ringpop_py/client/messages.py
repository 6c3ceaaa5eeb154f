"""What synchronous clients and daemons say to each other about keyspaces. Bodies are msgpack.

A client asks for parts of a keyspace as nodes do among themselves (`ringpop_py.values.requests`),
but any daemon, which finds the owners. With each answer comes whom to ask the next time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.columns.pages import COLUMNS
from ringpop_py.placing.keys import PARTITIONS_MAX
from ringpop_py.values import requests as messages
from ringpop_py.values.packed import (
    a_list,
    a_row,
    a_text,
    address_from,
    an_integer,
    decode_value,
    encode_value,
    some_bytes,
)
from ringpop_py.values.requests import decode_results, encode_results

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.address import Address

DESCRIBE: Final = "/keyspace/client/describe"
ROUTED: Final = {
    messages.APPLY: "/keyspace/client/apply",
    messages.READ: "/keyspace/client/read",
    messages.SCAN: "/keyspace/client/scan",
    COLUMNS: "/keyspace/client/columns",
}
"""Where a daemon takes what it is to bring to owners, by where an owner takes it."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Whom to ask about partitions.

    Attributes:
        destinations: name and epoch by partition; the name is empty if there is nobody.
        addresses: where those members listen, by name, and perhaps others.
    """

    destinations: Mapping[int, tuple[str, int]]
    addresses: Mapping[str, Address]

    def as_value(self) -> list[Any]:
        """As a plain value: names, each once, with addresses; then a row a partition."""
        owners = (name for name, _ in self.destinations.values())
        names = list(dict.fromkeys([*owners, *self.addresses]))
        index_of = {name: index for index, name in enumerate(names)}
        members = [[name, str(self.addresses.get(name, ""))] for name in names]
        rows = [
            [number, index_of[name], epoch] for number, (name, epoch) in self.destinations.items()
        ]
        return [members, rows]

    @classmethod
    def of_value(cls, value: object) -> Routes:
        """The routes in *value*. Raises BodyError, as all here."""
        members, rows = a_row(value, 2, "routes")[:2]
        names = []
        addresses = {}
        for member in a_list(members, "members"):
            name, address = a_row(member, 2, "member")[:2]
            names.append(a_text(name, "name"))
            if address:
                addresses[name] = address_from(address, "address")
        destinations = {}
        for row in a_list(rows, "rows"):
            number, index, epoch = a_row(row, 3, "row")[:3]
            at = an_integer(index, "index", maximum=len(names) - 1)
            number = an_integer(number, "partition", maximum=PARTITIONS_MAX - 1)
            destinations[number] = names[at], an_integer(epoch, "epoch")
        return cls(destinations, addresses)


@dataclass(frozen=True, slots=True)
class Description:
    """What a client must know of a keyspace before it can ask for anything.

    Attributes:
        routes: with a destination for each partition; without any from a daemon that has no part in
            the keyspace, but addresses of some that have.
    """

    generation: int
    partitions_count: int
    routes: Routes

    def as_value(self) -> list[Any]:
        """As a plain value."""
        return [self.generation, self.partitions_count, self.routes.as_value()]

    @classmethod
    def of_value(cls, value: object) -> Description:
        """The description in *value*."""
        generation, count, routes = a_row(value, 3, "keyspace")[:3]
        return cls(
            an_integer(generation, "generation"),
            an_integer(count, "partitions", maximum=PARTITIONS_MAX) or 1,
            Routes.of_value(routes),
        )


def encode_answer(results: Sequence[object], routes: Routes) -> bytes:
    """The results of all parts, and whom to ask about these partitions the next time."""
    return encode_value("msgpack", [encode_results(results), routes.as_value()])


def decode_answer(body: bytes, count: int) -> tuple[list[Any], Routes]:
    """The results of *count* parts, as `decode_results` gives them, and routes."""
    results, routes = a_row(decode_value("msgpack", body), 2, "answer")[:2]
    return decode_results(some_bytes(results, "results"), count), Routes.of_value(routes)
