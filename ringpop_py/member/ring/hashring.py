"""The ring: the owner of a key, as a pure function of the members.

Every member has many points on a circle of hashes. A key belongs to the first point at or after its
own hash; after the last point the circle begins again. Points are ordered by hash, then by owner.
So equal members give an equal ring on every node, and a member that joins or leaves moves only the
keys next to its own points.

Finding that first point is a search. But hashes are spread evenly, so a table over their top bits
nearly answers it: with eight slots or more a point, most slots hold no point, and all positions of
such a slot have one owner. Building the table takes longer than many rings live while members come
and go. So a ring searches until there were enough lookups to pay for a table.

A ring makes its points with the first question about a key. Many rings are asked about none, and so
a node that nobody asks does without NumPy.

Rules for this file: a `HashRing` never changes. It only caches results about its own contents; each
cache is replaced in one assignment, and a lost race merely repeats work. So tasks and threads can
share a ring freely.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from ringpop_py.base.arguments import checked_kind, checked_text, checked_texts, wrong
from ringpop_py.base.dialect import NATIVE, Dialect, dialect_named
from ringpop_py.base.errors import NoOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ringpop_py.member.ring.points import Points, RadixIndex

POINTS_COUNT: Final = 100
"""Points of each member. The busiest of many members then has about 1.3 times the mean."""
SLOTS_MAX: Final = 1 << 20
"""The largest table a ring builds for itself: 8 MB of references, 4 MB of indexes."""
_SEARCHES_PER_POINT: Final = 1 / 4
"""The table is built after so many searches: then they have cost as much as it will."""


class HashRing:
    """The owners of all keys. An immutable value: hashable, picklable, safe to share.

    Rings are equal if they have the same dialect, and the same members with the same identities and
    numbers of points. Equal rings assign every key alike.

    Args:
        members: the owners' names; or a mapping from each name to the identity that names its
            points, so that a member that comes back at another address keeps its keys.
        dialect: how points are named, and how they and the keys are hashed.
        points_count: the number of points of each member.
    """

    # One slot, quick to read, has what a lookup needs; cached properties need the dict for the
    # rest.
    __slots__ = ("__dict__", "__weakref__", "_table")
    _table: tuple[Callable[[bytes], int], int, list[str | None]]
    """The hash, how many low bits of it to drop, and the owner of each slot of the rest."""

    def __init__(
        self,
        members: Iterable[str] | Mapping[str, str] = (),
        *,
        dialect: Dialect = NATIVE,
        points_count: int = POINTS_COUNT,
    ) -> None:
        assert points_count > 0
        self._hold(_identities(members), None, dialect, points_count)

    @classmethod
    def _of(
        cls,
        identities: dict[str, str],
        points: Points | None,
        dialect: Dialect | str,
        points_count: int,
    ) -> HashRing:
        """Make a ring, perhaps from known points."""
        ring = cls.__new__(cls)
        found = dialect_named(dialect) if isinstance(dialect, str) else dialect
        if points is not None:
            points = points.of(*points)  # unpickled arrays can be written
        ring._hold(identities, points, found, points_count)  # noqa: SLF001 - its own class
        return ring

    def _hold(
        self, identities: dict[str, str], points: Points | None, dialect: Dialect, points_count: int
    ) -> None:
        self.owners = tuple(sorted(identities))
        self.dialect = dialect
        self.points_count = points_count
        self._identities = identities
        self._known_points = points
        # While the ring is cold, one slot takes every position and has no owner: so lookups search.
        self._table = dialect.hash_bytes, dialect.hash_bits, [None]
        self._cold_count = int(len(identities) * points_count * _SEARCHES_PER_POINT)

    @property
    def members(self) -> Mapping[str, str]:
        """The identity behind each owner."""
        return MappingProxyType(self._identities)

    @property
    def _points(self) -> Points:
        if self._known_points is None:
            from ringpop_py.member.ring.points import points_of  # noqa: PLC0415 - loads NumPy

            found = points_of(self.owners, self._identities, self.dialect, self.points_count)
            self._known_points = found
        return self._known_points

    # -- one key ---------------------------------------------------------------------------

    def lookup(self, key: str) -> str:
        """Return the owner of *key*; any text has one, even the empty text. O(1) once warm.

        Raises:
            NoOwner: if the ring is empty.
            ConfigError: if *key* is not text.
        """
        hash_bytes, shift, slots = self._table
        try:
            position = hash_bytes(key.encode())
        except UnicodeEncodeError:
            position = self.dialect.hash_key(key)
        except AttributeError:
            raise wrong("key", "text", key) from None
        # None: points split the slot, or there is no table yet.
        return slots[position >> shift] or self._search(position)

    def lookup_hash(self, position: int) -> str:
        """Return the owner of the keys that hash to *position*.

        Raises:
            NoOwner: if the ring is empty.
        """
        _, shift, slots = self._table
        return slots[position >> shift] or self._search(position)

    def lookup_n(self, key: str, n: int) -> tuple[str, ...]:
        """Return up to *n* distinct members, clockwise from *key*; its owner comes first.

        If the ring has no more than *n* members, return all of them.

        Raises:
            NoOwner: if the ring is empty.
        """
        checked_text(key, "key")
        checked_kind(n, int, "n", "a whole number")
        if not self.owners:
            raise _empty()
        start = self._points.following(self.dialect.hash_key(key))
        found: dict[int, None] = {}
        owners_at = self._points.owners_at
        for part in (owners_at[start:], owners_at[:start]):
            for owner in _view(part):
                if len(found) >= min(n, len(self.owners)):
                    break
                found[owner] = None
        return tuple(self.owners[owner] for owner in found)

    def lookup_among(self, key: str, names: Collection[str]) -> str | None:
        """Return the first of *names* clockwise from *key*; None if none of them is in the ring.

        Leaving a name out of *names* does not change the answer for keys of the others.
        """
        if not self.owners:
            return None
        start = self._points.following(self.dialect.hash_key(key))
        wanted, owners_at = frozenset(names), self._points.owners_at
        for part in (owners_at[start:], owners_at[:start]):
            for owner in _view(part):
                if self.owners[owner] in wanted:
                    return self.owners[owner]
        return None

    def _search(self, position: int) -> str:
        """Search for the owner at *position*, for which the table has no owner."""
        _, shift, slots = self._table
        if len(slots) == 1:
            return self._search_cold(position)
        first, hashes, owners_at = self._views
        point, count = first[position >> shift], len(hashes)
        while point < count and hashes[point] < position:
            point += 1
        return self.owners[owners_at[point if point < count else 0]]

    def _search_cold(self, position: int) -> str:
        self._cold_count -= 1
        if self._cold_count < 0 and self.owners:
            self._warm()
        if not self.owners:
            raise _empty()
        points = self._known_points or self._points
        return self.owners[int(points.owners_at[points.following(position)])]

    # -- many keys -------------------------------------------------------------------------

    def hashes_of(self, keys: Sequence[str]) -> NDArray[np.uint64]:
        """Return the position of each key on the ring."""
        from ringpop_py.member.ring.points import array_of  # noqa: PLC0415 - loads NumPy

        try:
            return array_of(self.dialect.hash_each(map(str.encode, keys)), len(keys))
        except UnicodeEncodeError:
            return array_of(map(self.dialect.hash_key, keys), len(keys))
        except TypeError:
            checked_texts(keys, "keys", "key")
            raise

    def owner_indexes_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the index in `owners` of the owner of each hash.

        Raises:
            NoOwner: if the ring is empty.
        """
        return self._radix.owner_indexes_of(hashes)

    def owner_indexes(self, keys: Sequence[str]) -> NDArray[np.int32]:
        """Return the index in `owners` of the owner of each key.

        Raises:
            NoOwner: if the ring is empty.
        """
        return self.owner_indexes_of(self.hashes_of(keys))

    def lookup_many(self, keys: Sequence[str]) -> list[str]:
        """Return the owner of each key, in the order of *keys*.

        Raises:
            NoOwner: if the ring is empty.
        """
        owners = self.owners
        return [owners[index] for index in self.owner_indexes(keys).tolist()]

    def grouped(self, keys: Sequence[str]) -> dict[str, list[int]]:
        """Return the indexes in *keys* of each owner's keys; the owner of the first key is first.

        Raises:
            NoOwner: if the ring is empty.
        """
        from ringpop_py.member.ring.points import places_by  # noqa: PLC0415 - loads NumPy

        indexes = self.owner_indexes(keys)
        groups = sorted(places_by(indexes), key=itemgetter(0))
        return {self.owners[indexes[group[0]]]: group for group in groups}

    def radix_index(self, slots_max: int = SLOTS_MAX) -> RadixIndex:
        """Return the points with a table of at most *slots_max* slots, for lookups elsewhere.

        Raises:
            NoOwner: if the ring is empty.
        """
        if not self.owners:
            raise _empty()
        from ringpop_py.member.ring.points import index_of  # noqa: PLC0415 - loads NumPy

        return index_of(self._points, self.owners, self.dialect.hash_bits, slots_max)

    @cached_property
    def _radix(self) -> RadixIndex:
        return self.radix_index()

    @cached_property
    def _views(self) -> tuple[memoryview[int], memoryview[int], memoryview[int]]:
        """The arrays of `_radix` as sequences of ``int``: reading single items is faster."""
        radix = self._radix
        return _view(radix.first), _view(radix.hashes), _view(radix.owners_at)

    def _warm(self) -> None:
        """Build the table for single lookups."""
        self._table = self.dialect.hash_bytes, self._radix.shift, self._radix.owners_of_slots()

    # -- changes ---------------------------------------------------------------------------

    def with_changes(
        self, added: Iterable[str] | Mapping[str, str] = (), removed: Iterable[str] = ()
    ) -> HashRing:
        """Return this ring without *removed*, then with *added*; it equals a newly built ring.

        Names in *removed* that are not members are ignored. An added member that was here under
        another identity moves to the new one. Only the points of added members are hashed.
        """
        coming = _identities(added)
        joining = {o: i for o, i in coming.items() if self._identities.get(o) != i}
        gone = (set(removed) - coming.keys()) | joining.keys()
        leaving = [owner for owner in gone if owner in self._identities]
        if not joining and not leaving:
            return self
        identities = self._identities | joining
        for owner in leaving:
            if owner not in joining:
                del identities[owner]
        points = None
        if self._known_points is not None:
            from ringpop_py.member.ring.points import points_of  # noqa: PLC0415 - loads NumPy

            new = points_of(sorted(joining), joining, self.dialect, self.points_count)
            kept = self._known_points.without(leaving, self.owners, sorted(joining))
            points = kept.merged(new.renumbered(sorted(joining), sorted(identities)))
        return HashRing._of(identities, points, self.dialect, self.points_count)

    # -- the whole -------------------------------------------------------------------------

    @cached_property
    def checksum(self) -> int:
        """A checksum that is equal on two nodes if their rings have equal identities."""
        return self.dialect.ring_checksum(self._identities.values())

    @cached_property
    def replica_checksum(self) -> int:
        """A checksum of every point; unlike `checksum`, it differs if only points differ."""
        text = "".join(f"{position}-{owner};" for position, owner in self.points())
        return self.dialect.hash_key(text)

    def points(self) -> Iterator[tuple[int, str]]:
        """Yield every point as its hash and owner, in ring order."""
        hashes, owners_at = self._points
        for position, owner in zip(hashes.tolist(), owners_at.tolist(), strict=True):
            yield position, self.owners[owner]

    def weights(self) -> dict[str, float]:
        """Return the share of all positions that each member owns; they add up to 1."""
        from ringpop_py.member.ring.points import shares_of  # noqa: PLC0415 - loads NumPy

        hashes, owners_at = self._points
        shares = shares_of(hashes, owners_at, len(self.owners), self.dialect.hash_bits)
        return dict(zip(self.owners, shares, strict=True))

    def weights_of(self, keys: Sequence[str]) -> dict[str, int]:
        """Return how many of *keys* each member owns.

        Raises:
            NoOwner: if the ring is empty.
        """
        counts = Counter(self.owner_indexes(keys).tolist())
        return {owner: counts[index] for index, owner in enumerate(self.owners)}

    def __len__(self) -> int:
        return len(self.owners)

    def __contains__(self, owner: object) -> bool:
        return owner in self._identities

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HashRing):
            return NotImplemented
        return self is other or (
            self.dialect == other.dialect
            and self.points_count == other.points_count
            and self._identities == other._identities
        )

    def __hash__(self) -> int:
        return hash((self.dialect.name, self.points_count, self.owners))

    def __repr__(self) -> str:
        return (
            f"<HashRing {self.dialect.name}: {len(self)} members x {self.points_count} points,"
            f" checksum {self.checksum}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # By name, so that a process without the C extension can load what one with it wrote.
        known = dialect_named(self.dialect.name) == self.dialect
        dialect = self.dialect.name if known else self.dialect
        return HashRing._of, (self._identities, self._points, dialect, self.points_count)

    def _check(self) -> None:
        """Assert the invariants of every ring; tests call it after each change."""
        hashes, owners_at = self._points
        assert self.owners == tuple(sorted(self._identities))
        assert len(hashes) == len(owners_at) == len(self.owners) * self.points_count
        assert not hashes.flags.writeable
        assert not owners_at.flags.writeable
        placed = list(self.points())
        assert placed == sorted(placed)
        assert all(0 <= position < 1 << self.dialect.hash_bits for position, _ in placed)
        assert Counter(owners_at.tolist()) == dict.fromkeys(
            range(len(self.owners)), self.points_count
        )
        fresh = HashRing(self._identities, dialect=self.dialect, points_count=self.points_count)
        assert placed == list(fresh.points())
        if self.owners:
            radix = self._radix
            assert radix.first.tolist() == [
                bisect_left(hashes, slot << radix.shift) for slot in range(len(radix.first))
            ]


def moved(before: HashRing, after: HashRing) -> float:
    """Return the share of all positions, 0 to 1, that have another owner in *after*.

    It is exact: it comes from the points, not from sample keys. Both rings must be of one dialect.
    """
    assert before.dialect == after.dialect
    if not before.owners or not after.owners:
        return float(before.owners != after.owners)
    from ringpop_py.member.ring.points import share_moved  # noqa: PLC0415 - loads NumPy

    names = sorted({*before.owners, *after.owners})
    old, new = (
        ring._points.renumbered(ring.owners, names)  # noqa: SLF001 - `HashRing` is of this module
        for ring in (before, after)
    )
    return share_moved(old, new, before.dialect.hash_bits)


def _empty() -> NoOwner:
    return NoOwner("no member is in the ring")


def _view(array: NDArray[Any]) -> memoryview[int]:
    return memoryview(cast(Any, array))  # NumPy's stubs know no buffers before Python 3.12


def _identities(members: Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    assert not isinstance(members, str), "one name is not a collection of names"
    if isinstance(members, Mapping):
        return dict(members)
    return {owner: owner for owner in members}
