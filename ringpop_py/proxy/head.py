"""The head of a call to an application: what its sender believed, and how errors travel.

arg2 of a request holds the `Head`, arg3 the application's bytes. An error of the application
is an answer that is not ok, its kind and message in arg2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ringpop_py.errors import ApplicationError, BodyError
from ringpop_py.values.packed import (
    a_bool,
    a_list,
    a_map,
    a_row,
    a_text,
    an_integer,
    decode_value,
    encode_value,
)

APPLICATION_SCHEME: Final = "raw"
PROXY_ERROR_PREFIX: Final = "ringpop.proxy."
"""Begins the kind of an error that the daemon itself met while it routed a client's request."""
RELAY_ENDPOINT: Final = "/proxy/relay"
"""Of the node itself: passes a call on to the member that arg2 names."""
KEY_CHARACTERS_MAX: Final = 1 << 16
CHECKSUM_MAX: Final = (1 << 64) - 1
ERROR_CHARACTERS_MAX: Final = 1 << 16
"""Of the kind and of the message of an error; what is longer is cut off where it is raised."""


@dataclass(frozen=True, slots=True)
class KeyspaceBelief:
    """That keys are those of a keyspace, and what the sender believes of their partitions.

    Attributes:
        epochs: of each key's partition: the latest epoch that the sender has heard of.
    """

    name: str
    generation: int
    epochs: tuple[int, ...]

    def as_row(self) -> list[object]:
        """What `of_row` reads."""
        return [self.name, self.generation, list(self.epochs)]

    @classmethod
    def of_row(cls, value: object, keys_count: int) -> KeyspaceBelief:
        """The belief about *keys_count* keys in *value*. Raises BodyError."""
        name, generation, listed = a_row(value, 3, "keyspace")[:3]
        epochs = tuple(an_integer(epoch, "epoch") for epoch in a_list(listed, "epochs"))
        if len(epochs) != keys_count:
            message = f"{len(epochs)} epochs for {keys_count} keys"
            raise BodyError(message)
        return cls(a_text(name, "keyspace"), an_integer(generation, "generation"), epochs)


class Head(NamedTuple):
    """What travels with a request for an owner.

    One is made for each call, at both ends: a tuple, which is made fastest.

    Attributes:
        keys: what the request is about; empty where a client calls a handler directly.
        ring_checksum: of the sender's ring.
        sender: the member that forwards, empty for a client.
        route: a client asks this node to find the owner. Never set on a forwarded call, so
            that none is forwarded twice.
        idempotent: only with *route*: the client says that it may run more than once.
        keyspace: whose keys they are; None where the ring owns them.
    """

    keys: tuple[str, ...] = ()
    ring_checksum: int | None = None
    sender: str = ""
    route: bool = False
    idempotent: bool = False
    keyspace: KeyspaceBelief | None = None

    def encode(self) -> bytes:
        """The head as bytes (a msgpack map; what is not said is left out)."""
        value: dict[str, object] = {}
        if self.keys:
            value["keys"] = self.keys
        if self.ring_checksum is not None:
            value["ring"] = self.ring_checksum
        if self.sender:
            value["sender"] = self.sender
        if self.route:
            value["route"] = True
        if self.idempotent:
            value["idempotent"] = True
        if self.keyspace is not None:
            value["keyspace"] = self.keyspace.as_row()
        return encode_value("msgpack", value) if value else b""

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """The head in *data*; no bytes are an empty one.

        Raises:
            BodyError: if *data* holds anything else.
        """
        if not data:
            return cls()
        value = a_map(decode_value("msgpack", data), "head")
        keys = a_list(value.get("keys"), "keys")
        ring = value.get("ring")
        keyspace = value.get("keyspace")
        return cls(
            tuple([a_text(key, "key", length_max=KEY_CHARACTERS_MAX) for key in keys]),
            None if ring is None else an_integer(ring, "ring", maximum=CHECKSUM_MAX),
            a_text(value.get("sender", ""), "sender"),
            a_bool(value.get("route", False), "route"),
            a_bool(value.get("idempotent", False), "idempotent"),
            None if keyspace is None else KeyspaceBelief.of_row(keyspace, len(keys)),
        )


def encode_error(kind: str, message: str) -> bytes:
    """An application's error as arg2 of an answer that is not ok."""
    return encode_value("msgpack", [kind[:ERROR_CHARACTERS_MAX], message[:ERROR_CHARACTERS_MAX]])


def decode_error(data: bytes) -> ApplicationError:
    """The application's error in arg2.

    Raises:
        BodyError: if *data* is not one.
    """
    row = a_row(decode_value("msgpack", data), 2, "error")
    kind, message = (a_text(text, "error", length_max=ERROR_CHARACTERS_MAX) for text in row[:2])
    return ApplicationError(kind, message)
