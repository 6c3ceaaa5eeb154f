"""What `bench lookup` compares: the same members in rings made in two ways."""

from __future__ import annotations

from tests.bench.lookup import join_together


def test_members_that_join_together_are_compared_with_a_ring_a_member() -> None:
    row = join_together(20)

    assert (row.name, row.peer) == ("lookup.join_together.20", "a ring a member")
    assert row.ratio is not None
