"""For all tests."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import trio
import trio.testing


def pytest_configure(config: pytest.Config) -> None:
    """End as on Ctrl-C when told to end, so that tests end the processes that they started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.addinivalue_line("markers", "virtual_time: where all tasks wait, time jumps")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what is marked so in virtual time; for whole modules, and whatever fixtures they have.

    A clock that is a fixture counts only for tests that name it among their own arguments.
    """
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        if {"virtual_time", "trio"} <= markers:
            item.add_marker(pytest.mark.trio(run=_run_in_virtual_time), append=False)


def _run_in_virtual_time(function: Any, **options: Any) -> object:  # noqa: ANN401 - pytest-trio's
    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(function, **{**options, "clock": clock})
