"""A request takes no more activations of our functions than its budget."""

from __future__ import annotations

from tests.bench.activations import BUDGETS, counted


def test_each_kind_of_request_stays_within_its_budget() -> None:
    taken = {name: counts.total() for name, counts in counted().items()}

    assert taken.keys() == BUDGETS.keys()
    over = {name: total for name, total in taken.items() if total > BUDGETS[name]}
    assert not over
