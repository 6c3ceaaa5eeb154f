"""The exceptions of the simulator that a user can catch."""

from __future__ import annotations

from ringpop_py.base.errors import RingpopError


class PlanError(RingpopError, ValueError):
    """A plan cannot be run; the message says what is wrong in it. Nothing was run."""


class TraceError(PlanError):
    """A file is not a trace; the message names the line that shows it."""
