"""Who should own a partition now, and which moves lead from one assignment to another.

Rules for this file: values in, values out. Who records an assignment, and who carries moves out,
is elsewhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from ringpop_py.errors import BodyError, NoOwner, NotEnoughMembers
from ringpop_py.placing.keys import NOBODY
from ringpop_py.placing.strategies import capped, in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

NAME_CHARACTERS_MAX: Final = 4_096
VERSION_MAX: Final = (1 << 63) - 1
NAMED_MAX: Final = 10
"""So many members are named in an error at most."""
_FIRST: Final = 1 << 40
"""More than any difference of loads."""
_NEVER: Final = -(1 << 62)


# -- what was recorded ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """Owners as somebody had them assigned.

    Attributes:
        version: counts up with each assignment of a keyspace's generation, from 1.
        owners: of each partition; never `NOBODY`.
    """

    version: int
    owners: tuple[str, ...]

    def to_plain(self) -> list[Any]:
        """As lists, numbers and text: each name once."""
        names = list(dict.fromkeys(self.owners))
        index_of = {name: index for index, name in enumerate(names)}
        return [self.version, names, [index_of[owner] for owner in self.owners]]


def assignment_from_plain(value: object, partitions_count: int) -> Assignment:
    """The assignment that was made plain.

    Raises:
        BodyError: *value* is none, or one of another number of partitions.
    """
    match value:
        case [version, [*names], [*indexes], *_] if len(indexes) == partitions_count:
            pass
        case _:
            message = f"an assignment should be a version, names, and {partitions_count} indexes"
            raise BodyError(message)
    if type(version) is not int or not 0 < version <= VERSION_MAX:
        message = "an assignment's version should be a whole number above 0"
        raise BodyError(message)
    if not all(_is_name(name) for name in names):
        message = "an assignment's names should be texts, none of them empty or very long"
        raise BodyError(message)
    owners = [names[index] for index in indexes if type(index) is int and 0 <= index < len(names)]
    if len(owners) != partitions_count:
        message = "an assignment's owners should be places in its list of names"
        raise BodyError(message)
    return Assignment(version, cast(tuple[str, ...], tuple(owners)))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_CHARACTERS_MAX


# -- who should own what now ---------------------------------------------------------------


def effective_owners(assignment: Assignment, members: Iterable[str]) -> tuple[str, ...]:
    """Who should own each partition while *members* are in the ring.

    Whose recorded owner is a member stays with it. The others fall to members by rendezvous, the
    emptiest filled up first; they return as soon as their recorded owner does. Equal members give
    equal owners on every node.

    Raises:
        NoOwner: there are no members.
    """
    names = in_order(members)
    if not names:
        message = "no member is in the ring, so nobody can own a partition"
        raise NoOwner(message)
    present = frozenset(names)
    owners = list(assignment.owners)
    homeless = [partition for partition, owner in enumerate(owners) if owner not in present]
    held = Counter(owner for owner in owners if owner in present)
    for partition, index in zip(
        homeless, capped(homeless, names, [held[name] for name in names]), strict=True
    ):
        owners[partition] = names[index]
    return tuple(owners)


def effective_owner(assignment: Assignment, members: Iterable[str], partition: int) -> str:
    """As `effective_owners`, of one partition; no cheaper unless its recorded owner is a member.

    Raises:
        NoOwner: there are no members.
    """
    names = tuple(members)
    recorded = assignment.owners[partition]
    return recorded if recorded in names else effective_owners(assignment, names)[partition]


def check_cluster_size(members: Sequence[str], members_min: int, *, assigned: bool) -> None:
    """Check that there are enough *members* to assign partitions to.

    Args:
        members: their names.
        assigned: partitions were before. Then they stay assigned, however few members are left: a
            cluster that shrank serves with what it has.

    Raises:
        NotEnoughMembers: the first assignment has to wait, else the first member to arrive would
            own everything, and move most of it away again a moment later.
    """
    if assigned or len(members) >= members_min:
        return
    named = ", ".join(sorted(members)[:NAMED_MAX]) or "none"
    message = (
        f"no partition was assigned yet: {len(members)} of the {members_min} members that the "
        f"keyspace waits for (min_cluster_size) are here: {named}"
        f"{', …' if len(members) > NAMED_MAX else ''}. Start {members_min - len(members)} more"
    )
    raise NotEnoughMembers(message)


# -- from one to another -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """*partition* is to go to *target*; *source* is `NOBODY` where none owned it."""

    partition: int
    source: str
    target: str

    def __str__(self) -> str:
        return f"partition {self.partition}: {self.source or 'nobody'} -> {self.target}"


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Moves in the order in which they help most, so that a plan that stops halfway has helped.

    Attributes:
        before: how many partitions each member owns, in order of names.
        after: the same once these moves are made.
        left_count: further moves that lead to the target, but did not fit in.
        owners: of each partition once these moves are made.
        note: for people: what becomes of the plan; empty if there is nothing to say.
    """

    moves: tuple[Move, ...]
    before: dict[str, int]
    after: dict[str, int]
    left_count: int
    owners: tuple[str, ...]
    note: str = ""

    def lines(self) -> list[str]:
        """The plan for people: what moves, what each member has before and after, the note."""
        left = f" ({self.left_count} more would follow)" if self.left_count else ""
        head = f"{len(self.moves)} of {len(self.owners)} partitions move{left}"
        counts = (f"{name}: {self.before[name]} -> {self.after[name]}" for name in self.before)
        note = [self.note] if self.note else []
        return [head, *map(str, self.moves), *counts, *note]


def plan_moves(
    current: Sequence[str], target: Sequence[str], *, max_moves: int | None = None
) -> MovePlan:
    """The moves from *current* owners (`NOBODY` where there is none) to those of *target*.

    First come partitions that nobody owns, or somebody who owns none in the target; then the
    fullest member is relieved in favour of the emptiest, again and again.

    Args:
        max_moves: make no more than these. A cut never leaves shares less even than they are both
            at the outset and in the target: moves that only make sense with others behind the cut
            (two that exchange partitions) are left out with them.
    """
    assert len(current) == len(target)
    assert NOBODY not in target
    assert max_moves is None or max_moves >= 0
    wanted = [
        Move(partition, source, to)
        for partition, (source, to) in enumerate(zip(current, target, strict=True))
        if source != to
    ]
    ordered, spreads, urgent_count = _most_useful_first(wanted, current, target)
    if max_moves is None or max_moves >= len(ordered):
        kept = len(ordered)
    elif max_moves <= urgent_count:
        kept = max_moves
    else:
        worst = max(spreads[urgent_count], spreads[-1])
        fitting = range(max_moves, urgent_count, -1)
        kept = next((count for count in fitting if spreads[count] <= worst), urgent_count)
    return _plan_of(current, target, ordered, kept)


def _most_useful_first(
    moves: list[Move], current: Sequence[str], target: Sequence[str]
) -> tuple[list[Move], list[int], int]:
    """The moves in order, and how many of the first are urgent.

    Between them the spread of loads after none of the moves, after one, after two …
    """
    names = in_order([*target, *current])
    index_of = {name: index for index, name in enumerate(names)}
    loads = np.zeros(len(names), np.int64)
    for owner in current:
        loads[index_of[owner]] += 1
    staying = np.array([index_of[name] for name in in_order(target)], np.int64)
    sources = np.array([index_of[move.source] for move in moves], np.int64)
    targets = np.array([index_of[move.target] for move in moves], np.int64)
    bonus = np.where(np.isin(sources, staying), 0, _FIRST)
    urgent_count = int(np.count_nonzero(bonus))
    ordered = []
    spreads = [_spread(loads, staying)]
    for _ in moves:
        at = int(np.argmax(loads[sources] - loads[targets] + bonus))  # of equals, the first
        bonus[at] = _NEVER
        loads[sources[at]] -= 1
        loads[targets[at]] += 1
        ordered.append(moves[at])
        spreads.append(_spread(loads, staying))
    return ordered, spreads, urgent_count


def _spread(loads: NDArray[np.int64], staying: NDArray[np.int64]) -> int:
    return int(np.ptp(loads[staying])) if len(staying) else 0


def _plan_of(
    current: Sequence[str], target: Sequence[str], ordered: Sequence[Move], kept: int
) -> MovePlan:
    owners = list(current)
    for move in ordered[:kept]:
        owners[move.partition] = move.target
    names = [name for name in in_order([*current, *target]) if name != NOBODY]
    loads_before, loads_after = Counter(current), Counter(owners)
    return MovePlan(
        moves=tuple(ordered[:kept]),
        before={name: loads_before[name] for name in names},
        after={name: loads_after[name] for name in names},
        left_count=len(ordered) - kept,
        owners=tuple(owners),
    )
