"""The states of a partition of a durable keyspace at one node, and their chart: data only.

A partition that a node wants or has is in one state, its `Presence`, and `CHART` has every
transition: who adds a state adds it there. While the node neither wants nor has it, there is no
record of it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Presence(Enum):
    """How far a partition is at a node, from when it is wanted there until it is not."""

    PENDING = "pending"  # it waits for an instant, or for news
    QUEUED = "queued"  # for a place among those that come at a time
    FOLLOWING = "being read"  # most of its log, while its owner still serves
    ASKING = "asked for"  # its owner is to release it
    ACQUIRING = "being acquired"  # this node reads the rest, and then claims it
    CHECKING = "being checked"  # it was claimed: is its keyspace still there?
    OWNED = "owned"
    RELEASING = "being released"
    RECLAIMING = "claimed again"  # after a fence
    UNWANTED = "given up"  # this node owns it, or claims it again, only to release it to nobody
    GONE = "gone"


_P: Final = Presence
CHART: Final[Mapping[tuple[Presence, Presence], str]] = {
    (_P.PENDING, _P.QUEUED): "its time has come, or there is news of it",
    (_P.PENDING, _P.GONE): "it is not wanted any more",
    (_P.QUEUED, _P.FOLLOWING): "it has a place, and its owner is there",
    (_P.QUEUED, _P.ACQUIRING): "it has a place, and there is no owner",
    (_P.QUEUED, _P.GONE): "it is not wanted any more",
    (_P.FOLLOWING, _P.ASKING): "its log was read up to its present end",
    (_P.FOLLOWING, _P.PENDING): "the log could not be read",
    (_P.ASKING, _P.ACQUIRING): "its owner has released it, or does not have it, or has left",
    (_P.ASKING, _P.PENDING): "not yet",
    (_P.ACQUIRING, _P.CHECKING): "the journal holds it",
    (_P.ACQUIRING, _P.PENDING): "another node has it, or it could not be read or claimed",
    (_P.CHECKING, _P.OWNED): "the keyspace is there",
    (_P.CHECKING, _P.RECLAIMING): "the journal was sealed",
    (_P.CHECKING, _P.UNWANTED): "the keyspace was dropped, or another node has claimed it",
    (_P.OWNED, _P.RELEASING): "another member should have it, or this one leaves",
    (_P.OWNED, _P.RECLAIMING): "the journal was sealed",
    (_P.OWNED, _P.UNWANTED): "another node has claimed it, or its state here has failed",
    (_P.RELEASING, _P.OWNED): "the release was refused",
    (_P.RELEASING, _P.RECLAIMING): "the journal was sealed; the release waits",
    (_P.RELEASING, _P.UNWANTED): "another node has claimed it, or its state here has failed",
    (_P.RELEASING, _P.GONE): "it was released, or another node has it",
    (_P.RECLAIMING, _P.CHECKING): "the next journal holds it",
    (_P.RECLAIMING, _P.OWNED): "the next journal holds it",
    (_P.RECLAIMING, _P.UNWANTED): "another node has claimed it, or the keyspace was dropped",
    (_P.UNWANTED, _P.GONE): "it was released, or another node has it",
} | {
    (there, _P.GONE): "another node has it, or this one can write no more"
    for there in (_P.CHECKING, _P.OWNED, _P.RECLAIMING)
}
"""Each transition, with what leads to it. There are no others: that would be a bug."""

COMING: Final = (_P.PENDING, _P.QUEUED, _P.FOLLOWING, _P.ASKING, _P.ACQUIRING)
"""The states in which a recovery works on a partition; in the later ones the journal has it."""
SERVED: Final = (_P.OWNED, _P.RELEASING)
HERE: Final = (_P.OWNED, _P.RELEASING, _P.RECLAIMING)
LEAVING: Final = (_P.RELEASING, _P.RECLAIMING)
GIVEN_UP: Final = (_P.UNWANTED, _P.GONE)
