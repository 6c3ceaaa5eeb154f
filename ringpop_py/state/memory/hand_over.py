"""The messages with which one node hands a partition in memory over to another."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, Final

from ringpop_py.base.values.declared import Meta, Natural, Text
from ringpop_py.base.values.requests import KeyspaceRequest
from ringpop_py.state.memory.mergeable import Content, Part, content_of

HAND_OVER: Final = "/keyspace/hand-over"
TRANSFER_CHARACTERS_MAX: Final = 64


class HandOverStep(Enum):
    """The steps of a transfer."""

    OFFER = "offer"
    """The giver asks whether the other node is willing to take the partition."""
    PART = "part"
    LAST = "last"
    """The last part: with it the taker owns the partition."""


class HandOverReply(Enum):
    """The taker's answer to a step."""

    YES = "yes"
    NOT_NOW = "not now"


BLANK: Final = Part([], [], {}, [])


class HandOver(KeyspaceRequest, frozen=True):
    """One step of a transfer.

    Attributes:
        row: the table's row of the partition, as *giver* knows it.
        leaving: whether the giver is about to leave. Then the taker accepts the partition even if,
            in its view, another member should own it: otherwise the copy would be lost.
        transfer: identifies this part of this transfer, so that a repeated part is merged once.
        copies: with the last part: the members that keep a copy for the giver.
    """

    number: Natural
    giver: Text
    leaving: bool
    row: list[Any]
    step: HandOverStep
    transfer: Annotated[str, Meta(max_length=TRANSFER_CHARACTERS_MAX)]
    entries: list[Any]
    sessions: list[Any]
    offsets: dict[str, bytes]
    digests: Sequence[Any] = ()
    copies: Sequence[Text] = ()

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return (self.number,)

    @property
    def content(self) -> Content:
        """The checked content of the part. Raises BodyError."""
        return content_of(self.entries, self.sessions, self.offsets, self.digests)
