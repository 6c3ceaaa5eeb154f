"""Drives errands of a simulated keyspace, and serves their parts at the processes they reach."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ringpop_py.base.errors import KeyspaceError, PartitionUnavailable, RingpopError
from ringpop_py.base.values.requests import Moved
from ringpop_py.route.errand import LearningRoutes
from ringpop_py.state.journal.desk import Presence
from ringpop_py.state.ownership.local import LocalPartition
from ringpop_py.state.placement.table import ServedElsewhere
from ringpop_sim.state.keyspaces.calls import Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ringpop_py.route.errand import Ask, Errand
    from ringpop_sim.state.keyspaces.copies import CopyDriver
    from ringpop_sim.state.keyspaces.durable import DurableDriver

    Parts = Sequence[tuple[int, Any]]
    End = Callable[[Any], None]


class Requester(LearningRoutes[int], Caller, Protocol):
    """A process that carries out errands: a member or a client."""

    waiting: list[Callable[[], bool]]

    @property
    def now(self) -> int:
        """The time on its clock."""

    def ask(self, ask: Ask[int], what: str, parts: Parts, end: End, /) -> None:
        """Carry out *ask*; *end* gets the results of *parts*, or an error."""


class ErrandDriver:
    """Drives an errand: *what* of *wanted*, by partition; *end* is called when that is over."""

    def __init__(
        self,
        requester: Requester,
        errand: Errand[int],
        what: str,
        wanted: Mapping[int, Any],
        end: Callable[[], None],
    ) -> None:
        self._requester = requester
        self._errand = errand
        self._what = what
        self._wanted = wanted
        self._end = end
        self._over = False

    def go(self) -> None:
        """Take the next step, or end."""
        step = self._errand.next(self._requester, self._requester.now)
        if step is None:
            self._over = True
            self._end()
        elif isinstance(step, int):
            self._pause(step)
        else:
            for ask in step:
                self._send(ask)

    def _pause(self, until: int) -> None:
        requester, went_on = self._requester, False

        def look() -> bool:
            nonlocal went_on
            if not went_on:
                went_on = True
                requester.after(0, self.go)
            return True

        def due() -> None:
            if look in requester.waiting:
                requester.waiting.remove(look)
                look()

        requester.waiting.append(look)
        requester.after(max(0, until - requester.now), due)

    def _send(self, ask: Ask[int]) -> None:
        parts = [(number, self._wanted[number]) for number in ask.parts]
        self._requester.ask(ask, self._what, parts, lambda value: self._answered(ask, value))

    def _answered(self, ask: Ask[int], value: Any) -> None:
        if isinstance(value, RingpopError):
            self._errand.failed(ask, value)
        else:
            self._errand.answered(ask, value, self._requester)
        if not self._errand.under_way and not self._over:
            self._requester.after(0, self.go)


class PartHome(Protocol):
    """The keyspace at one process. See `ringpop_sim.state.keyspaces.home.Home`."""

    name: str
    steward: Any
    partitions: dict[int, Any]
    copies: CopyDriver
    durable: DurableDriver
    waiting: list[Callable[[], bool]]

    def after(self, delay_us: int, act: Callable[[], None], /) -> None:
        """Call *act* later, when the process runs."""


class PartServer:
    """Serves what is at *home*, as `ringpop_py.state.shares.server` does.

    A part waits up to *wait_us* for a partition that is on its way there.
    """

    def __init__(self, home: PartHome, wait_us: int) -> None:
        self._home = home
        self._wait_us = wait_us

    def serves(self, number: int) -> bool:
        """Return whether partition *number* is served here now."""
        partition = self._home.partitions.get(number)
        return partition is not None and partition.presence is Presence.OWNED

    def serve(self, what: str, parts: Parts, answer: End) -> None:
        """Serve each part; *answer* gets the results: values, `Moved` or errors."""
        results: list[Any] = [None] * len(parts)
        left = len(parts)

        def end(at: int, result: Any) -> None:
            nonlocal left
            results[at] = result
            left -= 1
            if not left:
                answer(results)

        for at, (number, wanted) in enumerate(parts):
            self._serve(what, number, wanted, partial(end, at))

    def _serve(self, what: str, number: int, wanted: Any, end: End) -> None:
        if self._serve_now(what, number, wanted, end):
            return
        home, over = self._home, False

        def look() -> bool:
            return over or self._serve_now(what, number, wanted, end)

        def give_up() -> None:
            nonlocal over
            if look in home.waiting:
                home.waiting.remove(look)
                over = True
                end(self._not_online(number))

        home.waiting.append(look)
        home.after(self._wait_us, give_up)

    def _serve_now(self, what: str, number: int, wanted: Any, end: End) -> bool:
        """Return whether the part need not wait for its partition."""
        home = self._home
        if self.serves(number):
            partition = home.partitions[number]
            if isinstance(partition, LocalPartition):
                serve = home.durable.write if what == "write" else home.durable.read
                serve(partition, wanted, end)
            elif what == "write":
                end(partition.state.write(wanted, home.copies.now_ms))
            else:
                end(partition.state.keyed.packed(wanted))
            return True
        try:
            if home.steward.is_coming(number):
                return False
        except ServedElsewhere as moved:
            end(Moved(moved.row))
        except KeyspaceError as error:
            end(error)
        else:
            end(self._not_online(number))
        return True

    def _not_online(self, number: int) -> PartitionUnavailable:
        return PartitionUnavailable(f"partition {number} is not online at {self._home.name}")
