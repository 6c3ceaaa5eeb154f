"""The first line of `check` names each fault of a night.

When it does is the measure of `python -m tests.e2e.night`: here, other tests take the processors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.night.__main__ import seen_of
from tests.e2e.night.faults import FAULTS
from tests.e2e.night.hosts import why_no_hosts

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("night")]
WHY_NOT = why_no_hosts()


@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", FAULTS)
def test_the_first_line_names_the_fault(name: str, tmp_path: Path) -> None:
    is_named, lines = seen_of(name, tmp_path / "stand", looks=30)

    assert is_named, "\n".join(lines)
