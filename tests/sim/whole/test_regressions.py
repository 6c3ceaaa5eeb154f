"""Plans that once broke an invariant, each by a defect of the product, which was mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_sim.runs.run import run
from ringpop_sim.runs.swarm import Shape

if TYPE_CHECKING:
    from ringpop_py.state.placement.definition import Mode


@pytest.mark.parametrize(
    ("mode", "seed"),
    [
        # W2: the time that a client took to connect was added to that of its call.
        ("memory", 151),
        # W2: owners were connected to one after the other, each in all of the time.
        ("memory", 1017),
    ],
)
def test_a_plan_that_once_broke_an_invariant_holds(mode: Mode, seed: int) -> None:
    plan = Shape(4, 5, keyspaces=True, mode=mode).plan(seed)

    result = run(plan, seed)

    assert result.ok, result.broken
