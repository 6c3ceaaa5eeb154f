"""`ringpop_sim.linear.made_certain`: a history that is made certain says the same, only sooner."""

from __future__ import annotations

import random

import pytest

from ringpop_sim.linear import ABSENT, ANY, Invocation, check, made_certain

END = 1000.0


def append(item: int, seen: object, at: float, till: float | None) -> Invocation:
    return Invocation("k", "append", item, seen, at, till)


def get(seen: object, at: float, till: float) -> Invocation:
    return Invocation("k", "get", None, seen, at, till)


def test_an_open_append_that_nobody_has_seen_is_left_out() -> None:
    seen = append(1, (1,), 0, 1)

    assert made_certain([seen, append(2, ANY, 0, None)], END) == [seen]


def test_an_open_append_that_was_seen_has_its_place() -> None:
    read = get((1, 2), 5, 6)
    history = [append(1, (1,), 0, 1), append(2, ANY, 2, None), read]

    assert made_certain(history, END) == [history[0], append(2, (1, 2), 2, END), read]


def test_a_repeated_append_keeps_the_time_of_its_answer() -> None:
    history = [append(1, ANY, 0, 3), get((1,), 5, 6)]

    assert made_certain(history, END)[0] == append(1, (1,), 0, 3)


def test_many_open_appends_take_no_time() -> None:
    many = [append(item, ANY, 0, None) for item in range(200)]

    assert check(made_certain([*many, get((7, 3), 5, 6), get((7, 3, 9), 7, 8)], END)) == []


def random_history(seed: int) -> list[Invocation]:
    """What clients saw of a list that sometimes loses its last item."""
    rng = random.Random(seed)
    items: tuple[int, ...] = ()
    history = []
    for number in range(7):
        at = number * 10.0 - rng.randrange(25)
        till = number * 10.0 + rng.randrange(25)
        if rng.random() < 0.4:
            history.append(get(items or ABSENT, at, till))
            continue
        took_effect, is_open = rng.random() < 0.8, rng.random() < 0.4
        if took_effect:
            items = (*items, number)
        if rng.random() < 0.1:
            items = items[:-1]
        if is_open:
            history.append(append(number, ANY, at, None))
        elif took_effect:
            history.append(append(number, rng.choice((items, ANY)), at, till))
    return history


@pytest.mark.parametrize("seed", range(20))
def test_it_says_the_same_as_before(seed: int) -> None:
    for each in range(20 * seed, 20 * seed + 20):
        history = random_history(each)

        assert bool(check(made_certain(history, END))) == bool(check(history)), history
