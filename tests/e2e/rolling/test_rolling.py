"""A rolling restart in small; ``python -m tests.e2e.rolling`` is the whole of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.rolling.run import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


async def test_callers_of_all_kinds_meet_no_error_while_a_daemon_is_restarted(
    tmp_path: Path,
) -> None:
    outcome = await run(tmp_path, nodes=3, restarts=[1], handler_s=0.3, each=1, kill=False)

    assert {way: tally.errors for way, tally in outcome.tallies.items() if tally.errors} == {}
    assert outcome.problems == []
    assert all(tally.calls for tally in outcome.tallies.values())
