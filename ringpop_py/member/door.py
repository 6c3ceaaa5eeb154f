"""Whether the application beside a node is away (pure): it has failed, or answered, steadily."""

from __future__ import annotations

from typing import Final

STEADY_US: Final = 1_000_000
"""The door moves after outcomes have contradicted it for so many microseconds, without a break."""


class ApplicationDoor:
    """The door to one application: requests come in while it is open.

    Times are microseconds of one clock that does not run back.

    Attributes:
        is_open: whether the application counts as there.
        trouble: why the application failed last; empty if the last outcome is an answer.
    """

    def __init__(self, trouble: str = "") -> None:
        self.is_open = not trouble
        self.trouble = trouble
        self._since: int | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether the last outcome contradicts `is_open`."""
        return self._since is not None

    def answered(self, now: int) -> bool:
        """Note that the application has answered; return whether the door opens by that."""
        self.trouble = ""
        return self._note(now, contradicts=not self.is_open)

    def failed(self, now: int, why: str) -> bool:
        """Note that the application has failed, and why; return whether the door shuts by that."""
        self.trouble = why
        return self._note(now, contradicts=self.is_open)

    def _note(self, now: int, *, contradicts: bool) -> bool:
        if not contradicts:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if now - self._since < STEADY_US:
            return False
        self.is_open, self._since = not self.is_open, None
        return True
