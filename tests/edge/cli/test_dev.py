"""``ringpopd dev``: what its table says."""

from __future__ import annotations

from ringpop_py.edge.cli.dev import counted


def test_members_are_counted_in_one_order_whatever_that_of_the_list() -> None:
    assert counted(["faulty", "alive", "suspect", "alive"]) == "2 alive, 1 suspect, 1 faulty"
    assert counted([]) == ""
