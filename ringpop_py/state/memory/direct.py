"""The keyed state of a partition that nobody logs, copies or asks to repeat a write."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.base.values.operations import Change, Outcome
from ringpop_py.state.table.aggregations import INTEGER_MAX, INTEGER_MIN
from ringpop_py.state.table.entries import FrozenEntries, MemoryEntries
from ringpop_py.state.table.keyed import KeyedState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.table.aggregations import Aggregations
    from ringpop_py.state.table.due import DueTimes
    from ringpop_py.state.table.entries import Piece
    from ringpop_py.state.table.joins import Pack


class DirectState(KeyedState):
    """A state whose changes can take effect as they are evaluated. No snapshot is taken of it.

    Attributes:
        values: by key: packed, or a whole number.
    """

    def __init__(
        self, pack: Pack, aggregations: Aggregations, due: DueTimes, *, keys_max: int | None
    ) -> None:
        entries = _DirectEntries(pack)
        super().__init__(pack, aggregations, keys_max=keys_max, entries=entries, due=due)
        self.values = entries.values
        self._put_number = entries.put_number

    def change(self, key: str, aggregation: str, argument: Value = None) -> Outcome | KeyspaceError:
        """Make one change, without an id by which a repetition would be recognised."""
        self.expire()
        try:
            packed, value = self.evaluate(Change(key, aggregation, argument))
        except KeyspaceError as error:
            return error
        if type(value) is int and not self.due.used:
            self._put_number(key, value)
            return Outcome((value,))
        changed, deleted = ({}, (key,)) if packed is None else ({key: packed}, ())
        self._entries.write(changed, deleted)
        if self.due.used:
            self.due.note(changed, deleted)
        return Outcome((value,))

    def expire(self) -> None:
        """Delete what is due. Each use of the state does so: no task looks after it."""
        if self.due:
            while (body := self.expired(None)) is not None:
                self.apply(body)


def change_each(
    states: Sequence[DirectState], numbers: Iterable[int], changes: Iterable[Change]
) -> list[Outcome | KeyspaceError]:
    """Make *changes*, each of the state whose number is in the same place of *numbers*."""
    outcomes: list[Outcome | KeyspaceError] = []
    for number, (key, aggregation, argument) in zip(numbers, changes, strict=True):
        state = states[number]
        if aggregation == "add" and type(argument) is int:  # counters, mostly: without a call
            total = state.values.get(key)
            if type(total) is int:
                total += argument
                if INTEGER_MIN <= total <= INTEGER_MAX:
                    state.values[key] = total
                    outcomes.append(Outcome((total,)))
                    continue
        outcomes.append(state.change(key, aggregation, argument))
    return outcomes


class _DirectEntries(MemoryEntries):
    """Entries of which whole numbers are packed only when they are read.

    Attributes:
        values: packed, or whole numbers.
    """

    def __init__(self, pack: Pack) -> None:
        super().__init__()
        self.values = cast("dict[str, bytes | int]", self._values)
        self._pack = pack
        self.get = self._get

    def _get(self, key: str) -> bytes | None:
        value = self.values.get(key)
        return self._pack(value) if type(value) is int else cast("bytes | None", value)

    def put_number(self, key: str, number: int) -> None:
        """Set *key* to a number that msgpack can hold."""
        if key not in self.values:
            self.write({key: b""}, ())  # where it is in the order
        self.values[key] = number

    def scan(self, prefix: str, start: str, end: str | None, limit: int) -> list[tuple[str, bytes]]:
        """See `Entries`."""
        keys = [key for key, _ in super().scan(prefix, start, end, limit)]
        return list(self.freeze(keys).values.items())

    def at_most(self, limit: int) -> Piece | None:
        """See `Entries`."""
        if len(self.values) > limit:
            return None
        frozen = self.freeze().values
        return list(frozen), list(frozen.values())

    def freeze(self, keys: Sequence[str] | None = None) -> FrozenEntries:
        """See `Entries`."""
        wanted = self.values if keys is None else keys
        return FrozenEntries({key: cast(bytes, self.get(key)) for key in wanted})
