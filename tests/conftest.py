"""For all tests."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from hypothesis import settings

from ringpop_py.base.faults import sendable
from tests.virtual import held_for_threads

if TYPE_CHECKING:
    from collections.abc import Generator


def pytest_configure(config: pytest.Config) -> None:
    """End as on Ctrl-C when told to end, so that tests end the processes that they started.

    Whoever starts the tests in the background of a script has them ignore SIGINT, and the processes
    that they start inherit that, unless it is caught here.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    config.addinivalue_line("markers", "virtual_time: where all tasks wait, time jumps")
    # By default an example that takes longer than 200 ms fails, as it may on any busy machine.
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Have what was captured be Unicode: otherwise it cannot travel from a worker of xdist."""
    report = yield
    report.sections = [(name, sendable(text)) for name, text in report.sections]
    return report


def pytest_itemcollected(item: pytest.Item) -> None:
    """Say who runs beside whom: before xdist asks, which it does among the first."""
    item.add_marker(pytest.mark.xdist_group(_company(item)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say who runs first, and run what is marked so in virtual time.

    That mark is for whole modules, and whatever fixtures they have: a clock that is a fixture
    counts only for tests that name it among their own arguments.
    """
    if getattr(config.option, "loadgroup", False):  # else in the order of the files
        if not all("@" in item.nodeid for item in items):
            raise pytest.UsageError("xdist has not taken the groups of tests: another version?")
        items.sort(key=lambda item: _company(item) not in LONGEST)
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        if {"virtual_time", "trio"} <= markers:
            item.add_marker(pytest.mark.trio(run=_run_in_virtual_time), append=False)


LONGEST = frozenset({"spark", "e2e", "tests/sim/test_planted_bugs.py"})
"""Companies that begin before all others: nothing is to be left to one worker in the end."""


def _company(item: pytest.Item) -> str:
    """Whom a test runs after, and not beside, when several are run at a time.

    Tests of one Spark session or one cluster share it; those of one module share what is set up for
    it, and real processes are started for one test at a time.
    """
    if {"spark", "cluster"} & set(getattr(item, "fixturenames", ())):
        return "spark"
    if item.path.is_relative_to(item.config.rootpath / "tests" / "e2e"):
        return "e2e"
    return item.nodeid.partition("::")[0]


def _run_in_virtual_time(function: Any, **options: Any) -> object:  # noqa: ANN401 - pytest-trio's
    clock = trio.testing.MockClock(autojump_threshold=0)
    with held_for_threads(clock):
        return trio.run(function, **{**options, "clock": clock})
