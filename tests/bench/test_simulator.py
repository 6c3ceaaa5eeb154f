"""A cluster that is measured as formed is formed: nobody has news, and all agree."""

from __future__ import annotations

from ringpop_sim.runs.run import ALL
from ringpop_sim.units import s
from tests.bench.simulator import ALWAYS_ON, formed


def test_a_formed_cluster_is_one_from_the_beginning_and_breaks_nothing() -> None:
    found = formed(12, ALL, ALWAYS_ON)

    assert found.world.converged()
    found.advance(2 * s)
    assert found.world.converged()
    assert not found.broken
    # A ping and its answer each 0.2 s, from the first instant on, and no list.
    assert 12 * 2 * 10 <= found.world.exchange.message_count <= 12 * 2 * 13
