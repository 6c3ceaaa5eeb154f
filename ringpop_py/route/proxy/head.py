"""The head of a call to an application: what its sender believed.

arg2 of a request holds the `Head`, arg3 the application's bytes. An error of the application
is an answer that is not ok, its kind and message in arg2 (`failures`).
"""

from __future__ import annotations

from typing import Annotated, Final, TypedDict

from ringpop_py.base.arguments import ROUTED_KEY_CHARACTERS_MAX
from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import (
    Checksum,
    Declared,
    Meta,
    Named,
    Natural,
    Text,
    encode,
    reader,
)
from ringpop_py.base.values.packed import INTEGER_MAX
from ringpop_py.net.http.piece import HeaderText as HeaderText  # noqa: TC001 - read at run time
from ringpop_py.net.http.piece import HttpStatus as HttpStatus

APPLICATION_SCHEME: Final = "raw"
RELAY_ENDPOINT: Final = "/proxy/relay"
"""The node's endpoint that passes a call on to the member that arg2 names."""
MANY_ENDPOINT: Final = "/proxy/many"
"""The node's endpoint for requests of many keys: arg3 has a body for each key. One of its own, as a
node that knows nothing of it would hand all bodies to the handler of a single request."""


Positive = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
AnyKey = Annotated[str, Meta(max_length=ROUTED_KEY_CHARACTERS_MAX)]


class KeyspaceBelief(Declared, frozen=True):
    """The keyspace of the keys, and what the sender believes about their partitions.

    Attributes:
        epochs: the latest epoch that the sender knows of each key's partition.
    """

    name: Text
    generation: Natural
    epochs: tuple[Natural, ...]


class Tries(Named, frozen=True):
    """How a client wants its request to be tried; what is None is as its daemon is configured.

    Attributes:
        schedule_s: see `RequestOptions.retry_schedule`.
    """

    max_retries: Natural | None = None
    schedule_s: tuple[float, ...] | None = None


NO_TRIES: Final = Tries()


class HeadOptions(TypedDict, total=False):
    """The fields of a head that say how to try its request."""

    idempotent: bool
    failover: int
    tries: Tries


class Head(Named, frozen=True, rename={"ring_checksum": "ring"}):
    """What travels with a request for an owner.

    Attributes:
        keys: the keys of the request; empty if a client calls a handler directly.
        ring_checksum: of the sender's ring.
        sender: the member that forwards; empty for a client.
        route: whether a client asks this node to find the owner. It is never set on a forwarded
            call, so that none is forwarded twice.
        idempotent: only with *route*: whether the request may run more than once.
        keyspace: the keyspace of the keys; None if the ring owns them.
        headers: those of the application.
        failover: how many members may handle it: the owner, and those after it on the ring.
        tries: only with *route*: how often, and when, the request is tried.
        endpoint: only at `MANY_ENDPOINT`: the application's.
    """

    keys: tuple[AnyKey, ...] = ()
    ring_checksum: Checksum | None = None
    sender: Text = ""
    route: bool = False
    idempotent: bool = False
    keyspace: KeyspaceBelief | None = None
    headers: tuple[tuple[HeaderText, HeaderText], ...] = ()
    failover: Positive = 1
    tries: Tries = NO_TRIES
    endpoint: Text = ""

    def encode(self) -> bytes:
        """Return the head as bytes: a msgpack map without fields that have their default."""
        body = encode(self)
        return b"" if body == _NOTHING else body  # a call without a head has no bytes of it

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Return the head in *data*; no bytes are an empty one. Raises BodyError."""
        return _read_head(data or _NOTHING).checked()

    def checked(self) -> Head:
        """Return the head itself. Raises BodyError unless it has one epoch for each key."""
        if self.keyspace is not None and len(self.keyspace.epochs) != len(self.keys):
            raise BodyError(f"{len(self.keyspace.epochs)} epochs for {len(self.keys)} keys")
        return self


_NOTHING: Final = encode(Head())
_read_head: Final = reader(Head)


class AnswerHead(Named, frozen=True):
    """What travels with the answer to a client: the member that answered."""

    owner: Text


class RelayHead(AnswerHead, frozen=True):
    """What travels with a call to be passed on: the member that it is for, and its endpoint."""

    endpoint: Text
