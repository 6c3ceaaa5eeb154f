"""The hooks through which checks and reports observe a run in progress."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.messages import Input
    from ringpop_py.route.errand import Ask
    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.requests import WholeRequest


@dataclass(slots=True, eq=False)
class SentRequest:
    """A request in progress, sent by the process *caller*.

    Attributes:
        runs: by key, how often a handler ran for it.
    """

    number: int
    caller: Process
    keys: tuple[str, ...]
    started_at: int
    runs: Counter[str] = field(default_factory=Counter, kw_only=True)


@dataclass(slots=True, eq=False)
class TrafficRequest(SentRequest):
    """A request that is driven here.

    Attributes:
        lost: by key, how many attempts ended such that they may have run.
        ended: the numbers of the asks that have ended for the caller.
        asked: the members that were asked.
    """

    errand: WholeRequest
    lost: Counter[str] = field(default_factory=Counter)
    ended: set[int] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    attempt_count: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class RequestAttempt:
    """One attempt: *keys* of a request reached a node, as their owner.

    Attributes:
        believed: the checksum of the sender's ring.
        ran: whether the node handled them; otherwise the node refused them.
        forwarded: whether they came from another process.
    """

    request: TrafficRequest
    keys: Sequence[str]
    at: Process
    believed: int
    ran: bool
    forwarded: bool


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """The end of a request for its caller: *error* is empty if it was answered."""

    request: SentRequest
    error: str
    lasted_us: int


class Watcher:
    """Observes a run. The world calls its hooks; each hook does nothing by default.

    Attributes:
        wants_messages: whether to call `message`: a trace may be with or without messages.
    """

    wants_messages: bool = False

    def started(self, _process: Process) -> None:
        """*process* has started; for a revived process, it runs again."""

    def ended(self, _process: Process) -> None:
        """*process* has ended."""

    def input(self, _process: Process, _message: Input) -> None:
        """The node of *process* is about to receive *message*."""

    def duty(self, _process: Process, _effect: Effect) -> None:
        """The node of *process* asks for a `CallPeer` or an `AnswerPeer`."""

    def fact(self, _process: Process, _effect: Effect) -> None:
        """The node of *process* reported a fact about itself."""

    def members_changed(self, _process: Process, _names: Sequence[str]) -> None:
        """These members' rows changed together at *process*; `fact` was called for each before."""

    def message(
        self, _a: int, _b: int, _how: str, _content: object, _delays_us: Sequence[int]
    ) -> None:
        """A message was sent from machine *a* to *b*. Each copy that arrives has its delay.

        *how* is what happens to *content* on arrival: the name of the method that is called.
        """

    def fault_began(self, _operation: Operation, _nodes: Sequence[int]) -> None:
        """*operation* is about to affect these nodes of the plan."""

    def fault_ended(self, _operation: Operation, _nodes: Sequence[int]) -> None:
        """*operation* on these nodes has been undone."""

    def asked(self, _request: TrafficRequest, _ask: Ask[str]) -> None:
        """The caller of a request of the traffic has decided to send *_ask*, now."""

    def attempt(self, _attempt: RequestAttempt) -> None:
        """A node was asked, as owner, to handle a request, and handled or refused it."""

    def request_ended(self, _ended: RequestEnded) -> None:
        """A request of the traffic has ended for its caller."""

    def finish(self) -> None:
        """The run is over."""


class Watchers(list[Watcher]):
    """All watchers of one run.

    Attributes:
        facts, inputs, duties, messages: those that have these hooks: another costs nothing there.
    """

    def __init__(self, watchers: Iterable[Watcher]) -> None:
        super().__init__(watchers)
        self.facts = self._with("fact", "members_changed")
        self.inputs = self._with("input")
        self.duties = self._with("duty")
        self.messages = [watcher for watcher in self if watcher.wants_messages]

    def _with(self, *hooks: str) -> list[Watcher]:
        """Return the watchers that have one of these hooks of their own."""
        return [
            watcher
            for watcher in self
            if any(getattr(type(watcher), hook) is not getattr(Watcher, hook) for hook in hooks)
        ]
