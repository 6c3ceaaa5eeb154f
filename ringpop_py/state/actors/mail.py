"""Messages to actors and their replies, encoded."""

from __future__ import annotations

from typing import Any, Final

from ringpop_py.base.arguments import checked_text
from ringpop_py.base.errors import ApplicationError
from ringpop_py.base.faults import sendable, text_of
from ringpop_py.base.values.declared import Declared, Natural, Text, astuple, encode
from ringpop_py.base.values.operations import Key, OperationId, SourceName
from ringpop_py.base.values.requests import ErrorText, KeyspaceRequest

ACTOR: Final = "/keyspace/actor"
ERROR_CHARACTERS_MAX: Final = 1 << 16


class Mail(KeyspaceRequest, frozen=True):
    """A message to one actor.

    Attributes:
        kind: the name under which the actor's class was registered.
        id: a second message with the same id takes no effect.
        message: the message, packed.
        digest: of the actor and the message if the caller chose the id; empty otherwise.
    """

    partition: Natural
    kind: Text
    key: Key
    source: SourceName
    sequence: Natural
    message: bytes
    digest: bytes = b""

    @property
    def id(self) -> OperationId:
        """The name of this message: a second one with the same name takes no effect."""
        return OperationId(self.source, self.sequence)

    @property
    def stored_under(self) -> str:
        """The key of the keyspace that holds the actor's record."""
        return stored_under(self.kind, self.key)

    def encode(self) -> bytes:
        """Encode the message as a body."""
        return encode(astuple(self))


def stored_under(kind: str, key: str) -> str:
    """Return the key that holds the record of an actor. The name of a kind has no slash in it.

    Raises:
        ConfigError: if *key* is not text.
    """
    return f"{kind}/{checked_text(key, 'the key of an actor')}"


class MailAnswered(Declared, frozen=True):
    """The answer of an actor: a packed reply, or an error of its own in place of it."""

    reply: bytes | None
    error_kind: ErrorText | None = None
    error_message: ErrorText | None = None

    def __post_init__(self) -> None:
        if self.reply is None and self.error is None:
            raise ValueError("an answer has a reply or an error")

    @property
    def error(self) -> tuple[str, str] | None:
        """The kind of the error, and its message."""
        if self.reply is not None or self.error_kind is None or self.error_message is None:
            return None
        return self.error_kind, self.error_message

    def as_row(self) -> list[Any]:
        """Return the row to send, without the fields that say nothing."""
        return [self.reply] if self.error is None else [None, *self.error]

    @classmethod
    def of_error(cls, error: BaseException) -> MailAnswered:
        """Return the answer for an *error* of an actor; its caller gets an `ApplicationError`."""
        if isinstance(error, ApplicationError):
            kind, message = error.kind, error.message
        else:
            kind, message = type(error).__name__, text_of(error)
        texts = [sendable(str(text)[:ERROR_CHARACTERS_MAX]) for text in (kind, message)]
        return cls(None, *texts)
