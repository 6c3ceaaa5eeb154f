"""What nodes say to each other when one hands a partition in memory over to another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ringpop_py.errors import BodyError
from ringpop_py.keyed.mergeable import Content, Part, content_of
from ringpop_py.values.packed import (
    a_bool,
    a_list,
    a_row,
    a_text,
    an_integer,
    decode_value,
    encode_value,
)

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


@dataclass(frozen=True, slots=True)
class HandOver:
    """One step of a transfer.

    Attributes:
        row: of the table, as *giver* knows it (`Table` takes it in).
        leaving: the giver is about to leave, so it matters little who should own the partition in
            the view of whoever is asked.
        transfer: names this part of this transfer.
    """

    keyspace: str
    generation: int
    number: int
    giver: str
    row: list[Any]
    step: HandOverStep
    leaving: bool
    transfer: str
    content: Content


_BLANK: Final = Part([], [], {}, [])


def encode(
    keyspace: tuple[str, int],
    number: int,
    giver: tuple[str, bool],
    row: list[Any],
    step: HandOverStep,
    transfer: str = "",
    part: Part = _BLANK,
) -> bytes:
    """A step as a body. *giver* is its name and whether it is leaving."""
    return encode_value("msgpack", [*keyspace, number, *giver, row, step.value, transfer, *part])


def decode(body: bytes) -> HandOver:
    """The step in *body*. Raises BodyError."""
    row = a_row(decode_value("msgpack", body), 11, "step of a transfer")
    name, generation, number, giver, leaving, rows, step, transfer, *part = row[:12]
    try:
        which = HandOverStep(step)
    except ValueError:
        message = f"{step!r} is no step of a transfer"
        raise BodyError(message) from None
    return HandOver(
        a_text(name, "keyspace"),
        an_integer(generation, "generation"),
        an_integer(number, "partition"),
        a_text(giver, "giver"),
        a_list(rows, "row"),
        which,
        a_bool(leaving, "leaving"),
        a_text(transfer, "transfer", length_max=TRANSFER_CHARACTERS_MAX),
        content_of(*part),
    )
