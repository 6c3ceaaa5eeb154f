"""What nodes say to each other when one hands a partition in memory over to another."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, Final

from ringpop_py.keyed.mergeable import Content, Part, content_of
from ringpop_py.values.declared import Meta, Natural, Text
from ringpop_py.values.requests import KeyspaceRequest

HAND_OVER: Final = "/keyspace/hand-over"
TRANSFER_CHARACTERS_MAX: Final = 64


class HandOverStep(Enum):
    """How far a transfer is."""

    OFFER = "offer"
    """Will you take it?"""
    PART = "part"
    LAST = "last"
    """The last part: from now on it is yours."""


class Said(Enum):
    """The answer."""

    YES = "yes"
    NOT_NOW = "not now"


BLANK: Final = Part([], [], {}, [])


class HandOver(KeyspaceRequest, frozen=True):
    """One step of a transfer.

    Attributes:
        row: of the table, as *giver* knows it (`Table` takes it in).
        leaving: the giver is about to leave, so it matters little who should own the partition in
            the view of whoever is asked.
        transfer: names this part of this transfer.
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

    @property
    def content(self) -> Content:
        """The content of the part, a `Part` without that. Raises BodyError."""
        return content_of(self.entries, self.sessions, self.offsets, self.digests)
