"""What a test saw in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.logs import LogEvent

if TYPE_CHECKING:
    import pytest


def events_in(caplog: pytest.LogCaptureFixture, name: str | None = None) -> list[LogEvent]:
    """The events that were logged, in order; only those of that *name*, if it is given."""
    events = [record.msg for record in caplog.records if isinstance(record.msg, LogEvent)]
    return [event for event in events if name in (None, event.name)]
