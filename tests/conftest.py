"""For all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """End as on Ctrl-C when told to end, so that tests end the processes that they started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
