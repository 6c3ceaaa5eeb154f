"""Which member should own a partition: pure functions of the members' names.

Each strategy strikes a different balance between few moves and even shares:

- ``balanced``: every member ranks every partition by a hash of the two. The best pairs come first,
  while the member has room. Shares differ by one at most, with hardly more moves than necessary.
  The default.
- ``ring``: the partition is hashed on a ring with *virtual_nodes* points a member. Exactly what a
  member gains or loses moves, at the price of uneven shares; more points make them more even.
- ``range``: neighbours stay together. Members own contiguous ranges, and most of the borders move
  with each member.
- ``round_robin``, ``average``: dealt out in turn. The owners are *recorded*: a change of members
  moves nothing until an operator has the partitions assigned anew. Then ``round_robin`` deals
  afresh, and ``average`` moves as few partitions as make the shares even.

Rules for this file: nothing here is random or remembered. So equal names give equal owners on every
node, whatever the order of the names.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Final

import numpy as np

from ringpop_py.base.errors import ConfigError, NoOwner
from ringpop_py.state.placement.definition import RING, VIRTUAL_NODES
from ringpop_py.state.placement.keys import PARTITIONS_MAX, hash_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return *names* once each, in the order in which a strategy deals or cuts ranges.

    They are ordered as text, but a number at the end counts as a number: ``w2`` comes before
    ``w10``.
    """
    # Any order is correct if it is the same on every node. But workers are mostly numbered, and
    # added at the end: as text, the eleventh would come after the second and shift the ranges of
    # all behind it.
    return tuple(sorted(dict.fromkeys(names), key=_by_number))


def _by_number(name: str) -> tuple[str, int, str, str]:
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :].lstrip("0")
    # By length and then as text: this is the order of the numbers, however long they are.
    return stem, len(digits), digits, name


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to choose owners.

    Attributes:
        recorded: whether owners are recorded and stay; otherwise they follow the members.
        place: returns for each of *count* partitions an index into the ordered names, given the
            present owners if they are known.
    """

    name: str
    recorded: bool
    place: Callable[[int, tuple[str, ...], Sequence[str] | None], Iterable[int]]


def strategy_named(name: str) -> Strategy:
    """Return the strategy *name*.

    Raises:
        ConfigError: if there is no such strategy.
    """
    found = STRATEGIES.get(name)
    if found is None:
        raise ConfigError(f"no strategy is called {name!r}; there are {', '.join(STRATEGIES)}")
    return found


def assign(
    strategy: str,
    partitions_count: int,
    members: Iterable[str],
    current: Sequence[str] | None = None,
    *,
    virtual_nodes: int = VIRTUAL_NODES,
) -> tuple[str, ...]:
    """Return the owner that each partition should have.

    Args:
        members: in any order; a name that occurs twice counts once.
        current: the present owner of each partition, or `NOBODY`. Only ``average`` uses it; owners
            that are not members lose their partitions.
        virtual_nodes: the points of a member. Only ``ring`` uses it.

    Raises:
        NoOwner: if there are no members.
        ConfigError: if no strategy has that name.
    """
    assert 0 < partitions_count <= PARTITIONS_MAX
    assert current is None or len(current) == partitions_count
    place = strategy_named(strategy).place
    names = in_order(members)
    if not names:
        raise NoOwner("no member is in the ring, so no partition can have an owner; start a member")
    if strategy == RING:
        return tuple(names[i] for i in _ring(partitions_count, names, current, virtual_nodes))
    return tuple(names[index] for index in place(partitions_count, names, current))


# -- balanced ------------------------------------------------------------------------------


def capped(
    partitions: Sequence[int], names: Sequence[str], held_counts: Sequence[int]
) -> list[int]:
    """Return for each of *partitions* an index into *names*: rendezvous hashing with even shares.

    All pairs of a partition and a member are taken by ascending score, while the partition is free
    and the member has room. Members that already hold more (*held_counts*) have room for less: the
    emptiest are filled up to one level, and the remainder goes, one each, to the members that come
    first. Time and memory grow with the number of pairs.
    """
    wanted = len(partitions)
    if not wanted:
        return []
    level = _level(held_counts, wanted)
    room = [max(0, level - held) for held in held_counts]
    extra = [held <= level for held in held_counts]  # whether it may go one above the level
    extras = wanted - sum(room)
    scores = _scores(partitions, names)
    # Equal scores (only a test makes them likely) go to the lower partition, then the first name.
    order = np.argsort(scores, axis=1, kind="stable")
    scores = np.take_along_axis(scores, order, axis=1)
    tries = [0] * wanted
    # The heap has the next pair of each partition, so its least is the least of all pairs left.
    heads = list(zip(scores[:, 0].tolist(), range(wanted), strict=True))
    heapify(heads)
    while heads:
        _, at = heads[0]
        member = int(order[at, tries[at]])
        if room[member]:
            room[member] -= 1
            heappop(heads)
        elif extras and extra[member]:
            extra[member] = False
            extras -= 1
            heappop(heads)
        else:
            tries[at] += 1
            heapreplace(heads, (int(scores[at, tries[at]]), at))
    return order[np.arange(wanted), tries].tolist()  # type: ignore[no-any-return] # NumPy says Any


def _level(held_counts: Sequence[int], wanted: int) -> int:
    """Return the highest level to which *wanted* more can fill all members that are below it."""
    levels = range(min(held_counts), max(held_counts) + wanted + 2)

    def needed(level: int) -> int:
        return sum(max(0, level - held) for held in held_counts)

    return levels[bisect_right(levels, wanted, key=needed) - 1]


def _scores(partitions: Sequence[int], names: Sequence[str]) -> NDArray[np.uint64]:
    """Return a score for each partition (row) and member (column): a hash of the two hashes."""
    of_partitions = _partition_hashes(max(partitions) + 1)[np.asarray(partitions)]
    of_names = np.fromiter(map(hash_text, names), np.uint64, len(names))
    mixed: NDArray[np.uint64] = of_partitions[:, np.newaxis] ^ of_names[np.newaxis, :]
    # The finalizer of SplitMix64: a difference of one bit changes half of all bits.
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@lru_cache(maxsize=16)
def _partition_hashes(count: int) -> NDArray[np.uint64]:
    names = (hash_text(f"partition-{partition}") for partition in range(count))
    hashes = np.fromiter(names, np.uint64, count)
    hashes.flags.writeable = False
    return hashes


def _balanced(count: int, names: tuple[str, ...], _current: Sequence[str] | None) -> Iterable[int]:
    return capped(range(count), names, [0] * len(names))


# -- ring and range ------------------------------------------------------------------------


def _ring(
    count: int,
    names: tuple[str, ...],
    _current: Sequence[str] | None,
    points_count: int = VIRTUAL_NODES,
) -> Iterable[int]:
    """Choose the member of the first point at or after the partition's hash, once around."""
    points = np.concatenate([_points(name, points_count) for name in names])
    order = np.argsort(points, kind="stable")  # of equal points, the first name's comes first
    after = points[order].searchsorted(_partition_hashes(count))
    found = order[after % len(points)] // points_count
    return found.tolist()  # type: ignore[no-any-return] # NumPy says Any


@lru_cache(maxsize=1024)
def _points(name: str, count: int) -> NDArray[np.uint64]:
    names = (hash_text(f"{name}-vnode-{point}") for point in range(count))
    points = np.fromiter(names, np.uint64, count)
    points.flags.writeable = False
    return points


def _range(count: int, names: tuple[str, ...], _current: Sequence[str] | None) -> Iterable[int]:
    return (partition * len(names) // count for partition in range(count))


# -- round robin and average ---------------------------------------------------------------


def _dealt(count: int, names: tuple[str, ...], _current: Sequence[str] | None) -> Iterable[int]:
    return (partition % len(names) for partition in range(count))


def _average(count: int, names: tuple[str, ...], current: Sequence[str] | None) -> Iterable[int]:
    """Move as few partitions as make the most and the least that a member owns differ by one."""
    if current is None:
        return _dealt(count, names, None)
    index_of = {name: index for index, name in enumerate(names)}
    placed = [index_of.get(owner, -1) for owner in current]
    held: list[list[int]] = [[] for _ in names]
    loose = [partition for partition, index in enumerate(placed) if index < 0]
    for partition, index in enumerate(placed):
        if index >= 0:
            held[index].append(partition)
    shares = _shares(count, [len(partitions) for partitions in held])
    for partitions, share in zip(held, shares, strict=True):
        loose += partitions[share:]
    emptiest = [
        (min(len(partitions), share), index)
        for index, (partitions, share) in enumerate(zip(held, shares, strict=True))
        if len(partitions) < share
    ]
    heapify(emptiest)
    for partition in loose:
        load, index = emptiest[0]
        placed[partition] = index
        if load + 1 < shares[index]:
            heapreplace(emptiest, (load + 1, index))
        else:
            heappop(emptiest)
    return placed


def _shares(count: int, held_counts: Sequence[int]) -> list[int]:
    """Return how many partitions each should own, so that as few as possible move.

    Some must own one more than the others. Of those that have one more already, the last keep it
    (the first give first, as in Fixed Partitions). The rest goes to the first, as in round robin.
    """
    floor, ceilings = divmod(count, len(held_counts))
    keepers = [index for index, held in enumerate(held_counts) if held > floor]
    others = [index for index, held in enumerate(held_counts) if held <= floor]
    shares = [floor] * len(held_counts)
    for index in [*reversed(keepers), *others][:ceilings]:
        shares[index] += 1
    return shares


STRATEGIES: Final = {
    strategy.name: strategy
    for strategy in (
        Strategy("balanced", recorded=False, place=_balanced),
        Strategy(RING, recorded=False, place=_ring),
        Strategy("range", recorded=False, place=_range),
        Strategy("round_robin", recorded=True, place=_dealt),
        Strategy("average", recorded=True, place=_average),
    )
}
