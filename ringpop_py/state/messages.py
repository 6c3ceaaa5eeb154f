"""Messages between synchronous clients and daemons about keyspaces. Bodies are msgpack.

A client sends the same requests as nodes do (`ringpop_py.base.values.requests`), but to any daemon,
which finds the owners. Each answer says which owners to ask the next time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from ringpop_py.base.address import Address
from ringpop_py.base.errors import BadOperation, BodyError, ConfigError
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.declared import Declared, Meta, Natural, Text, astuple, decode, encode
from ringpop_py.base.values.requests import decode_results, encode_results
from ringpop_py.net.security.identity import Role
from ringpop_py.state.placement.keys import PARTITIONS_READ_MAX, Placing
from ringpop_py.state.rows.pages import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DESCRIBE: Final = "/keyspace/client/describe"
KNOWS_HASH_TAGS: Final = b"hash_tags"
"""The head of `DESCRIBE` from a client that can place the keys of a keyspace with hash tags."""
OWNERS: Final = "/keyspace/client/owners"
TELL: Final = "/keyspace/client/tell"
"""Have this daemon bring a message to an actor, and do not wait for the answer."""
WATCH: Final = "/keyspace/watch"
CLIENT_WATCH: Final = "/keyspace/client/watch"
"""The same at any daemon, which asks the owners; the one result has a row for each partition."""
ROUTED: Final = {
    messages.APPLY: "/keyspace/client/apply",
    messages.READ: "/keyspace/client/read",
    messages.SCAN: "/keyspace/client/scan",
    COLUMNS: "/keyspace/client/columns",
    messages.ACTOR: "/keyspace/client/actor",
}
"""The endpoint at which a daemon forwards requests to owners, by the endpoint at an owner."""

_RECORDS: Final = (messages.APPLY, messages.READ, messages.SCAN)
OF_RECORDS: Final = frozenset({DESCRIBE, *_RECORDS, *(ROUTED[each] for each in _RECORDS)})
"""What also a process for shuffles calls, whose records lie in a keyspace."""
OF_READERS: Final = frozenset({OWNERS, COLUMNS, ROUTED[COLUMNS], WATCH, CLIENT_WATCH})
"""What also a reader calls, besides `OF_RECORDS`, by which it may not write (`check_use`)."""

PartitionNumber = Annotated[int, Meta(ge=0, lt=PARTITIONS_READ_MAX)]


class Routes(Declared, frozen=True):
    """Which members to ask about partitions. `of` makes them.

    Attributes:
        members: names, each once, with addresses; an address is empty if it is not known.
        rows: for each partition its number, the index of its owner in *members*, and the epoch.
    """

    members: tuple[tuple[Text, Text], ...] = ()
    rows: tuple[tuple[PartitionNumber, Natural, Natural], ...] = ()

    @classmethod
    def of(
        cls, destinations: Mapping[int, tuple[str, int]], addresses: Mapping[str, Address]
    ) -> Routes:
        """Return the routes that have those `destinations` and `addresses`."""
        owners = (name for name, _ in destinations.values())
        names = list(dict.fromkeys([*owners, *addresses]))  # each once: rows only have its index
        index_of = {name: index for index, name in enumerate(names)}
        return cls(
            tuple((name, str(addresses.get(name, ""))) for name in names),
            tuple((n, index_of[name], epoch) for n, (name, epoch) in destinations.items()),
        )

    @property
    def destinations(self) -> dict[int, tuple[str, int]]:
        """The owner and epoch by partition; the owner may be empty. Raises BodyError."""
        try:
            return {n: (self.members[index][0], epoch) for n, index, epoch in self.rows}
        except IndexError:
            raise BodyError("routes: a row names a member that is not listed") from None

    @property
    def addresses(self) -> dict[str, Address]:
        """The known addresses by name, perhaps of further members, too. Raises BodyError."""
        try:
            return {name: Address.parse(text) for name, text in self.members if text}
        except ConfigError as error:
            raise BodyError(f"routes: {error}") from None


class Description(Declared, frozen=True):
    """What a client must know of a keyspace before its first request.

    Attributes:
        routes: a destination for each partition. A daemon that cannot serve the keyspace sends only
            the addresses of members that can.
    """

    generation: Natural
    partitions_count: Annotated[int, Meta(ge=1, le=PARTITIONS_READ_MAX)]
    routes: Routes
    hash_tags: bool = False

    @property
    def placing(self) -> Placing:
        """How the keys of the keyspace become partitions."""
        return Placing(self.partitions_count, hash_tags=self.hash_tags)

    def row_for(self, head: bytes) -> tuple[Any, ...]:
        """Return the row to send to a client whose request has that *head*.

        Raises:
            BadOperation: the keyspace has hash tags, and the client does not know them.
        """
        if not self.hash_tags:
            return astuple(self)[:3]
        if head != KNOWS_HASH_TAGS:
            raise BadOperation(
                "the keyspace has hash tags, which this client does not know: it would look for"
                " keys in other partitions; install the version of the members"
            )
        return astuple(self)


class OwnersRequest(Declared, frozen=True):
    """Asks which member serves each partition; the answer is a `PartitionOwners`.

    Attributes:
        after: wait until the epoch of the assignment is above this one, while the call lasts.
    """

    keyspace: Text
    after: Natural | None = None


class _Answer(Declared, frozen=True):
    results: bytes
    routes: Routes


def encode_answer(results: Sequence[object], routes: Routes) -> bytes:
    """Encode the results of all parts, and the members to ask the next time."""
    return encode(_Answer(encode_results(results), routes))


def decode_answer(
    body: bytes, count: int
) -> tuple[list[Any], dict[int, tuple[str, int]], dict[str, Address]]:
    """Decode the results of *count* parts, as `decode_results`, destinations and addresses."""
    answer = decode(_Answer, body)
    results = decode_results(answer.results, count)
    return results, answer.routes.destinations, answer.routes.addresses


def results_in(body: bytes) -> bytes:
    """Return the encoded results in an answer that `encode_answer` made."""
    return decode(_Answer, body).results


def role_for(endpoint: str) -> Role:
    """Return the least role of callers of *endpoint*, unless that is for members alone."""
    if endpoint in OF_RECORDS:
        return Role.SHUFFLES
    return Role.READER if endpoint in OF_READERS else Role.CLIENT
