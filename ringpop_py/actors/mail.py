"""Messages to actors and their replies, encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ringpop_py.errors import ApplicationError
from ringpop_py.values.operations import OperationId
from ringpop_py.values.packed import (
    a_row,
    a_text,
    an_integer,
    decode_value,
    encode_value,
    some_bytes,
)
from ringpop_py.values.requests import KEY_CHARACTERS_MAX, SEQUENCE_MAX, SOURCE_CHARACTERS_MAX

ACTOR: Final = "/keyspace/actor"
ERROR_CHARACTERS_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Mail:
    """A message to one actor.

    Attributes:
        kind: the name under which the actor's class was registered.
        id: a second message with the same id takes no effect.
        message: packed.
        digest: of the actor and the message if the caller chose the id; empty otherwise.
    """

    keyspace: str
    generation: int
    partition: int
    kind: str
    key: str
    id: OperationId
    message: bytes
    digest: bytes = b""

    @property
    def stored_under(self) -> str:
        """The key of the keyspace that holds the actor's record."""
        return stored_under(self.kind, self.key)

    def encode(self) -> bytes:
        """Return the message as a body."""
        head = [self.keyspace, self.generation, self.partition, self.kind, self.key]
        row = [*head, *self.id, self.message]
        return encode_value("msgpack", [*row, self.digest] if self.digest else row)

    @classmethod
    def decode(cls, body: bytes) -> Mail:
        """Decode the message in *body*. Raises BodyError."""
        row = a_row(decode_value("msgpack", body), 8, "mail")
        more = row[8:]
        return cls(
            a_text(row[0], "keyspace"),
            an_integer(row[1], "generation"),
            an_integer(row[2], "partition"),
            a_text(row[3], "kind"),
            a_text(row[4], "key", length_max=KEY_CHARACTERS_MAX),
            OperationId(
                a_text(row[5], "source", length_max=SOURCE_CHARACTERS_MAX),
                an_integer(row[6], "sequence", maximum=SEQUENCE_MAX),
            ),
            some_bytes(row[7], "message"),
            some_bytes(more[0], "digest") if more else b"",
        )


def stored_under(kind: str, key: str) -> str:
    """Return the key that holds the record of an actor. The name of a kind has no slash in it."""
    return f"{kind}/{key}"


@dataclass(frozen=True, slots=True)
class MailAnswered:
    """An actor's answer: a packed reply, or an error of its own."""

    reply: bytes = b""
    error: tuple[str, str] | None = None

    def as_row(self) -> list[Any]:
        """Return the row that `of_row` reads."""
        return [self.reply] if self.error is None else [None, *self.error]

    @classmethod
    def of_row(cls, value: object) -> MailAnswered:
        """Decode the answer in *value*. Raises BodyError."""
        row = a_row(value, 1, "answer")
        if row[0] is not None:
            return cls(some_bytes(row[0], "reply"))
        _, kind, message = a_row(row, 3, "error")[:3]
        length_max = ERROR_CHARACTERS_MAX
        return cls(
            error=(
                a_text(kind, "error", length_max=length_max),
                a_text(message, "error", length_max=length_max),
            )
        )

    @classmethod
    def of_error(cls, error: Exception) -> MailAnswered:
        """Return the answer for an *error* of an actor; its caller gets an `ApplicationError`."""
        if isinstance(error, ApplicationError):
            kind, message = error.kind, error.message
        else:
            kind, message = type(error).__name__, str(error)
        return cls(error=(kind[:ERROR_CHARACTERS_MAX], message[:ERROR_CHARACTERS_MAX]))
