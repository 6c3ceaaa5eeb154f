"""One request to the first members of its key: whom to ask, and whether enough answered (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ConfigError, NotEnoughReplies
from ringpop_py.route.proxy.request import Reply, Request

if TYPE_CHECKING:
    from ringpop_py.base.errors import RingpopError

MEMBERS_MAX: Final = 16
"""The most members that get one request."""

Resolve = Callable[[Sequence[Reply]], Reply]
"""Returns one reply for those of several members, which are in ring order."""
Repair = Callable[[Reply], Request | None]
"""Returns what the members get that replied something else, given the reply that was resolved."""


def most_given(replies: Sequence[Reply]) -> Reply:
    """Return the reply whose body most members gave; of those given equally often, the first."""
    counts = Counter(reply.body for reply in replies)
    return max(replies, key=lambda reply: counts[reply.body])


@dataclass(slots=True)
class Quorum:
    """One request to the first *n* members of its key, of which *needed* have to answer.

    A driver asks those whom `ask` names, and notes in `replies` or `errors` how each ended. After
    an end it calls `ask` again: the ring may have others by now, who stand in for those that
    failed.

    Attributes:
        what: the name of *needed* for the caller, ``w`` or ``r``.
        replies: by member, in the order in which they came.
        errors: why a member does not answer.

    Raises:
        ConfigError: when it is made, if the numbers do not fit.
    """

    n: int
    needed: int
    what: str
    replies: dict[str, Reply] = field(default_factory=dict)
    errors: dict[str, RingpopError] = field(default_factory=dict)
    _asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if type(self.n) is not int or not 1 <= self.n <= MEMBERS_MAX:
            raise ConfigError(f"n is 1 to {MEMBERS_MAX} members, not {self.n!r}")
        if type(self.needed) is not int or not 1 <= self.needed <= self.n:
            raise ConfigError(f"{self.what} is 1 to n ({self.n}) members, not {self.needed!r}")

    def ask(self, members: Sequence[str]) -> list[str]:
        """Return whom to ask now, given the first *n* members of the key as the ring is now."""
        # An answer of a member that the ring no longer has counts: it has done what was asked.
        free = self.n - self._pending - len(self.replies)
        found = [member for member in members if member not in self._asked][:free]
        self._asked += found
        return found

    @property
    def _pending(self) -> int:
        return len(self._asked) - len(self.replies) - len(self.errors)

    @property
    def is_reached(self) -> bool:
        """Whether enough members have answered."""
        return len(self.replies) >= self.needed

    @property
    def is_decided(self) -> bool:
        """Whether enough members have answered, or can no longer do so."""
        return self.is_reached or len(self.replies) + self._pending < self.needed

    def in_order(self) -> dict[str, Reply]:
        """Return the replies by member, in the order in which the members were asked."""
        return {name: self.replies[name] for name in self._asked if name in self.replies}

    def others_than(self, reply: Reply) -> list[str]:
        """Return the members whose replies differ from *reply* in their bodies."""
        return [name for name, other in self.in_order().items() if other.body != reply.body]

    def failure(self) -> RingpopError:
        """Return the error of a request to which too few members answer."""
        asked, errors = self._asked, self.errors
        if len(asked) < self.needed:  # so it was sent to nobody
            few = f"{self.what} is {self.needed}, more than the members in the ring ({len(asked)})"
            return NotEnoughReplies(few, (), "no")
        for error in errors.values():
            if isinstance(error, ConfigError) and not self.replies:
                return error  # of an option, or of the request, which is the same for all
        history = []
        for name in asked:
            ended = "answered" if name in self.replies else "no answer yet"
            if name in errors:
                ended = f"{type(errors[name]).__name__}: {errors[name]}"
            history.append(f"{name}: {ended}")
        certain = len(errors) == len(asked) and {e.took_effect for e in errors.values()} == {"no"}
        count = f"{len(self.replies)} of {len(asked)}"
        return NotEnoughReplies(
            f"{count} members have answered, and {self.what} is {self.needed}",
            history,
            "no" if certain else "unknown",
            answered=[*self.in_order()],
            errors=errors,
        )
