"""The head of a call to an application: what its sender believed, and how errors travel.

arg2 of a request holds the `Head`, arg3 the application's bytes. An error of the application
is an answer that is not ok, its kind and message in arg2.
"""

from __future__ import annotations

from typing import Annotated, Final

from ringpop_py.errors import ApplicationError, BodyError, HandlerFailed
from ringpop_py.faults import sendable
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
    replace,
)

APPLICATION_SCHEME: Final = "raw"
PROXY_ERROR_PREFIX: Final = "ringpop.proxy."
"""Begins the kind of an error of the daemon itself while it routed a client's request."""
HANDLER_FAILED_PREFIX: Final = "ringpop.handler."
"""Begins the kind of a `HandlerFailed`."""
RELAY_ENDPOINT: Final = "/proxy/relay"
"""The node's endpoint that passes a call on to the member that arg2 names."""
KEY_CHARACTERS_MAX: Final = 1 << 16
HEADER_CHARACTERS_MAX: Final = 1 << 17
"""The longest header. HTTP/1.1 clients such as httpx accept less for all headers together."""
ERROR_CHARACTERS_MAX: Final = 1 << 16
"""The longest kind, and the longest message, of an error; longer ones are cut by the sender."""

HeaderText = Annotated[str, Meta(max_length=HEADER_CHARACTERS_MAX)]
AnyKey = Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX)]
ErrorText = Annotated[str, Meta(max_length=ERROR_CHARACTERS_MAX)]


class KeyspaceBelief(Declared, frozen=True):
    """The keyspace of the keys, and what the sender believes about their partitions.

    Attributes:
        epochs: the latest epoch that the sender knows of each key's partition.
    """

    name: Text
    generation: Natural
    epochs: tuple[Natural, ...]


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
    """

    keys: tuple[AnyKey, ...] = ()
    ring_checksum: Checksum | None = None
    sender: Text = ""
    route: bool = False
    idempotent: bool = False
    keyspace: KeyspaceBelief | None = None
    headers: tuple[tuple[HeaderText, HeaderText], ...] = ()

    def with_headers(self, headers: tuple[tuple[str, str], ...]) -> Head:
        """Return the head with *headers* of the application."""
        return replace(self, headers=headers) if headers else self

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


class _SentError(Declared, frozen=True):
    kind: ErrorText
    message: ErrorText


def encode_error(kind: str, message: str) -> bytes:
    """Return an application's error as arg2 of an answer that is not ok."""
    # Cut here: the receiver would refuse a longer one, and lose the error.
    return encode([sendable(text[:ERROR_CHARACTERS_MAX]) for text in (kind, message)])


def encode_application_error(error: ApplicationError) -> bytes:
    """Return *error* as `encode_error` does, so that `decode_error` makes the same class of it."""
    prefix = HANDLER_FAILED_PREFIX if isinstance(error, HandlerFailed) else ""
    return encode_error(f"{prefix}{error.kind}", str(error.message))


def decode_error(data: bytes) -> ApplicationError:
    """Return the application's error in arg2. Raises BodyError."""
    error = decode(_SentError, data)
    if error.kind.startswith(HANDLER_FAILED_PREFIX):
        return HandlerFailed(error.kind.removeprefix(HANDLER_FAILED_PREFIX), error.message)
    return ApplicationError(error.kind, error.message)
