"""A request takes no more activations of our functions than its budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.activations import BUDGETS, counted, main

if TYPE_CHECKING:
    import pytest


def test_each_kind_of_request_stays_within_its_budget() -> None:
    taken = {name: counts.total() for name, counts in counted().items()}

    assert taken.keys() == BUDGETS.keys()
    over = {name: total for name, total in taken.items() if total > BUDGETS[name]}
    assert not over


def test_the_counts_of_one_kind_of_request_can_be_seen_by_package(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--only", "proxied call"])

    lines = capsys.readouterr().out.splitlines()
    counts = [line.split() for line in lines[1:]]
    assert lines[0].startswith("proxied call: ")
    assert sum(int(count) for count, _ in counts) == int(lines[0].split()[2].rstrip(","))
    assert "ringpop_py.net.transport" in {package for _, package in counts}
