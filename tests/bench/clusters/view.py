"""What each node believes of each other one, and since when: a fold over what they tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.clusters.product import GONE, Seen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class View:
    """Beliefs by observer and member; a member that was never heard of has none."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], Seen] = {}
        self.history: list[tuple[str, str, Seen]] = []

    def change(self, observer: str, member: str, seen: Seen) -> None:
        """*observer* says what it believes of *member* from now on."""
        if observer != member:
            self._seen[observer, member] = seen
            self.history.append((observer, member, seen))

    def forget(self, observer: str) -> None:
        """*observer* ended, and all that it believed with it."""
        self._seen = {pair: seen for pair, seen in self._seen.items() if pair[0] != observer}

    def agreed(
        self, observers: Iterable[str], members: Collection[str], wanted: Collection[Seen]
    ) -> bool:
        """Whether each of *observers* believes one of *wanted* of each of *members* but itself."""
        return all(
            self._seen.get((observer, member)) in wanted
            for observer in observers
            for member in members
            if observer != member
        )

    def count(
        self, observers: Iterable[str], members: Collection[str], wanted: Collection[Seen]
    ) -> int:
        """How many pairs hold that *observer* believes one of *wanted* of *member*."""
        return sum(
            self._seen.get((observer, member)) in wanted
            for observer in observers
            for member in members
        )

    def ever(self, seen: Seen, *, since: int = 0) -> set[str]:
        """Which members anybody believed to be *seen*, from entry *since* of the history."""
        return {member for _, member, said in self.history[since:] if said == seen}

    def turns(self, member: str, *, since: int = 0) -> dict[str, int]:
        """How often each observer changed its mind on whether *member* is one to count on.

        From entry *since* of the history, before which all counted on it. Suspicions are no turns:
        not all products tell of them, and none gives up a member for one.
        """
        gone: dict[str, bool] = {}
        times: dict[str, int] = {}
        for observer, subject, seen in self.history[since:]:
            if subject == member and gone.get(observer, False) != (seen in GONE):
                gone[observer] = seen in GONE
                times[observer] = times.get(observer, 0) + 1
        return times
