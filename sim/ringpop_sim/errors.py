"""What a user of the simulator can catch."""

from __future__ import annotations

from ringpop_py.errors import RingpopError


class PlanError(RingpopError, ValueError):
    """A plan that cannot be run: the message says what in it is wrong. Nothing was run."""


class NotDeterministic(RingpopError):
    """The same plan and seed took two different courses: the simulator or the core is at fault."""


class TraceError(PlanError):
    """A file that is no trace; the message names the line where that shows."""
