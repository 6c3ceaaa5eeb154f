"""How far journals have come, written down beside them, so that total losses are noticed, too.

What stands in a store implies most of what else has to be there (`docs/journal.md`, "A loss is
noticed"). Three losses would leave no trace: the last slots of a journal, a whole journal without
checkpoints, and the newest claim of a partition. So each node puts, every few seconds in which that
has changed, how many slots of its journal were won and which claims name it. A recovery looks at
these objects before it ends a journal by a seal, and before it claims.

These objects can only make a recovery refuse: if they are missing or old, fewer losses are noticed.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import StateDamaged, StoreUnavailable
from ringpop_py.base.logs import log
from ringpop_py.state.catalog.layout import number_in
from ringpop_py.state.journal import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringpop_py.state.catalog.layout import KeyspaceKeys
    from ringpop_py.state.journal.records import Reached
    from ringpop_py.state.stores.store import Store

LOOK_S: Final = 1.0
"""The seconds between two looks of a node: many recoveries come at the same time."""


class ReachedBook:
    """What is known of all journals of a keyspace. Methods block; threads may share a book."""

    def __init__(self, store: Store, keys: KeyspaceKeys) -> None:
        self._store = store
        self._keys = keys
        self._known: dict[str, tuple[int, Reached]] = {}
        self._looked_at = -LOOK_S
        self._looking = Lock()
        self._last: tuple[str, int, Reached | None] = "", 0, None

    # An owner.

    def note(self, journal: str, reached: Reached) -> None:
        """Write down how far this node's *journal* has come, if that has changed.

        Raises:
            StoreUnavailable: if the store fails; it is unknown whether it was written.
        """
        name, number, before = self._last
        if name != journal:
            number, before = 0, None
        if before == reached:
            return
        number += 1
        # Already now: a copy that comes late must not stand in the way of another value.
        self._last = journal, number, before
        key = self._keys.reached(journal, number)
        self._store.put_if_absent(key, codec.encode_reached(reached, key))
        self._last = journal, number, reached
        if number > 1:
            self._store.delete([self._keys.reached(journal, number - 1)])

    # Recoveries.

    def look(self) -> None:
        """Read what has changed, unless another thread has done so a moment ago."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            if time.monotonic() - self._looked_at >= LOOK_S:
                self._read()
                self._looked_at = time.monotonic()
        except StoreUnavailable:
            pass  # the next request of the recovery fails in any case
        finally:
            self._looking.release()

    def _read(self) -> None:
        newest: dict[str, int] = {}
        for key in self._store.list(self._keys.all_reached):
            number = number_in(key)
            if number is not None:
                newest[self._keys.journal_reached_in(key)] = number  # in ascending order
        known: dict[str, tuple[int, Reached]] = {}
        for journal, number in newest.items():
            there = self._known.get(journal)
            if there is None or there[0] != number:
                there = self._get(journal, number)
            if there is not None:
                known[journal] = there
        self._known = known

    def _get(self, journal: str, number: int) -> tuple[int, Reached] | None:
        key = self._keys.reached(journal, number)
        value = self._store.get(key)
        if value is None:  # a newer one has replaced it
            return None
        try:
            return number, codec.decode_reached(value, key)
        except StateDamaged as error:
            text = f"{error}; until then, losses that it would show are not noticed"
            log.error("state-damaged", text=text)  # noqa: TRY400 - its text says it all
            return None

    def lost_at(self, journal: str, slot: int) -> str:
        """Return what is lost if *slot* of *journal* is absent and no mark covers it; or nothing.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        number, reached = self._known.get(journal, (0, None))
        if reached is None or reached.slot < slot:
            return ""
        keys = self._keys.journal(journal)
        # In this order: what is deleted between the two has a mark by the time of the list.
        if self._store.get(keys.slot(slot)) is not None:
            return ""
        _, marks = keys.numbers(self._store.list(keys.marks))
        if marks and max(marks) > slot:
            return ""
        witness = self._keys.reached(journal, number)
        return (
            f"{keys.slot(slot)} is gone: slots up to {reached.slot} were won ({witness}); restore"
            f" the objects, or accept the loss by deleting {witness}"
        )

    def lost_claim(self, partition: int, epoch: int) -> str:
        """Return what is lost if *partition* seems to have no claim of *epoch*; or nothing.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        for journal, (number, reached) in self._known.items():
            if reached.claims.get(partition, 0) >= epoch:
                key = self._keys.partition(partition).claim(epoch)
                if self._store.get(key) is not None:
                    return ""
                witness = self._keys.reached(journal, number)
                return (
                    f"{key} is gone: partition {partition} was claimed in epoch"
                    f" {reached.claims[partition]} ({witness}); restore the object, or accept the"
                    f" loss by deleting {witness}"
                )
        return ""

    # The sweeper.

    def needless(self, ended: Mapping[str, int]) -> list[str]:
        """Return the keys of the objects that say nothing that is not said elsewhere.

        Args:
            ended: journals that no node writes any more and that are covered, and their highest
                marks.
        """
        self.look()
        return [
            self._keys.reached(journal, number)
            for journal, (number, reached) in self._known.items()
            if ended.get(journal, 0) > reached.slot
            and all(
                self._is_claimed_later(partition, epoch)
                for partition, epoch in reached.claims.items()
            )
        ]

    def _is_claimed_later(self, partition: int, epoch: int) -> bool:
        others: Iterable[Reached] = (reached for _, reached in self._known.values())
        return any(reached.claims.get(partition, 0) > epoch for reached in others)
