"""The hooks through which checks and reports observe a run in progress."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.messages import Input
    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.world.process import Process


@dataclass(slots=True, eq=False)
class SentRequest:
    """A request in progress, sent by the process *caller*.

    Attributes:
        within_us: the time in which it ought to end.
        may_repeat: whether it may run once more if it may have run.
        gone: whether its caller has gone away.
        attempts, runs: by key, how often it was sent, and how often a handler ran for it.
        lost: by key, how many attempts ended such that they may have run.
        asked: the members that were asked.
        believed: by member that was asked, the checksums of the caller's ring at those times.
        answers: by key, those of handlers.
        results: by key, an answer, an error, or a text about it.
    """

    number: int
    caller: Process
    keys: tuple[str, ...]
    started_at: int
    within_us: int
    may_repeat: bool = False
    gone: bool = False
    attempts: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    asked: set[str] = field(default_factory=set)
    believed: dict[str, set[int]] = field(default_factory=dict)
    answers: defaultdict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    results: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"request {self.number} of {self.caller.name}"


@dataclass(frozen=True, slots=True)
class RequestRun:
    """A process handles *keys* of a request.

    Attributes:
        forwarded: whether they came from another process.
    """

    request: SentRequest
    keys: Sequence[str]
    at: Process
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

    def request_began(self, _request: SentRequest) -> None:
        """A request of the traffic begins."""

    def asked(self, _request: SentRequest, _to: str, _keys: Sequence[str]) -> None:
        """The caller of a request is about to send it to the member *_to*, for *_keys*."""

    def ran(self, _run: RequestRun) -> None:
        """A process handles a request."""

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
