"""A checker is as good as what it finds: each broken variant of the journal has to be found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sim.hunting.variant import Prey, Variant, hunting, run_with
from tests.sim.state.journal.variants import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def hunts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Prey]]:
    with hunting("state.journal", request, tmp_path_factory) as prey:
        yield prey


@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_broken_variant_is_found(variant: Variant, hunts: dict[str, Prey]) -> None:
    found = hunts[variant.name].result()

    print(found)
    assert found.get("invariant") in variant.found_by.split(), found or "nothing broke"


def test_the_command_says_what_broke_how_to_see_it_again_and_how_it_came_about(
    tmp_path: Path,
) -> None:
    command = ("-m", "ringpop_sim.cli", "journal", "--schedules", "3")
    [variant] = [
        variant for variant in VARIANTS if variant.name == "the newest checkpoint is deleted"
    ]

    done = run_with(variant, tmp_path / "copy", *command)

    assert done.returncode == 1
    assert "schedules, violated: neither the seal" in done.stdout
    assert "replay: bin/ringpop-sim journal --schedules 1 --first " in done.stderr
    assert "DeleteCheckpoints(" in done.stderr
