"""Which member should own a partition: pure functions of who the members are.

Each strategy is another bargain between few moves and even shares:

- ``balanced``: every member ranks every partition by a hash of the two, and the best pairs come
  first, as long as the member has room. Shares differ by one at most, and hardly more moves than
  must. The default.
- ``ring``: the partition is hashed on a ring with 128 points a member. What moves is exactly what
  a member gains or loses, at the price of uneven shares.
- ``range``: neighbours stay together. Members own contiguous ranges, and most of the borders move
  with each member.
- ``round_robin``, ``average``: dealt out in turn. They are not followed but *recorded*: a change of
  members moves nothing until somebody has it assigned anew. Then ``round_robin`` deals afresh, and
  ``average`` moves as few partitions as make the shares even.

Rules for this file: nothing here is random or remembered, so that equal names give equal owners on
every node, in whatever order they are told.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from ringpop_py.dialect import HASH_SEED
from ringpop_py.errors import ConfigError, NoOwner
from ringpop_py.placing.keys import NOBODY as NOBODY
from ringpop_py.placing.keys import PARTITIONS_MAX, hash_text
from ringpop_py.placing.keys import partition_of as partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

RING_POINTS_COUNT: Final = 128


def partitions_of(keys: Sequence[str], count: int) -> NDArray[np.int64]:
    """The partition of each key."""
    try:
        hashes = (xxhash.xxh64_intdigest(key.encode(), HASH_SEED) for key in keys)
        hashed = np.fromiter(hashes, np.uint64, len(keys))
    except UnicodeEncodeError:
        hashed = np.fromiter(map(hash_text, keys), np.uint64, len(keys))
    return hashed.view(np.int64) % np.int64(count)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """*names* once each, in the order that counts where a strategy deals or cuts ranges.

    As text, but a number at the end counts as one: ``w2`` before ``w10``. Workers are mostly
    numbered, and added at the end; as text the eleventh would step in after the second and push
    the ranges of all behind it aside. Any order would do, if only it is the same everywhere.
    """
    return tuple(sorted(dict.fromkeys(names), key=_by_number))


def _by_number(name: str) -> tuple[str, int, str, str]:
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :].lstrip("0")
    # By its length and then as text: equal to the order of the numbers, however long they are.
    return stem, len(digits), digits, name


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to choose owners.

    Attributes:
        recorded: owners are as somebody had them assigned, and stay; else they follow the members.
        place: for each of *count* partitions an index into the ordered names, given the owners
            until now, where anybody knows them.
    """

    name: str
    recorded: bool
    place: Callable[[int, tuple[str, ...], Sequence[str] | None], Iterable[int]]


def strategy_named(name: str) -> Strategy:
    """The strategy of that name.

    Raises:
        ConfigError: there is none.
    """
    found = STRATEGIES.get(name)
    if found is None:
        message = f"no strategy is called {name!r}; there are {', '.join(STRATEGIES)}"
        raise ConfigError(message)
    return found


def assign(
    strategy: Strategy | str,
    partitions_count: int,
    members: Iterable[str],
    current: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """The owner that each partition should have.

    Args:
        members: in any order; one named twice counts once.
        current: who owns each partition now, `NOBODY` where none does. Only ``average`` looks at
            it; owners that are no members lose what they have.

    Raises:
        NoOwner: there are no members.
        ConfigError: no strategy has that name.
    """
    assert 0 < partitions_count <= PARTITIONS_MAX
    assert current is None or len(current) == partitions_count
    found = strategy_named(strategy) if isinstance(strategy, str) else strategy
    names = in_order(members)
    if not names:
        message = "no member is in the ring, so nobody can own a partition"
        raise NoOwner(message)
    return tuple(names[index] for index in found.place(partitions_count, names, current))


# -- balanced ------------------------------------------------------------------------------


def capped(
    partitions: Sequence[int], names: Sequence[str], held_counts: Sequence[int]
) -> list[int]:
    """For each of *partitions* an index into *names*, by rendezvous with even shares.

    All pairs of a partition and a member are taken by ascending score, as long as the partition
    is free and the member has room. Members that hold more already (*held_counts*) have room for
    less: the emptiest are filled up to one level, and the remainder goes one each to whom it comes
    to first. Time and memory grow with the number of pairs.
    """
    wanted = len(partitions)
    if not wanted:
        return []
    level = _level(held_counts, wanted)
    room = [max(0, level - held) for held in held_counts]
    extra = [held <= level for held in held_counts]  # may go one above the level
    extras = wanted - sum(room)
    scores = _scores(partitions, names)
    # Ties, which a test may make and chance hardly will, go to the lower partition, then name.
    order = np.argsort(scores, axis=1, kind="stable")
    scores = np.take_along_axis(scores, order, axis=1)
    tries = [0] * wanted
    # The next pair of each partition: their least is the least of all pairs that are left.
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
    """The highest level up to which *wanted* more can fill all members that are below it."""
    levels = range(min(held_counts), max(held_counts) + wanted + 2)

    def needed(level: int) -> int:
        return sum(max(0, level - held) for held in held_counts)

    return levels[bisect_right(levels, wanted, key=needed) - 1]


def _scores(partitions: Sequence[int], names: Sequence[str]) -> NDArray[np.uint64]:
    """A score for each partition (row) with each member (column): a hash of the two hashes."""
    of_partitions = _partition_hashes(max(partitions) + 1)[np.asarray(partitions)]
    of_names = np.fromiter(map(hash_text, names), np.uint64, len(names))
    mixed: NDArray[np.uint64] = of_partitions[:, np.newaxis] ^ of_names[np.newaxis, :]
    # The finalizer of SplitMix64: one bit of difference changes half of all bits.
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


def _ring(count: int, names: tuple[str, ...], _current: Sequence[str] | None) -> Iterable[int]:
    """The member of the first point at or after the partition's hash, once around."""
    points = np.concatenate([_points(name) for name in names])
    order = np.argsort(points, kind="stable")  # of points that tie, the first name's comes first
    after = points[order].searchsorted(_partition_hashes(count))
    found = order[after % len(points)] // RING_POINTS_COUNT
    return found.tolist()  # type: ignore[no-any-return] # NumPy says Any


@lru_cache(maxsize=1024)
def _points(name: str) -> NDArray[np.uint64]:
    names = (hash_text(f"{name}-vnode-{point}") for point in range(RING_POINTS_COUNT))
    points = np.fromiter(names, np.uint64, RING_POINTS_COUNT)
    points.flags.writeable = False
    return points


def _range(count: int, names: tuple[str, ...], _current: Sequence[str] | None) -> Iterable[int]:
    return (partition * len(names) // count for partition in range(count))


# -- round robin and average ---------------------------------------------------------------


def _round_robin(
    count: int, names: tuple[str, ...], _current: Sequence[str] | None
) -> Iterable[int]:
    return (partition % len(names) for partition in range(count))


def _average(count: int, names: tuple[str, ...], current: Sequence[str] | None) -> Iterable[int]:
    """As few moves as bring the most and the least that a member owns within one."""
    if current is None:
        return _round_robin(count, names, None)
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
    """How many each should own: as many as can keep the one more that some must have.

    Of those that have it already the last keep it (so the first give first, as in Fixed
    Partitions); else the first get it, as in round robin.
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
        Strategy("ring", recorded=False, place=_ring),
        Strategy("range", recorded=False, place=_range),
        Strategy("round_robin", recorded=True, place=_round_robin),
        Strategy("average", recorded=True, place=_average),
    )
}
