"""Whether what clients saw of keys could have come from one copy of each, changed at moments.

A history is linearizable if each operation can be given a moment between its call and its return
such that, one after the other in that order, all have the results that were seen. An operation
whose outcome is open (its caller gave up, or was killed) may take effect at any moment after its
call, or never.

Keys are looked at one by one, for a history is linearizable if that of each key is (Herlihy and
Wing). For one key: a search in depth over which operation is next (Wing and Gong) that never enters
the same place twice: the operations that were placed, and the value after them (Lowe).

It knows nothing of ringpop: record the calls of any service, and hand them to `check`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

PLACES_MAX: Final = 1_000_000
"""Of one key's search; many operations at once and many of open outcome make it long."""


class _Word:
    """A value like no other."""

    def __init__(self, word: str) -> None:
        self._word = word

    def __repr__(self) -> str:
        return self._word


ABSENT: Final = _Word("absent")
"""What a key holds that is not there."""
ANY: Final = _Word("any")
"""The result of an operation that returned, where what it returned says nothing."""
_NOT_NOW: Final = _Word("not now")


@dataclass(frozen=True, slots=True)
class Invocation:
    """What one client did to one key.

    Attributes:
        argument: hashable; a list as a tuple.
        result: what the client was told, or `ANY`; means nothing while the operation is open.
        called_at: on the same clock for all clients, in any unit.
        returned_at: None for one of open outcome.
    """

    key: str
    name: str
    argument: Hashable
    result: Hashable
    called_at: float
    returned_at: float | None

    @property
    def is_open(self) -> bool:
        """Whether nobody knows if it took effect."""
        return self.returned_at is None


@dataclass(frozen=True, slots=True)
class Violation:
    """A key with a history that no single copy of it could have had.

    Attributes:
        stuck: the operation that returned first of those that found no place, where the search
            came furthest.
        value: what the key held there.
        placed: the operations before it, in the order in which they were placed.
    """

    key: str
    stuck: Invocation
    value: Hashable
    placed: tuple[Invocation, ...]

    def __str__(self) -> str:
        lines = [f"the history of {self.key!r} is not linearizable; furthest that one order came:"]
        lines += [f"  {_text(operation)}" for operation in self.placed[-8:]]
        lines.append(f"  now it holds {self.value!r}, and there is no place for")
        lines.append(f"  {_text(self.stuck)}")
        return "\n".join(lines)


class TooManyOrders(Exception):
    """The search of a key came to its limit, so nothing is known of it.

    Attributes:
        key: which.
    """

    def __init__(self, key: str, places_count: int) -> None:
        super().__init__(f"{key!r}: still undecided after {places_count} places")
        self.key = key


class SearchStep(NamedTuple):
    """What an operation does when nothing else is done at that moment."""

    value: Hashable
    result: Hashable


def register(value: Hashable, name: str, argument: Hashable) -> SearchStep:
    """What the operations of a keyspace do to a key, and what they return.

    ``get`` returns the value or `ABSENT`; ``put`` and ``delete`` None; ``compare_and_set``, with
    the expected and the new value, whether it was done; ``add`` the sum and ``append`` the items.
    """
    match name:
        case "get":
            return SearchStep(value, value)
        case "put":
            return SearchStep(argument, None)
        case "delete":
            return SearchStep(ABSENT, None)
        case "compare_and_set":
            assert isinstance(argument, tuple)
            expected, new = argument
            done = value == expected
            return SearchStep(new if done else value, done)
        case "add":
            assert isinstance(argument, int)
            before = 0 if value is ABSENT else value
            assert isinstance(before, int)
            return SearchStep(before + argument, before + argument)
        case "append":
            items = () if value is ABSENT else value
            assert isinstance(items, tuple)
            return SearchStep((*items, argument), (*items, argument))
        case _:
            message = f"no such operation: {name!r}"
            raise ValueError(message)


def check(
    history: Iterable[Invocation],
    model: Callable[[Hashable, str, Hashable], SearchStep] = register,
    *,
    places_max: int = PLACES_MAX,
) -> list[Violation]:
    """The keys of *history* that are not linearizable, by name; all keys are absent at first.

    Args:
        model: what operations do; `register` by default.

    Raises:
        TooManyOrders: a key could not be decided.
    """
    by_key: dict[str, list[Invocation]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    found = (_Search(by_key[key], model, places_max).violation() for key in sorted(by_key))
    return [violation for violation in found if violation is not None]


class _Frame(NamedTuple):
    """A place of the search: how we came here, and where to go on from."""

    chosen: int
    """The operation that was placed last; -1 at the beginning."""
    value: Hashable
    candidates: list[int]
    """Operations that may be next, the first to be tried last."""


class _Search:
    """The search over one key's orders.

    Closed operations that are not placed yet stand in a linked list of events, calls and returns by
    time; whoever is called before the first return there may be next.
    """

    def __init__(
        self,
        operations: Sequence[Invocation],
        model: Callable[[Hashable, str, Hashable], SearchStep],
        places_max: int,
    ) -> None:
        self._operations: list[Invocation] = sorted(operations, key=lambda each: each.called_at)
        self._model = model
        self._places_max = places_max
        self._open = [n for n, operation in enumerate(self._operations) if operation.is_open]
        self._events = self._ordered_events()
        end = len(self._events)
        self._next: list[int] = [*range(1, end + 1), 0]  # the last one is the head, and the end
        self._previous: list[int] = [end, *range(end)]
        self._at: dict[int, list[int]] = {}
        for at, (_, _, number) in enumerate(self._events):
            self._at.setdefault(number, []).append(at)

    def _ordered_events(self) -> list[tuple[float, bool, int]]:
        """When, whether it is a return, and of which operation; a tie is an overlap."""
        events: list[tuple[float, bool, int]] = []
        for number, operation in enumerate(self._operations):
            if operation.returned_at is not None:
                assert operation.called_at <= operation.returned_at, operation
                events.append((operation.called_at, False, number))
                events.append((operation.returned_at, True, number))
        return sorted(events)

    def violation(self) -> Violation | None:
        """None if there is an order."""
        mask = 0
        value: Hashable = ABSENT
        seen: set[tuple[int, Hashable]] = {(mask, value)}
        stack = [_Frame(-1, value, self._candidates(mask))]
        furthest: list[_Frame] = []
        while self._next[-1] != len(self._events):  # something closed has no place yet
            if not stack[-1].candidates:
                if len(stack) > len(furthest):
                    furthest, stuck = list(stack), self._first_return()
                undone = stack.pop().chosen
                if undone < 0:
                    placed = tuple(self._operations[frame.chosen] for frame in furthest[1:])
                    return Violation(stuck.key, stuck, furthest[-1].value, placed)
                mask ^= 1 << undone
                self._put_back(undone)
                continue
            number = stack[-1].candidates.pop()
            value = self._after(stack[-1].value, number)
            place = mask | 1 << number, value
            if value is _NOT_NOW or place in seen:
                continue
            if len(seen) >= self._places_max:
                raise TooManyOrders(self._operations[0].key, len(seen))
            seen.add(place)
            mask = place[0]
            self._take_out(number)
            stack.append(_Frame(number, value, self._candidates(mask)))
        return None

    def _candidates(self, mask: int) -> list[int]:
        """What may be next after those in *mask*, the first to be tried last.

        Open operations are a last resort: mostly they took no effect, or soon. Of several that do
        the same the first stands for all.
        """
        closed: list[int] = []
        at, until = self._next[-1], float("inf")
        while at != len(self._events):
            time, is_return, number = self._events[at]
            if is_return:
                until = time
                break
            closed.append(number)
            at = self._next[at]
        alike: dict[tuple[str, Hashable], int] = {}
        for number in self._open:
            operation = self._operations[number]
            if operation.called_at > until:
                break
            if not mask >> number & 1:
                alike.setdefault((operation.name, operation.argument), number)
        return [*reversed(alike.values()), *reversed(closed)]

    def _after(self, value: Hashable, number: int) -> Hashable:
        """What the key holds after an operation on *value*, if that is what its caller saw."""
        operation = self._operations[number]
        after, result = self._model(value, operation.name, operation.argument)
        if operation.is_open:
            return _NOT_NOW if after == value else after  # with no effect it need not be placed
        return after if operation.result is ANY or operation.result == result else _NOT_NOW

    def _first_return(self) -> Invocation:
        """The operation without a place that returned first."""
        at = self._next[-1]
        while not self._events[at][1]:
            at = self._next[at]
        return self._operations[self._events[at][2]]

    def _take_out(self, number: int) -> None:
        for at in self._at.get(number, ()):
            before, after = self._previous[at], self._next[at]
            self._next[before], self._previous[after] = after, before

    def _put_back(self, number: int) -> None:
        """Undo the last `_take_out` that was not undone."""
        for at in reversed(self._at.get(number, ())):
            self._next[self._previous[at]] = self._previous[self._next[at]] = at


def _text(operation: Invocation) -> str:
    till = "open" if operation.returned_at is None else f"{operation.returned_at:g}"
    said = "" if operation.is_open or operation.result is ANY else f" -> {operation.result!r}"
    what = f"{operation.name}({operation.argument!r}){said}"
    return f"{operation.called_at:g} to {till}: {what}"
