"""The head of a call to an application: what its sender believed, and how errors travel.

arg2 of a request holds the `Head`, arg3 the application's bytes. An error of the application
is an answer that is not ok, its kind and message in arg2.
"""

from __future__ import annotations

from typing import Annotated, Final

from ringpop_py.errors import ApplicationError, BodyError
from ringpop_py.values.declared import (
    Checksum,
    Declared,
    Meta,
    Named,
    Natural,
    Text,
    decode,
    encode,
    reader,
)

APPLICATION_SCHEME: Final = "raw"
PROXY_ERROR_PREFIX: Final = "ringpop.proxy."
"""Begins the kind of an error that the daemon itself met while it routed a client's request."""
RELAY_ENDPOINT: Final = "/proxy/relay"
"""Of the node itself: passes a call on to the member that arg2 names."""
KEY_CHARACTERS_MAX: Final = 1 << 16
ERROR_CHARACTERS_MAX: Final = 1 << 16
"""Of the kind and of the message of an error; what is longer is cut off where it is raised."""


AnyKey = Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX)]
ErrorText = Annotated[str, Meta(max_length=ERROR_CHARACTERS_MAX)]


class KeyspaceBelief(Declared, frozen=True):
    """That keys are those of a keyspace, and what the sender believes of their partitions.

    Attributes:
        epochs: of each key's partition: the latest epoch that the sender has heard of.
    """

    name: Text
    generation: Natural
    epochs: tuple[Natural, ...]


class Head(Named, frozen=True, rename={"ring_checksum": "ring"}):
    """What travels with a request for an owner.

    Attributes:
        keys: what the request is about; empty where a client calls a handler directly.
        ring_checksum: of the sender's ring.
        sender: the member that forwards, empty for a client.
        route: a client asks this node to find the owner. Never set on a forwarded call, so
            that none is forwarded twice.
        idempotent: only with *route*: the client says that it may run more than once.
        keyspace: whose keys they are; None where the ring owns them.
    """

    keys: tuple[AnyKey, ...] = ()
    ring_checksum: Checksum | None = None
    sender: Text = ""
    route: bool = False
    idempotent: bool = False
    keyspace: KeyspaceBelief | None = None

    def encode(self) -> bytes:
        """The head as bytes (a msgpack map; what is not said is left out)."""
        body = encode(self)
        return b"" if body == _NOTHING else body

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """The head in *data*; no bytes are an empty one.

        Raises:
            BodyError: if *data* holds anything else.
        """
        return _read_head(data or _NOTHING).checked()

    def checked(self) -> Head:
        """The head itself. Raises BodyError if it has not one epoch for each key."""
        if self.keyspace is not None and len(self.keyspace.epochs) != len(self.keys):
            raise BodyError(f"{len(self.keyspace.epochs)} epochs for {len(self.keys)} keys")
        return self


_NOTHING: Final = encode(Head())
_read_head: Final = reader(Head)


class AnswerHead(Named, frozen=True):
    """What travels with the answer to a client: whose it is."""

    owner: Text


class RelayHead(AnswerHead, frozen=True):
    """What travels with a call to be passed on: the member that it is for, and its endpoint."""

    endpoint: Text


class _SentError(Declared, frozen=True):
    kind: ErrorText
    message: ErrorText


def encode_error(kind: str, message: str) -> bytes:
    """An application's error as arg2 of an answer that is not ok."""
    return encode([kind[:ERROR_CHARACTERS_MAX], message[:ERROR_CHARACTERS_MAX]])


def decode_error(data: bytes) -> ApplicationError:
    """The application's error in arg2.

    Raises:
        BodyError: if *data* is not one.
    """
    error = decode(_SentError, data)
    return ApplicationError(error.kind, error.message)
