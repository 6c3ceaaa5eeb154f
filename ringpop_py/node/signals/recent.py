"""How often things happened in the last seconds: counted in steps, and forgotten by them."""

from __future__ import annotations


class Recent:
    """How many events there were in the last seconds, by outcome.

    They are counted in *steps* steps of *step_s* seconds, and forgotten step by step: the sums are
    of the step that has begun, and of those before it.

    Args:
        outcomes: how many outcomes there are; an outcome is a number from 0 on.
    """

    __slots__ = ("_counts", "_outcomes", "_step", "_step_s", "_steps")

    def __init__(self, step_s: float, steps: int, outcomes: int) -> None:
        self._step_s, self._steps, self._outcomes = step_s, steps, outcomes
        self._counts = [0] * (steps * outcomes)
        self._step = 0

    def note(self, outcome: int, now: float) -> None:
        """Count an event at *now*, in seconds of a clock that is never set back."""
        self._counts[self._go_to(now) * self._outcomes + outcome] += 1

    def sums(self, now: float) -> list[int]:
        """Return how many events of each outcome there were until *now*."""
        self._go_to(now)
        return [sum(self._counts[which :: self._outcomes]) for which in range(self._outcomes)]

    def _go_to(self, now: float) -> int:
        """Forget what is too old at *now*; return the place of its step."""
        step = max(self._step, int(now / self._step_s))
        empty = [0] * self._outcomes
        for passed in range(max(self._step + 1, step - self._steps + 1), step + 1):
            at = passed % self._steps * self._outcomes
            self._counts[at : at + self._outcomes] = empty
        self._step = step
        return step % self._steps
