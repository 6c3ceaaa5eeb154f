"""The checker of histories: what it must let pass, what it must not, and what that costs."""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING

import pytest

from ringpop_sim.linear import ABSENT, ANY, Invocation, SearchStep, TooManyOrders, check, register

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


DONE, REFUSED = True, False


def op(
    name: str,
    argument: Hashable,
    result: Hashable,
    called_at: float,
    returned_at: float | None,
    key: str = "k",
) -> Invocation:
    return Invocation(key, name, argument, result, called_at, returned_at)


def put(value: Hashable, called_at: float, returned_at: float | None) -> Invocation:
    return op("put", value, None, called_at, returned_at)


def get(value: Hashable, called_at: float, returned_at: float) -> Invocation:
    return op("get", None, value, called_at, returned_at)


SOUND = {
    "nothing happened": [],
    "one after the other": [put(1, 0, 1), get(1, 2, 3), put(2, 4, 5), get(2, 6, 7)],
    "what was never put is absent": [get(ABSENT, 0, 1)],
    "a get beside a put sees the old value": [put(1, 0, 1), put(2, 2, 9), get(1, 3, 4)],
    "a get beside a put sees the new value": [put(1, 0, 1), put(2, 2, 9), get(2, 3, 4)],
    "puts side by side in either order": [put(1, 0, 9), put(2, 0, 9), get(2, 10, 11)],
    "a call at the instant of a return overlaps it": [put(1, 0, 2), get(ABSENT, 2, 3)],
    "an open put took effect": [put(1, 0, None), get(1, 5, 6)],
    "an open put never took effect": [put(1, 0, None), get(ABSENT, 5, 6)],
    "an open put took effect late": [
        put(1, 0, None),
        get(ABSENT, 5, 6),
        put(2, 7, 8),
        get(1, 9, 10),
    ],
    "deleted": [put(1, 0, 1), op("delete", None, None, 2, 3), get(ABSENT, 4, 5)],
    "a put that changes nothing now, and much later": [
        put(1, 0, 1),
        put(1, 0, 9),
        put(2, 2, 3),
        get(1, 10, 11),
    ],
    "None is a value": [put(None, 0, 1), get(None, 2, 3)],
    "of two compare_and_set one won": [
        op("compare_and_set", (ABSENT, 1), DONE, 0, 9),
        op("compare_and_set", (ABSENT, 2), REFUSED, 0, 9),
        get(1, 10, 11),
    ],
    "an open compare_and_set took effect": [
        put(1, 0, 1),
        op("compare_and_set", (1, 2), None, 2, None),
        get(2, 4, 5),
    ],
    "sums": [op("add", 2, 2, 0, 1), op("add", 3, 5, 2, 3), get(5, 4, 5)],
    "some of many open additions took effect": [
        *[op("add", 1, None, 0, None) for _ in range(40)],
        get(23, 5, 6),
    ],
    "a result that says nothing": [op("add", 2, ANY, 0, 1), get(2, 2, 3)],
    "items": [op("append", "a", ("a",), 0, 1), op("append", "b", ANY, 2, 3), get(("a", "b"), 4, 5)],
}

UNSOUND = {
    "a lost write": [put(1, 0, 1), get(ABSENT, 2, 3)],
    "a stale read": [put(1, 0, 1), put(2, 2, 3), get(1, 4, 5)],
    "a value from nowhere": [get(7, 0, 1)],
    "a value from the future": [get(1, 0, 1), put(1, 2, 3)],
    "an open put seen before it was called": [get(1, 0, 1), put(1, 2, None)],
    "an open put that was taken back": [put(1, 0, None), get(1, 2, 3), get(ABSENT, 4, 5)],
    "an open put that took effect twice": [
        put(1, 0, None),
        get(1, 2, 3),
        put(2, 4, 5),
        get(2, 6, 7),
        get(1, 8, 9),
    ],
    "two readers disagree about an order": [
        put(1, 0, 99),
        put(2, 0, 99),
        get(1, 1, 2),
        get(2, 3, 4),
        get(1, 5, 6),
    ],
    "time runs backwards within one put": [
        put(1, 0, 1),
        put(2, 2, 99),
        get(2, 3, 4),
        get(1, 5, 6),
    ],
    "two owners: both compare_and_set won": [
        op("compare_and_set", (ABSENT, 1), DONE, 0, 9),
        op("compare_and_set", (ABSENT, 2), DONE, 0, 9),
    ],
    "a compare_and_set that was refused for no reason": [
        put(1, 0, 1),
        op("compare_and_set", (1, 2), REFUSED, 2, 3),
    ],
    "an addition that took effect twice": [op("add", 1, ANY, 0, 1), get(2, 2, 3)],
    "an open addition that took effect twice": [op("add", 1, None, 0, None), get(2, 2, 3)],
    "an addition that was lost": [op("add", 1, 1, 0, 1), op("add", 1, 1, 2, 3)],
    "an item that was lost": [op("append", "a", ("a",), 0, 1), op("append", "b", ("b",), 2, 3)],
    "items that changed places": [
        op("append", "a", ANY, 0, 1),
        op("append", "b", ANY, 2, 3),
        get(("b", "a"), 4, 5),
    ],
}


@pytest.mark.parametrize("what", SOUND)
def test_a_history_that_one_copy_could_have_made_passes(what: str) -> None:
    assert check(SOUND[what]) == []


@pytest.mark.parametrize("what", UNSOUND)
def test_a_history_that_no_single_copy_could_have_made_is_found(what: str) -> None:
    violations = check(UNSOUND[what])

    assert [violation.key for violation in violations] == ["k"]


@pytest.mark.parametrize("seed", range(300))
def test_it_says_what_trying_all_orders_says(seed: int) -> None:
    history = _any_history(random.Random(seed))

    assert (check(history) == []) is _has_an_order(history)


def test_keys_do_not_concern_each_other() -> None:
    history = [
        op("put", 1, None, 0, 1, key="a"),
        op("get", None, ABSENT, 2, 3, key="a"),
        op("put", 1, None, 0, 1, key="b"),
        op("get", None, 1, 2, 3, key="b"),
    ]

    assert [violation.key for violation in check(history)] == ["a"]


def test_a_violation_tells_how_far_an_order_came() -> None:
    (violation,) = check([put(1, 0, 1), put(2, 2, 3), get(1, 4, 5)])

    assert violation.stuck == get(1, 4, 5)
    assert str(violation).splitlines()[1:] == [
        "  0 to 1: put(1) -> None",
        "  2 to 3: put(2) -> None",
        "  now it holds 2, and there is no place for",
        "  4 to 5: get(None) -> 1",
    ]


def test_a_model_of_ones_own() -> None:
    def largest(value: Hashable, name: str, argument: Hashable) -> SearchStep:
        if name == "get":
            return SearchStep(value, value)
        before = 0 if value is ABSENT else value
        assert isinstance(before, int)
        assert isinstance(argument, int)
        return SearchStep(max(before, argument), None)

    raised = [op("max", 3, None, 0, 1), op("max", 2, None, 2, 3)]

    assert check([*raised, get(3, 4, 5)], largest) == []
    assert check([*raised, get(2, 4, 5)], largest) != []


def test_a_search_that_is_too_long_ends_undecided() -> None:
    at_once = [put(n, 0, 100) for n in range(12)]

    with pytest.raises(TooManyOrders, match="'k'"):
        check([*at_once, get("none of them", 101, 102)], places_max=1_000)


def test_reads_that_wait_long_do_not_make_the_search_long() -> None:
    # Each is called while the next put is under way, and has its place before that.
    pairs = [(put(n, n, n + 1.5), get(n, n + 1.2, 100 + n)) for n in range(1, 60)]

    assert check([one for pair in pairs for one in pair], places_max=1_000) == []


def test_two_thousand_operations_over_fifty_keys_take_about_a_second() -> None:
    history = _history_of_clients(random.Random(1), clients=8, count=2_000, keys=50)
    began_at = time.process_time()

    assert check(history) == []

    assert time.process_time() - began_at < 5


def test_one_lost_write_among_two_thousand_operations_is_found() -> None:
    history = _history_of_clients(random.Random(2), clients=8, count=2_000, keys=50)
    sums = [n for n, o in enumerate(history) if o.name == "add" and not o.is_open]
    lost = history.pop(sums[len(sums) // 2])

    assert [violation.key for violation in check(history)] == [lost.key]


def _any_history(rng: random.Random) -> list[Invocation]:
    """A few operations, with results that may be wrong."""
    history = []
    for _ in range(rng.randint(1, 6)):
        called_at = rng.randint(0, 8)
        returned_at = None if rng.random() < 0.25 else called_at + rng.randint(0, 5)
        kind = rng.randrange(3)
        value = rng.choice((ABSENT, 1, 2))
        if kind == 0:
            history.append(get(value, called_at, called_at + rng.randint(0, 5)))
        elif kind == 1:
            history.append(put(rng.randint(1, 2), called_at, returned_at))
        else:
            wanted = (value, rng.randint(1, 2))
            won = rng.random() < 0.5
            history.append(op("compare_and_set", wanted, won, called_at, returned_at))
    return history


def _has_an_order(history: Sequence[Invocation]) -> bool:
    """The definition, word by word: some of the open ones, and all others, in some order."""
    closed = [n for n, operation in enumerate(history) if not operation.is_open]
    unknown = [n for n, operation in enumerate(history) if operation.is_open]
    return any(
        _is_order([history[n] for n in order])
        for count in range(len(unknown) + 1)
        for some in itertools.combinations(unknown, count)
        for order in itertools.permutations([*closed, *some])
    )


def _is_order(order: Sequence[Invocation]) -> bool:
    value: Hashable = ABSENT
    for n, operation in enumerate(order):
        if any(
            o.returned_at is not None and o.returned_at < operation.called_at for o in order[n:]
        ):
            return False
        value, result = register(value, operation.name, operation.argument)
        if not operation.is_open and result != operation.result:
            return False
    return True


def _history_of_clients(
    rng: random.Random, *, clients: int, count: int, keys: int
) -> list[Invocation]:
    """What clients see of one true copy, with some answers that never came."""
    values: dict[str, Hashable] = {}
    free_at = [0.0] * clients
    history = []
    for n in range(count):
        client = rng.randrange(clients)
        called_at = max(free_at[client], n * 1.0)
        acts_at = called_at + rng.random() * clients
        history.append((acts_at, called_at, client, n))
        free_at[client] = acts_at
    found = []
    for acts_at, called_at, _, n in sorted(history):
        number = rng.randrange(keys)
        key = f"k{number:02}"
        if number % 3 == 0:
            name, argument = ("add", 1) if rng.random() < 0.7 else ("get", None)
        elif number % 3 == 1:
            name, argument = ("append", n) if rng.random() < 0.7 else ("get", None)
        else:
            name, argument = rng.choice((("put", n), ("get", None), ("delete", None)))
        values[key], result = register(values.get(key, ABSENT), name, argument)
        returned_at = None if rng.random() < 0.05 else acts_at + rng.random()
        found.append(op(name, argument, result, called_at, returned_at, key))
    return found
