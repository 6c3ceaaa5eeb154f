"""A fixture for users' own tests that builds clusters and checks every invariant in them.

```python
def test_my_timing_survives_a_split(ringpop_sim):
    sim = ringpop_sim(nodes=9, settings={"suspect_s": 2.0})
    left, right = sim.split(2)
    sim.at(10 * s).cut(left, right).heal(after=40 * s)

    assert sim.run().converged_s < 10
```

A test fails if an invariant broke in one of its clusters; the message has the seed and the command
to repeat it. A cluster that the test itself did not run is run when the test is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from ringpop_sim.builder import Sim
from ringpop_sim.units import seconds

if TYPE_CHECKING:
    from collections.abc import Generator

    from ringpop_sim.runs.run import Result

SEED_DEFAULT: Final = 1
BROKEN_SHOWN_MAX: Final = 5


class Sims:
    """Makes each `Sim` of one test, with the seed of the command line."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._made: list[Sim] = []

    def __call__(self, *, seed: int | None = None, nodes: int = 8, **plan: Any) -> Sim:  # noqa: ANN401
        """See `Sim`."""
        sim = Sim(self._seed if seed is None else seed, nodes, **plan)
        self._made.append(sim)
        return sim

    def complaints(self) -> list[str]:
        """Return what broke in each cluster; clusters that did not run are run now."""
        results = [(sim, sim.result or sim.run()) for sim in self._made]
        return [_complaint(sim, result) for sim, result in results if not result.ok]


def _complaint(sim: Sim, result: Result) -> str:
    names = sorted({broken.invariant for broken in result.broken})
    lines = [f"seed {sim.seed}: broken: {', '.join(names)}"]
    lines += [
        f"  {broken.invariant} at {seconds(broken.at_us):.6f} s: {broken.detail}"
        for broken in result.broken[:BROKEN_SHOWN_MAX]
    ]
    return "\n".join([*lines, "replay:", sim.replay_command()])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--ringpop-sim-seed``."""
    group = parser.getgroup("ringpop_sim", "simulated clusters")
    group.addoption(
        "--ringpop-sim-seed",
        type=int,
        default=SEED_DEFAULT,
        metavar="N",
        help="the seed of simulated clusters whose tests name none (%(default)s)",
    )


@pytest.fixture
def ringpop_sim(request: pytest.FixtureRequest) -> Sims:
    """Return a maker of `ringpop_sim.Sim`; the test fails if an invariant breaks in one."""
    return Sims(request.config.getoption("--ringpop-sim-seed"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Check, after a test that has passed so far, the invariants of its clusters."""
    # A test that failed raises here: its own error is shown, not what its clusters did.
    outcome = yield
    sims = getattr(item, "funcargs", {}).get("ringpop_sim")
    if isinstance(sims, Sims):
        complaints = sims.complaints()
        if complaints:
            pytest.fail("\n\n".join(complaints), pytrace=False)
    return outcome
