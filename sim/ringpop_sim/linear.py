"""A check for linearizability: whether what clients saw could come from one copy of each key.

A history is linearizable if each operation can be given an instant between its call and its return
such that the operations, executed in that order, have the results that were seen. An operation
whose outcome is open (its caller stopped waiting, or was killed) may take effect at any instant
after its call, or never.

Keys are checked one by one, because a history is linearizable if that of each key is (Herlihy and
Wing). For one key, a depth-first search tries which operation is next (Wing and Gong). It never
visits the same state twice: the operations that were placed, and the value after them (Lowe).

The module knows nothing of ringpop: record the calls of any service, and pass them to `check`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

PLACES_MAX: Final = 1_000_000
"""The limit of states that the search of one key visits; beyond it `TooManyOrders` is raised.
Many concurrent operations, and many with an open outcome, make the search long."""


class _Word:
    """A value that equals no other."""

    def __init__(self, word: str) -> None:
        self._word = word

    def __repr__(self) -> str:
        return self._word


ABSENT: Final = _Word("absent")
"""The value of a key that does not exist."""
READ: Final = "get"
"""The name of an operation that has no effect, in each model."""
ANY: Final = _Word("any")
"""The result of an operation that returned without a meaningful result."""
_NOT_NOW: Final = _Word("not now")


@dataclass(frozen=True, slots=True)
class Invocation:
    """One operation of one client on one key.

    Attributes:
        argument: hashable; a list as a tuple.
        result: what the client received, or `ANY`; it means nothing while the operation is open.
        called_at: the instant of the call, on one clock for all clients, in any unit.
        returned_at: the instant of the return; None if the outcome is open.
    """

    key: str
    name: str
    argument: Hashable
    result: Hashable
    called_at: float
    returned_at: float | None

    @property
    def is_open(self) -> bool:
        """Whether it is unknown if the operation took effect."""
        return self.returned_at is None


@dataclass(frozen=True, slots=True)
class Violation:
    """A key with a history that no single copy could have had.

    Attributes:
        stuck: the first operation to return among those that found no place in the longest order.
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
    """The search of a key reached its limit, so the key is undecided.

    Attributes:
        key: the key.
    """

    def __init__(self, key: str, places_count: int) -> None:
        super().__init__(f"{key!r}: still undecided after {places_count} places")
        self.key = key


class SearchStep(NamedTuple):
    """The effect of an operation that runs alone at an instant."""

    value: Hashable
    result: Hashable


def register(value: Hashable, name: str, argument: Hashable) -> SearchStep:
    """Apply an operation of a keyspace to *value*, and return the new value and the result.

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
            raise ValueError(f"no such operation: {name!r}")


def check(
    history: Iterable[Invocation],
    model: Callable[[Hashable, str, Hashable], SearchStep] = register,
    *,
    places_max: int = PLACES_MAX,
) -> list[Violation]:
    """Return the keys of *history* that are not linearizable; all keys are absent at first.

    Args:
        model: what operations do; `register` by default. In each, a `READ` has no effect.

    Raises:
        TooManyOrders: a key could not be decided.
    """
    by_key: dict[str, list[Invocation]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    found = (_Search(by_key[key], model, places_max).violation() for key in sorted(by_key))
    return [violation for violation in found if violation is not None]


class _Frame(NamedTuple):
    """A state of the search: how it was reached, and how to continue from it."""

    chosen: int
    """The operation that was placed last; -1 at the beginning."""
    value: Hashable
    candidates: list[int]
    """The operations that may be next, with the first to try at the end."""


class _Search:
    """The search over one key's orders.

    Closed operations that are not placed yet are in a linked list of events, which are calls and
    returns in the order of time. An operation that was called before the first return may be next.
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
        """Return (instant, is a return, operation) in order."""
        events: list[tuple[float, bool, int]] = []
        for number, operation in enumerate(self._operations):
            if operation.returned_at is not None:
                assert operation.called_at <= operation.returned_at, operation
                events.append((operation.called_at, False, number))
                events.append((operation.returned_at, True, number))
        # False comes before True: a call at the instant of another's return overlaps it.
        return sorted(events)

    def violation(self) -> Violation | None:
        """Return the violation, or None if there is an order."""
        mask = 0
        value: Hashable = ABSENT
        seen: set[tuple[int, Hashable]] = {(mask, value)}
        stack = [_Frame(-1, value, self._candidates(mask, value))]
        furthest: list[_Frame] = []
        while self._next[-1] != len(self._events):  # a closed operation has no place yet
            if not stack[-1].candidates:
                if len(stack) > len(furthest):
                    # A copy: the search goes on.
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
            stack.append(_Frame(number, value, self._candidates(mask, value)))
        return None

    def _candidates(self, mask: int, value: Hashable) -> list[int]:
        """Return what may be next after those in *mask*, with the first to try at the end.

        A read that fits is the only one: it changes nothing, so if there is an order in which it
        comes later, there is one in which it comes now.
        """
        closed: list[int] = []
        at, until = self._next[-1], float("inf")
        while at != len(self._events):
            time, is_return, number = self._events[at]
            if is_return:
                until = time
                break
            if self._operations[number].name == READ and self._after(value, number) == value:
                return [number]
            closed.append(number)
            at = self._next[at]
        alike: dict[tuple[str, Hashable], int] = {}
        for number in self._open:
            operation = self._operations[number]
            if operation.called_at > until:  # and so are all later ones, in the order of calls
                break
            if not mask >> number & 1:
                # Those that would do the same can change places, so the first stands for all.
                alike.setdefault((operation.name, operation.argument), number)
        # Open operations are tried last, because most took no effect, or took it soon.
        return [*reversed(alike.values()), *reversed(closed)]

    def _after(self, value: Hashable, number: int) -> Hashable:
        """Return the value after an operation on *value*, if its result is the seen one."""
        operation = self._operations[number]
        after, result = self._model(value, operation.name, operation.argument)
        if operation.is_open:
            return _NOT_NOW if after == value else after  # without effect, it needs no place
        return after if operation.result is ANY or operation.result == result else _NOT_NOW

    def _first_return(self) -> Invocation:
        """Return the operation without a place that returned first."""
        at = self._next[-1]
        while not self._events[at][1]:
            at = self._next[at]
        return self._operations[self._events[at][2]]

    def _take_out(self, number: int) -> None:
        for at in self._at.get(number, ()):
            before, after = self._previous[at], self._next[at]
            self._next[before], self._previous[after] = after, before

    def _put_back(self, number: int) -> None:
        """Undo the latest `_take_out` that is not undone yet."""
        # In the opposite order of their removal, when each one's neighbours are linked again.
        for at in reversed(self._at.get(number, ())):
            self._next[self._previous[at]] = self._previous[self._next[at]] = at


def _text(operation: Invocation) -> str:
    till = "open" if operation.returned_at is None else f"{operation.returned_at:g}"
    said = "" if operation.is_open or operation.result is ANY else f" -> {operation.result!r}"
    what = f"{operation.name}({operation.argument!r}){said}"
    return f"{operation.called_at:g} to {till}: {what}"


def made_certain(history: Iterable[Invocation], end: float) -> list[Invocation]:
    """Return *history*, recorded until *end*, without open outcomes that its results decide.

    It has reads and appends, and no two appends of a key have the same argument. The returned
    history is linearizable if and only if *history* is:

    - An append with an open outcome that no result shows is left out: it may have no effect, and if
      it had one, it came after everything that was seen.
    - An append that a result shows took effect, and its own result was the items up to its item.
    """
    by_key: dict[str, list[Invocation]] = {}
    for one in history:
        by_key.setdefault(one.key, []).append(one)
    return [each for some in by_key.values() for each in _certain(some, end)]


def _certain(operations: list[Invocation], end: float) -> Iterable[Invocation]:
    longest: tuple[Hashable, ...] = ()
    shown: set[Hashable] = set()
    for one in operations:
        if isinstance(one.result, tuple) and not one.is_open:
            shown.update(one.result)
            longest = max(longest, one.result, key=len)
    upto = {item: longest[: at + 1] for at, item in enumerate(longest)}
    for one in operations:
        is_append = one.name == "append"
        if is_append and one.is_open and one.argument not in shown:
            continue
        if is_append and one.argument in upto and (one.is_open or one.result is ANY):
            till = end if one.returned_at is None else one.returned_at
            yield replace(one, result=upto[one.argument], returned_at=till)
        else:
            yield one
