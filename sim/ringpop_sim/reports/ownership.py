"""Which member owned which share of the keys over time, by what each node reported."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ringpop_py.base.dialect import dialect_named
from ringpop_py.member.ring.hashring import HashRing

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ringpop_py.base.config.settings import DialectName

KEYS: Final = 1_000
MEMBERS_MAX: Final = 300
INSTANTS_MAX: Final = 400


class KeyOwnership:
    """Which members were on the ring of each lane, and when.

    Lanes and members are numbers; sets of members are the bits of a number. A lane counts from the
    instant at which its node is ready, because no request goes to it before.
    """

    def __init__(self) -> None:
        self._members: dict[int, int] = {}
        self._left_out: dict[int, int] = {}
        self._serving: set[int] = set()
        self._moves: list[tuple[float, int, int]] = []

    def own(self, lane: int, subject: int) -> None:
        """Note that *subject* is the member of *lane* itself."""
        self._members[lane] = self._members.get(lane, 0) | 1 << subject

    def forget(self, lane: int, at: float) -> None:
        """Note that the process of *lane* ended."""
        self._members.pop(lane, None)
        self._left_out.pop(lane, None)
        self._serving.discard(lane)
        self._moves.append((at, lane, 0))  # no members: it looks up no key any longer

    def serve(self, lane: int, at: float) -> None:
        """Note that *lane* looks up keys from now on."""
        self._serving.add(lane)
        self._moved(lane, at)

    def serves(self, lane: int) -> bool:
        """Return whether *lane* looks up keys."""
        return lane in self._serving

    def change(self, lane: int, at: float, subject: int, *, owns: bool) -> None:
        """Note whether *subject* owns keys in the view of *lane*."""
        members = self._members.get(lane, 0)
        self._members[lane] = members | 1 << subject if owns else members & ~(1 << subject)
        self._moved(lane, at)

    def leave_out(self, lane: int, at: float, subjects: list[int]) -> None:
        """Note that damping keeps *subjects* out of the ring in the view of *lane*."""
        if subjects or self._left_out.get(lane):
            self._left_out[lane] = sum(1 << subject for subject in set(subjects))
            self._moved(lane, at)

    def _moved(self, lane: int, at: float) -> None:
        if lane in self._serving:
            members = self._members.get(lane, 0) & ~self._left_out.get(lane, 0)
            self._moves.append((at, lane, members))

    def as_json(self, names: list[str], dialect: DialectName) -> dict[str, Any] | None:
        """Return each member's mean share over time, and the share of keys on which views differ.

        None if there was no ring, or one of more than `MEMBERS_MAX`.
        """
        if not self._moves or len(names) > MEMBERS_MAX:
            return None
        owners_of = _owners(names, dialect)
        rings: dict[int, int] = {}
        times, shares, disputed = [], [], []
        for at, moves in self._instants():
            rings.update((lane, members) for _, lane, members in moves)
            counts = Counter(members for members in rings.values() if members)
            found = [owners_of(members) for members in counts]
            total = np.zeros(len(names))
            for owners, count in zip(found, counts.values(), strict=True):
                total += np.bincount(owners, minlength=len(names)) * count
            differs = [owners != found[0] for owners in found[1:]]
            times.append(at)
            shares.append([round(float(x), 4) for x in total / max(1.0, total.sum())])
            disputed.append(round(float(np.any(differs, axis=0).mean()), 4) if differs else 0.0)
        return {"keys": KEYS, "times": times, "shares": shares, "disputed": disputed}

    def _instants(self) -> list[tuple[float, list[tuple[float, int, int]]]]:
        """Return the moves grouped by instant; if there are many instants, near ones are joined."""
        last = max(at for at, _, _ in self._moves)
        instants = len({at for at, _, _ in self._moves})
        grain = last / INSTANTS_MAX if instants > INSTANTS_MAX else 0.0
        ordered = sorted(self._moves, key=lambda move: move[0])
        groups = groupby(ordered, key=lambda move: move[0] // grain if grain else move[0])
        gathered = [list(group) for _, group in groups]
        return [(group[-1][0], group) for group in gathered]


def _owners(names: list[str], dialect: DialectName) -> Callable[[int], NDArray[np.intp]]:
    """Return a function from a set of members to the owners of `KEYS` keys among them.

    A key's owner in any subset is the subset's first member clockwise, so one walk a key is enough.
    """
    ring = HashRing(names, dialect=dialect_named(dialect))
    place = {name: index for index, name in enumerate(names)}
    order: NDArray[np.intp] = np.array(
        [
            [place[name] for name in ring.lookup_n(f"key-{number}", len(names))]
            for number in range(KEYS)
        ]
    )

    @cache
    def owners_of(members: int) -> NDArray[np.intp]:
        there = np.array([bool(members >> index & 1) for index in range(len(names))])
        first = there[order].argmax(axis=1)
        owners: NDArray[np.intp] = order[np.arange(KEYS), first]
        return owners

    return owners_of
