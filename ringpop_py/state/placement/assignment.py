"""Which member should own a partition now, and which moves lead from one assignment to another.

Rules for this file: values in, values out. Other modules record assignments and carry out moves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from ringpop_py.base.errors import BodyError, NoOwner, NotEnoughMembers
from ringpop_py.base.values.declared import Declared, Meta, Natural, Text, decode, encode
from ringpop_py.base.values.packed import INTEGER_MAX
from ringpop_py.state.placement.keys import NOBODY
from ringpop_py.state.placement.strategies import assign, capped, in_order, strategy_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ringpop_py.state.placement.definition import Definition

NAMED_MAX: Final = 10
"""An error names at most this many members."""
_FIRST: Final = 1 << 40
"""A bonus that exceeds any difference of loads, and so puts a move before all others."""
_NEVER: Final = -(1 << 62)
"""Marks a move that was chosen already: no other move is worse."""


# -- what was recorded ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """Owners as they were recorded.

    Attributes:
        version: counts the assignments of a keyspace's generation, from 1.
        owners: the owner of each partition; never `NOBODY`.
    """

    version: int
    owners: tuple[str, ...]

    def encode(self) -> bytes:
        """Encode the assignment as a value in the store; each name occurs once."""
        names = list(dict.fromkeys(self.owners))  # ordered by partition, unlike a set
        index_of = {name: index for index, name in enumerate(names)}
        return encode([self.version, names, [index_of[owner] for owner in self.owners]])


class _Recorded(Declared, frozen=True):
    version: Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
    names: tuple[Annotated[Text, Meta(min_length=1)], ...]
    indexes: tuple[Natural, ...]


def decode_assignment(value: bytes, partitions_count: int) -> Assignment:
    """Decode an assignment that `Assignment.encode` encoded.

    Raises:
        BodyError: if *value* is not an assignment of *partitions_count* partitions.
    """
    found = decode(_Recorded, value)
    if len(found.indexes) != partitions_count or max(found.indexes) >= len(found.names):
        raise BodyError(
            f"an assignment has {partitions_count} indexes into its {len(found.names)} names;"
            " this one does not"
        )
    return Assignment(found.version, tuple([found.names[index] for index in found.indexes]))


# -- who should own what now ---------------------------------------------------------------


def effective_owners(assignment: Assignment, members: Iterable[str]) -> tuple[str, ...]:
    """Return the member that should own each partition while *members* are in the ring.

    A partition stays with its recorded owner while that one is a member. The others go to members
    by rendezvous hashing, the members with the fewest first; they go back as soon as their recorded
    owner returns. The same members give the same owners on every node.

    Raises:
        NoOwner: if there are no members.
    """
    names = in_order(members)
    if not names:
        raise NoOwner("no member is in the ring, so no partition can have an owner; start a member")
    present = frozenset(names)
    owners = list(assignment.owners)
    homeless = [partition for partition, owner in enumerate(owners) if owner not in present]
    held = Counter(owner for owner in owners if owner in present)
    successors = capped(homeless, names, [held[name] for name in names])
    for partition, index in zip(homeless, successors, strict=True):
        owners[partition] = names[index]
    return tuple(owners)


def check_cluster_size(members: Sequence[str], members_min: int, *, assigned: bool) -> None:
    """Check that there are enough *members* to assign partitions to.

    Args:
        assigned: whether partitions were assigned before. If so they stay assigned, however few
            members are left: a cluster that shrank serves with what it has.

    Raises:
        NotEnoughMembers: if the first assignment has to wait.
    """
    # Without this, the first member to arrive would own everything, and move most of it away a
    # moment later.
    if assigned or len(members) >= members_min:
        return
    named = ", ".join(sorted(members)[:NAMED_MAX]) or "none"
    raise NotEnoughMembers(
        f"no partition was assigned yet: {len(members)} of the {members_min} members that the "
        f"keyspace waits for (min_cluster_size) are here: {named}"
        f"{', …' if len(members) > NAMED_MAX else ''}. Start {members_min - len(members)} more, or "
        "lower it: ringpopctl keyspace set"
    )


class Assignments:
    """Which member should own which partition of one keyspace: by its members, or by a record.

    If a strategy uses only the members, and partitions may move automatically, no record is needed.
    Otherwise one node records an assignment, and all nodes follow it.

    Attributes:
        newest: the newest recorded assignment that this node knows.
        recorded: whether owners follow the assignments in the store, not the members.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self._count = definition.partitions
        strategy = strategy_named(definition.strategy)
        self.recorded = strategy.recorded or not definition.automatic
        self.newest: Assignment | None = None

    def learn(self, assignment: Assignment) -> bool:
        """Use *assignment*, which another node knew, if it is newer; return whether it is."""
        # Reads of the store may end out of order.
        if self.newest is not None and assignment.version <= self.newest.version:
            return False
        self.newest = assignment
        return True

    def owners(self, members: Sequence[str], *, assigned: bool) -> tuple[str, ...] | None:
        """Return the owner of each partition among *members*; None if it must be recorded first.

        Args:
            assigned: whether partitions were assigned before; a record says so, too.

        Raises:
            NoOwner: if there are no members.
            NotEnoughMembers: if there are too few for a first assignment.
        """
        assigned = assigned or self.newest is not None
        check_cluster_size(members, self.definition.min_cluster_size, assigned=assigned)
        if not self.recorded:
            return placed(self.definition, members)
        return effective_owners(self.newest, members) if self.newest is not None else None

    def wanted(self, members: Sequence[str]) -> Assignment | None:
        """Return the assignment to record now without an order; None if no record is needed.

        Recorded without an order are the first assignment, one with the successors of members that
        are gone, and, if partitions move automatically, a new one when members have joined.
        """
        if not self.recorded or not members:
            return None
        if self.newest is None:
            return Assignment(1, placed(self.definition, members))
        # Successors are recorded, too: otherwise members that return would get all partitions back.
        owners = effective_owners(self.newest, members)
        if self.definition.automatic:
            owners = self.target(members, owners)
        if owners == self.newest.owners:
            return None
        return Assignment(self.newest.version + 1, owners)

    def target(self, members: Sequence[str], current: Sequence[str]) -> tuple[str, ...]:
        """Return the owners to which a rebalance from *current* owners should lead."""
        definition = self.definition
        if definition.strategy == "round_robin":
            # It is only for the first time: later it would move many partitions for no gain.
            definition = replace(definition, strategy="average")
        return placed(definition, members, current)


def placed(
    definition: Definition, members: Iterable[str], current: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the owner that each partition should have, as `assign` does for that keyspace."""
    virtual_nodes = definition.virtual_nodes
    count = definition.partitions
    return assign(definition.strategy, count, members, current, virtual_nodes=virtual_nodes)


def backups_of(definition: Definition, members: Iterable[str], owner: str) -> list[tuple[str, ...]]:
    """Return for each partition the members that keep copies of it, if *owner* owns it.

    The first is the member that would own it without *owner*, and so has it already then.
    """
    others = in_order(name for name in members if name != owner)
    count = min(definition.copies - 1, len(others))
    if not count:
        return [()] * definition.partitions
    at = {name: index for index, name in enumerate(others)}
    return [
        tuple(others[(at[first] + step) % len(others)] for step in range(count))
        for first in placed(definition, others)
    ]


# -- from one to another -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """*partition* is to move to *target*; *source* is `NOBODY` if no member owned it."""

    partition: int
    source: str
    target: str

    def __str__(self) -> str:
        return f"partition {self.partition}: {self.source or 'nobody'} -> {self.target}"


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Moves, the most useful first, so that even a plan that stops halfway has helped.

    Attributes:
        before: how many partitions each member owns, in the order of names.
        after: the same after these moves.
        left_count: further moves toward the target, beyond the limit.
        owners: the owner of each partition after these moves.
        note: what becomes of the plan, for people; empty if there is nothing to say.
    """

    moves: tuple[Move, ...]
    before: dict[str, int]
    after: dict[str, int]
    left_count: int
    owners: tuple[str, ...]
    note: str = ""

    def lines(self) -> list[str]:
        """Return the plan for people: what moves, each member's counts before and after, a note."""
        left = f" ({self.left_count} more would follow)" if self.left_count else ""
        head = f"{len(self.moves)} of {len(self.owners)} partitions move{left}"
        counts = (f"{name}: {self.before[name]} -> {self.after[name]}" for name in self.before)
        note = [self.note] if self.note else []
        return [head, *map(str, self.moves), *counts, *note]


def plan_moves(
    current: Sequence[str], target: Sequence[str], *, max_moves: int | None = None
) -> MovePlan:
    """Return the moves from *current* owners (`NOBODY` for no owner) to those of *target*.

    First come partitions without an owner, and those whose owner has none in the target. Then, in
    each step, a partition moves from the fullest member to the emptiest.

    Args:
        max_moves: the most moves that are made. A cut never leaves the shares less even than they
            are both now and in the target. So moves that only make sense together with others
            behind the cut (two members that exchange partitions) are left out with them.
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
        # Cut before the limit rather than between two moves that only even out together.
        worst = max(spreads[urgent_count], spreads[-1])
        fitting = range(max_moves, urgent_count, -1)
        kept = next((count for count in fitting if spreads[count] <= worst), urgent_count)
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


def _most_useful_first(
    moves: list[Move], current: Sequence[str], target: Sequence[str]
) -> tuple[list[Move], list[int], int]:
    """Return the moves in order, the spreads of loads, and how many of the first are urgent.

    The spreads are those after no move, after one, after two …
    """
    names = in_order([*target, *current])
    index_of = {name: index for index, name in enumerate(names)}
    loads = np.zeros(len(names), np.int64)
    for owner in current:
        loads[index_of[owner]] += 1
    staying = np.array([index_of[name] for name in in_order(target)], np.int64)
    # Only members of the target count for the spread: the others are on their way out.
    sources = np.array([index_of[move.source] for move in moves], np.int64)
    targets = np.array([index_of[move.target] for move in moves], np.int64)
    bonus = np.where(np.isin(sources, staying), 0, _FIRST)
    urgent_count = int(np.count_nonzero(bonus))
    ordered = []
    spreads = [_spread(loads, staying)]
    for _ in moves:
        at = int(np.argmax(loads[sources] - loads[targets] + bonus))  # the first of equal ones
        bonus[at] = _NEVER
        loads[sources[at]] -= 1
        loads[targets[at]] += 1
        ordered.append(moves[at])
        spreads.append(_spread(loads, staying))
    return ordered, spreads, urgent_count


def _spread(loads: NDArray[np.int64], staying: NDArray[np.int64]) -> int:
    return int(np.ptp(loads[staying])) if len(staying) else 0  # the most minus the least
