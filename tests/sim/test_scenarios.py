"""Scenarios by name."""

from __future__ import annotations

import pytest

from ringpop_sim.errors import PlanError
from ringpop_sim.scenarios import SCENARIOS, about, scenario


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_called_by_its_name_and_says_what_it_shows(name: str) -> None:
    assert scenario(name).name == name
    assert about(name).endswith(".")


def test_who_asks_for_another_is_told_what_there_is() -> None:
    with pytest.raises(PlanError, match="there is no scenario 'x'; there is steady, crash, split"):
        scenario("x")
