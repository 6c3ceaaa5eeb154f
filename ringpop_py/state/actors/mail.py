"""Messages to actors and their replies, encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from ringpop_py.base.arguments import checked_text
from ringpop_py.base.errors import ApplicationError, BadOperation, BodyError
from ringpop_py.base.faults import sendable, text_of
from ringpop_py.base.values.declared import Declared, Meta, Natural, Text, astuple, convert, encode
from ringpop_py.base.values.operation_ids import NO_DIGEST, digest_of, id_of
from ringpop_py.base.values.operations import (
    KEY_BYTES_MAX,
    Change,
    Key,
    OperationId,
    SourceName,
    check_text,
)
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.base.values.requests import ACTOR, ErrorText, KeyspaceRequest
from ringpop_py.state.table.aggregations import check_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.base.values.operations import Value
    from ringpop_py.base.values.requests import Placer
    from ringpop_py.state.placement.keys import Placing

ERROR_CHARACTERS_MAX: Final = 1 << 16
ASKERS_MAX: Final = 16
"""The most askers that travel with a message; those that began are forgotten first."""
AskerText = Annotated[str, Meta(max_length=1 << 13)]


class Mail(KeyspaceRequest, frozen=True):
    """A message to one actor.

    Attributes:
        kind: the name under which the actor's class was registered.
        id: a second message with the same id takes no effect.
        message: the message, packed.
        digest: of the actor and the message if the caller chose the id; empty otherwise.
        askers: the actors that wait for the answer, as `as_asker`; the first one began.
    """

    partition: Natural
    kind: Text
    key: Key
    source: SourceName
    sequence: Natural
    message: bytes
    digest: bytes = b""
    askers: tuple[AskerText, ...] = ()

    @property
    def actor(self) -> str:
        """The name of the actor among those of all keyspaces."""
        return f"{self.keyspace}/{self.stored_under}"

    @property
    def as_asker(self) -> str:
        """The actor and this message to it, as one that waits for an answer of another actor."""
        return f"{self.actor}#{self.source}/{self.sequence}"

    @property
    def id(self) -> OperationId:
        """The name of this message: a second one with the same name takes no effect."""
        return OperationId(self.source, self.sequence)

    @property
    def stored_under(self) -> str:
        """The key of the keyspace that holds the actor's record."""
        return stored_under(self.kind, self.key)

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return (self.partition,)

    def check(self, generation: int, placing: Placer) -> None:
        """See `KeyspaceRequest`. Raises BodyError, too, if the actor is in another partition."""
        super().check(generation, placing)
        number = placing.partition_of(self.stored_under)
        if self.partition != number:
            raise BodyError(f"actor {self.stored_under!r} is in partition {number}")

    def encode(self) -> bytes:
        """Encode the message as a body."""
        return encode(astuple(self))


def stored_under(kind: str, key: str) -> str:
    """Return the key that holds the record of an actor. The name of a kind has no slash in it.

    Raises:
        ConfigError: if *key* is not text.
    """
    return f"{kind}/{checked_text(key, 'the key of an actor')}"


def pack(value: Value) -> bytes:
    """Encode *value*. Raises BadOperation if it is not a value."""
    check_value(value)
    try:
        return encode_value("msgpack", value)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadOperation(f"the value cannot be stored: {type(error).__name__}: {error}") from None


def mail_of(
    keyspace: str,
    generation: int,
    placing: Placing,
    kind: str,
    key: str,
    message: Any,  # noqa: ANN401 - a value, which is checked here
    given: str | OperationId | None,
    new_id: Callable[[str], OperationId],
) -> Mail:
    """Return a message to the actor *key* of the class *kind*.

    Args:
        given: the id that the caller chose; otherwise it is a new one.

    Raises:
        ConfigError: *key* is not text, or *given* is no id.
        BadOperation: *message* is not a value, or *key* is too long.
    """
    change = Change(stored_under(kind, key), ACTOR, message)
    check_text(change.key, "the name of a class of actors and a key", KEY_BYTES_MAX)
    return Mail(
        keyspace,
        generation,
        placing.partition_of(change.key),
        kind,
        key,
        *(new_id(key) if given is None else id_of(given)),
        pack(message),
        NO_DIGEST if given is None else digest_of([change]),
    )


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

    def value(self) -> Any:  # noqa: ANN401 - as the actor has answered
        """Return the reply. Raises the ApplicationError of the actor."""
        if self.error is not None:
            raise ApplicationError(*self.error)
        return decode_value("msgpack", self.reply or b"")

    @classmethod
    def of_error(cls, error: BaseException) -> MailAnswered:
        """Return the answer for an *error* of an actor; its caller gets an `ApplicationError`."""
        if isinstance(error, ApplicationError):
            kind, message = error.kind, error.message
        else:
            kind, message = type(error).__name__, text_of(error)
        texts = [sendable(str(text)[:ERROR_CHARACTERS_MAX]) for text in (kind, message)]
        return cls(None, *texts)


@dataclass(frozen=True, slots=True)
class MailOf:
    """One message on its way; the result is a `MailAnswered`. See `WritesOf`."""

    mail: Mail
    endpoint = ACTOR
    changes_state = True

    def encode(self, _numbers: Sequence[int]) -> bytes:
        """Return the body."""
        return self.mail.encode()

    def decode(self, _number: int, result: Any) -> MailAnswered:  # noqa: ANN401 - as it came
        """Return the answer. Raises BodyError."""
        return convert(MailAnswered, result)
