"""A request whose keys need one owner, in the simulator's traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringpop_py.base.errors import RingpopError
from ringpop_py.route.proxy.key_groups import Together
from ringpop_py.route.proxy.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.route.errand import Ask
    from ringpop_py.route.proxy.owners import KeyRoutes
    from ringpop_py.route.proxy.retry import SchedulePolicy


class WholeRequest:
    """A request whose keys need one owner: the product's `Retry`, and its results.

    Attributes:
        results: by key, once it is over.
    """

    def __init__(self, keys: tuple[str, ...], policy: SchedulePolicy) -> None:
        self.results: dict[str, Any] = {}
        self._keys = keys
        self._retry = Retry(keys, policy)

    @property
    def under_way(self) -> list[Ask[str]]:
        """The attempt whose end was not reported, if there is one."""
        ask = self._retry.under_way
        return [] if ask is None else [ask]

    def next(self, routes: KeyRoutes, now: int) -> list[Ask[str]] | int | None:
        """Return what to ask now, or when to look again; None if it is over."""
        if self.results:
            return None
        keys = self._keys
        # As `Proxy` does it.
        step = self._retry.next(routes if len(keys) == 1 else Together(routes, keys), now)
        if isinstance(step, RingpopError):
            self.results = dict.fromkeys(keys, step)
            return None
        return step if isinstance(step, int) else [step]

    def answered(self, ask: Ask[str], results: Sequence[Any]) -> None:
        """Report the answer to *ask*. Ignore it if another attempt has begun since."""
        if ask is self._retry.under_way:
            self._retry.under_way = None
            self.results = dict(zip(self._keys, results, strict=True))

    def failed(self, ask: Ask[str], error: RingpopError) -> None:
        """Report that *ask* ended with *error*."""
        self._retry.failed(ask, error)
