"""Figures with a part and without it as rows, and that the experiments find what they look for."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from ringpop_py.base.config.settings import GossipConfig
from tests.bench.protocol import PARTS

SWITCHES = [field.name for field in fields(GossipConfig) if field.type == "bool"]


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_switch_of_the_protocol_is_measured_and_written_about(switch: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")

    assert (switch, False) in {setting for part in PARTS for setting in part.off}
    assert f"| `{switch}`" in page
