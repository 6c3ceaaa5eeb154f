"""A request takes no longer a way through our functions and modules than its budget."""

from __future__ import annotations

from tests.bench.activations import BUDGETS, counted, counts_of


def test_each_kind_of_request_stays_within_its_budget() -> None:
    taken = {name: counts_of(way) for name, way in counted().items()}

    assert taken.keys() == BUDGETS.keys()
    over = {
        name: counts
        for name, counts in taken.items()
        if any(count > most for count, most in zip(counts, BUDGETS[name], strict=True))
    }
    assert not over
