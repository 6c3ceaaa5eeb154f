"""The surroundings of processes and clients: chance, time, the register, and messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from ringpop_sim.flow.shuffle.disk import Disk
from ringpop_sim.flow.shuffle.truth import Truth
from ringpop_sim.state.journal.sweep import ScheduleWorld

if TYPE_CHECKING:
    from ringpop_py.flow.shuffle.protocol.messages import FrameId
    from ringpop_py.flow.shuffle.protocol.record import MemberId, Record, Winner

TIMEOUTS: Final = (40, 250)
"""After so long, a call no longer gets an answer."""
PACES: Final = (12, 12, 60)
"""The most time from one frame of a client to the next."""


class Callee(Protocol):
    """A process that can be called.

    Attributes:
        up: whether it runs.
        silenced: whether its messages that are on their way no longer arrive.
    """

    up: bool
    silenced: bool


P = TypeVar("P", bound=Callee)
Reply = Callable[[Any], None]


class Register:
    """The record, in a place where it can be compared and set; a deleted one stays."""

    def __init__(self, record: Record, changed: Callable[[Record], None]) -> None:
        self.record = record
        self._changed = changed
        changed(record)

    def compare_and_set(self, version: int, record: Record) -> bool:
        """Set *record* if the present one has *version*."""
        if self.record.version != version:
            return False
        self.record = record
        self._changed(record)
        return True


class Around(ScheduleWorld, Generic[P]):
    """What processes and clients stand on.

    Attributes:
        pace: how long a client takes from one frame to the next, at most.
        lossy: whether messages get lost, or arrive twice or late, and reads fail.
        changed: whether copies may have been lost that have to be somewhere.
        store: what is in the store, of the present shuffle.
        receipts: by frame, those in it.
    """

    def __init__(self, seed: int, lease: int, record: Record, *, traced: bool) -> None:
        super().__init__(seed, traced=traced)
        self.store = Disk()
        self.receipts: dict[FrameId, Winner] = {}
        self.lease = lease
        self.pace = self.rng.choice(PACES)
        self.lossy = False
        self.changed = False
        self.truth: Truth = Truth(lease)
        self.processes: dict[str, P] = {}
        self.timeout = self.rng.choice(TIMEOUTS)
        self._incarnation = 1
        self.register = Register(record, self.record_changed)

    def record_changed(self, record: Record) -> None:
        """Note that the record is *record* from now on."""
        self.note("record", record)
        self.changed = True
        self.truth.changed(record, self.now)

    # Chance.

    def delay(self) -> int:
        """Return how long a message takes."""
        if self.lossy and self.rng.random() < 0.04:  # noqa: PLR2004 - a share
            return self.rng.randrange(200)
        return 1 + self.rng.randrange(6)

    def store_delay(self) -> int:
        """Return how long the store takes: longer than a lease, now and then."""
        if self.lossy and self.rng.random() < 0.06:  # noqa: PLR2004 - a share
            return self.rng.randrange(2 * self.lease)
        return 1 + self.rng.randrange(8)

    def fails(self) -> bool:
        """Return whether what is tried now fails."""
        return self.lossy and self.rng.random() < 0.05  # noqa: PLR2004 - a share

    def incarnation(self) -> int:
        """Return the wall clock, which goes on with each look."""
        self._incarnation += 1
        return self._incarnation

    # Messages.

    def call(
        self,
        to: MemberId | str,
        handle: Callable[[P, Reply], None],
        then: Reply,
        source: P | None = None,
    ) -> None:
        """Have the process at the host of *to* handle a call; *then* gets its answer, or None."""
        call = _Call(self, to if isinstance(to, str) else to.host, handle, then, source)
        self.after(self.timeout, partial(call.answered, None))
        if not self.fails():
            self.after(self.delay(), call.arrive)
        if self.fails():
            self.after(self.delay(), call.arrive)  # or once more


@dataclass(slots=True)
class _Call(Generic[P]):
    around: Around[P]
    host: str
    handle: Callable[[P, Reply], None]
    then: Reply
    source: P | None
    is_open: bool = True

    def arrive(self) -> None:
        process = self.around.processes[self.host]
        if process.up and (self.source is None or not self.source.silenced):
            self.handle(process, partial(self._answer, process))

    def _answer(self, process: P, value: object) -> None:
        if not self.around.fails():
            self.around.after(self.around.delay(), partial(self._leave, process, value))

    def _leave(self, process: P, value: object) -> None:
        if not process.silenced:
            self.answered(value)

    def answered(self, value: object) -> None:
        if self.is_open and (self.source is None or self.source.up):
            self.is_open = False
            self.then(value)
