"""What can be seen of a run while it is under way, by whoever watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.proxy.schedule import Route
    from ringpop_py.swim.effects import Effect
    from ringpop_py.swim.messages import Input
    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.world.process import Process


@dataclass(slots=True, eq=False)
class TrafficRequest:
    """One request on its way, from the process *caller*."""

    number: int
    caller: Process
    route: Route
    started_at: int
    owner: str = ""
    attempt_count: int = 0
    open_attempt: int = 0
    run_count: int = 0
    lost_count: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class RequestAttempt:
    """An owner got a request.

    Attributes:
        believed: the checksum of the sender's ring.
        ran: whether it handled it; else it refused.
        forwarded: whether it came from another process.
    """

    request: TrafficRequest
    at: Process
    believed: int
    ran: bool
    forwarded: bool


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A request is over for its caller: with an answer (empty *error*), or without."""

    request: TrafficRequest
    error: str
    lasted_us: int


class Watcher:
    """Told of what happens. Each hook has a default that does nothing.

    Attributes:
        wants_facts, wants_inputs, wants_duties, wants_messages: whether `fact` and
            `members_changed`, `input`, `duty`, `message` are to be called: what is not asked for
            costs nothing.
    """

    wants_facts: ClassVar[bool] = False
    wants_inputs: ClassVar[bool] = False
    wants_duties: ClassVar[bool] = False
    wants_messages: bool = False

    def started(self, _process: Process) -> None:
        """*process* runs from now on (a revived one: again)."""

    def ended(self, _process: Process) -> None:
        """*process* has ended."""

    def input(self, _process: Process, _message: Input) -> None:
        """*message* is about to be given to the node of *process*."""

    def duty(self, _process: Process, _effect: Effect) -> None:
        """The node of *process* asks for a `Call` or an `Answer`."""

    def fact(self, _process: Process, _effect: Effect) -> None:
        """The node of *process* told something of itself."""

    def members_changed(self, _process: Process, _names: Sequence[str]) -> None:
        """These members' rows changed together at *process*; their facts were passed on before."""

    def message(
        self, _a: int, _b: int, _how: str, _content: object, _delays_us: Sequence[int]
    ) -> None:
        """A message was sent from machine *a* to *b*; each copy that arrives has its delay.

        *how* is what becomes of its *content* there, by the name of the world's method.
        """

    def fault_began(self, _operation: Operation, _nodes: Sequence[int]) -> None:
        """*operation* is about to be done to these nodes of the plan."""

    def fault_ended(self, _operation: Operation, _nodes: Sequence[int]) -> None:
        """What was done to them has been undone."""

    def attempt(self, _attempt: RequestAttempt) -> None:
        """An owner was asked to handle a request, and did, or refused."""

    def request_ended(self, _ended: RequestEnded) -> None:
        """A request of the traffic has come to its end."""

    def finish(self) -> None:
        """The run is over."""


class Watchers(list[Watcher]):
    """All that watch one run.

    Attributes:
        facts, inputs, duties, messages: those of them that want to be told of these.
    """

    def __init__(self, watchers: Iterable[Watcher]) -> None:
        super().__init__(watchers)
        self.facts = [watcher for watcher in self if watcher.wants_facts]
        self.inputs = [watcher for watcher in self if watcher.wants_inputs]
        self.duties = [watcher for watcher in self if watcher.wants_duties]
        self.messages = [watcher for watcher in self if watcher.wants_messages]
