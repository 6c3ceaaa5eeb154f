"""A checker is as good as what it finds: each broken variant of the shuffle has to be found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sim.flow.shuffle.variants import VARIANTS
from tests.sim.hunting.variant import Prey, Variant, hunting

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def hunts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Prey]]:
    with hunting("flow.shuffle", request, tmp_path_factory) as prey:
        yield prey


@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_broken_variant_is_found(variant: Variant, hunts: dict[str, Prey]) -> None:
    found = hunts[variant.name].result()

    print(found)
    assert found.get("invariant") in variant.found_by.split(), found or "nothing broke"
