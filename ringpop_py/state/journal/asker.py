"""Requests of a state machine, by id, and what handles their replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from ringpop_py.base.values.declared import replace
from ringpop_py.state.journal import effects as fx

Effects = list[fx.Effect]
R = TypeVar("R", bound=fx.Request)
REPEAT_US_MIN: Final = 10_000
REPEAT_US_MAX: Final = 1_000_000
_FAILURES: Final = (fx.StoreAnswer.FAILED, fx.StoreAnswer.NO_ROOM)
Handler = Callable[[R, fx.Reply], Effects]


class Asker:
    """Keeps the open requests of one state machine."""

    def __init__(self) -> None:
        self._ids = 0
        self._open: dict[int, tuple[fx.Request, Handler[Any]]] = {}

    @property
    def open_count(self) -> int:
        """How many requests have no reply yet."""
        return len(self._open)

    @property
    def asked_count(self) -> int:
        """How many requests there have been, repetitions included."""
        return self._ids

    def answered(self, request_id: int, reply: fx.Reply) -> Effects:
        """Handle the *reply* to a request. Ignore a second reply, and one that comes too late."""
        request, handler = self._open.pop(request_id, (None, None))
        if request is None or handler is None:
            return []
        return handler(request, reply)

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids

    def _ask(self, request: R, handler: Handler[R]) -> R:
        self._open[request.id] = request, handler
        return request

    def _again(self, request: R, handler: Handler[R]) -> Effects:
        """Repeat *request*, because the store did not report its outcome."""
        attempt = cast(Any, request).attempt + 1
        repeated = replace(request, id=self._new_id(), attempt=attempt)
        return [self._ask(repeated, handler)]


def attempt_of(request: fx.Request) -> int:
    """Return how often *request* was made before."""
    attempt: int = getattr(request, "attempt", 0)
    return attempt


def pause_us(request: fx.Request) -> int:
    """Return how long to wait before *request* is made, in microseconds."""
    attempt = attempt_of(request)
    return min(REPEAT_US_MIN << min(attempt, 16), REPEAT_US_MAX) if attempt else 0


def is_failure(reply: fx.Reply) -> bool:
    """Return whether the store did not carry a request out, or does not say whether it has."""
    return reply in _FAILURES or isinstance(reply, fx.Unreadable)
