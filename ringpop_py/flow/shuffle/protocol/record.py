"""The record of a shuffle: the one thing that its members agree on, as a value."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ringpop_py.base.values.declared import Checksum, Declared, Natural, Text, replace


class State(Enum):
    """The state of a shuffle. It never goes back to an earlier one."""

    PUT = "put"
    ENDING = "ending"
    GET = "get"
    DAMAGED = "damaged"
    DELETED = "deleted"

    @property
    def is_over(self) -> bool:
        """Whether no other state follows unless a client asks for it."""
        return self in (State.DAMAGED, State.DELETED)

    @property
    def is_settled(self) -> bool:
        """Whether it stays as it is until a client asks for something else."""
        return self not in (State.PUT, State.ENDING)


class MemberId(Declared, frozen=True, order=True):
    """One life of a process that holds bytes; members stand in the order of their ids.

    Attributes:
        host: the name of its node.
        incarnation: milliseconds; a life that begins with empty hands has a higher one.
    """

    host: Text
    incarnation: Natural

    def __str__(self) -> str:
        return f"{self.host}/{self.incarnation}"


STORE: Final = MemberId("~store", 0)
"""The holder of the second copy of each frame if that lies in a store. It is not a member: it is
never gone, and decides nothing."""


class Segment(Declared, frozen=True):
    """Frames that the same members hold.

    Attributes:
        primary: the member that takes frames of clients for it.
        holders: two at most; none if all that held it are gone. `STORE` may be one, the last.
        is_open: whether frames may still be added. A closed segment never opens again.
        copy_to: the member that fetches it, because it has one holder only.
    """

    primary: MemberId
    holders: tuple[MemberId, ...]
    is_open: bool
    copy_to: MemberId | None = None


class Interval(Declared, frozen=True):
    """Rows between two cuts.

    Attributes:
        holders: two at most; the first is the owner, the second its replica.
        rows, checksum: of its file, from GET on.
        fetched_by: the member that fetches it, to become its owner, or its replica if it has none.
    """

    holders: tuple[MemberId, ...]
    rows: Natural = 0
    checksum: Checksum = 0
    fetched_by: MemberId | None = None


class Winner(Declared, frozen=True):
    """An attempt whose rows count, as its receipt states it."""

    frames: Natural
    rows: Natural


class Batch(Declared, frozen=True):
    """The rows of a batch that was committed, to tell them from others under its number.

    Attributes:
        fingerprint: of all rows, in whichever order and attempts they come.
    """

    rows: Natural
    fingerprint: Natural


class Record(Declared, frozen=True):
    """What the members of one shuffle act on.

    Attributes:
        version: grows by one with each change, also when a shuffle is created again.
        uid: new whenever a shuffle of that name is created.
        definition: what its creator asked for; the protocol does not read it.
        interval_count: fixed at creation.
        is_stored: fixed at creation: whether frames are in the store, instead of at a replica.
        members: in order. The first one follows the last one.
        next_attempt: below it, numbers of attempts are taken.
        batches: by the name of a stream and their numbers, its batches that were committed.
        committed: the attempts of these batches; they count when the shuffle ends.
        segments: by number; a number is never used again.
        cuts: where intervals begin, written once, at the end of PUT; the protocol does not read it.
        winners: by number of attempt, written once, with the cuts.
        why: what is wrong with a shuffle that is damaged.
    """

    version: Natural
    uid: Natural
    state: State
    definition: bytes
    interval_count: Natural
    members: tuple[MemberId, ...]
    is_stored: bool = False
    next_attempt: Natural = 0
    next_segment: Natural = 0
    batches: dict[str, dict[Natural, Batch]] = {}  # noqa: RUF012
    committed: dict[int, Winner] = {}  # noqa: RUF012
    segments: dict[int, Segment] = {}  # noqa: RUF012 - msgspec copies an empty default
    cuts: bytes = b""
    winners: dict[int, Winner] = {}  # noqa: RUF012
    intervals: tuple[Interval, ...] = ()
    why: Text = ""

    def with_(self, **changes: object) -> Record:
        """Return the record with *changes*, under the next version."""
        return replace(self, version=self.version + 1, **changes)

    def seen(self, name: str) -> dict[str, object]:
        """Return how far the shuffle *name* is, as a `ringpop_py.node.sidecars.ShuffleSeen`."""
        readable = [each for each in self.intervals if each.holders]
        return {
            "name": name,
            "version": self.version,
            "state": self.state.value,
            "intervals": self.interval_count,
            "placed": len(readable) if self.state is State.GET else 0,
            "attempts": self.next_attempt,
            "rows": sum(each.rows for each in readable),
        }

    def next_of(self, member: MemberId) -> MemberId | None:
        """Return the member that follows the member *member* in the circle; None if it is alone."""
        if len(self.members) < 2:  # noqa: PLR2004 - two make a circle
            return None
        place = self.members.index(member)
        return self.members[(place + 1) % len(self.members)]

    def second_of(self, member: MemberId) -> MemberId | None:
        """Return the other holder of what *member* acknowledges; None if there is no other."""
        return STORE if self.is_stored else self.next_of(member)

    def open_segment_of(self, member: MemberId) -> int | None:
        """Return the number of the segment to which *member* adds frames, if it has one."""
        for number, segment in self.segments.items():
            if segment.is_open and segment.primary == member:
                return number
        return None
