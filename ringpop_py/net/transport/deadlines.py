"""Deadlines on a coarse wheel: one task and one sleep for all calls and connections of a node.

Adding and removing cost the same however many entries wait. Nothing wakes while no entry is due.
An entry expires up to `TICK_S` after its time, or later if the event loop is late.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ringpop_py.member.swim.messages import QUIET_US
from ringpop_py.net.security.clock import LOOK_S
from ringpop_py.net.security.proof import LASTING, Proof

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.config.settings import WireLimits
    from ringpop_py.net.wire.frames import FrameReader

TICKS_PER_S: Final = 64
TICK_S: Final = 1 / TICKS_PER_S
FAR_S: Final = 30 * 24 * 3600.0
"""How many seconds from now a deadline can be at most; a call with more time gets this much."""

MICROSECONDS: Final = 1_000_000
SILENT_TIMEOUTS_MAX: Final = 3
"""After how many time-outs in a row, with nothing received between, a connection is ended."""
IDLE: Final = "the connection was idle"


def now_us() -> int:
    """Return the time of the clock that drives state machines: trio's, in microseconds."""
    # Rounded: a deadline in seconds must come back as itself, or nothing is due when it comes.
    return round(trio.current_time() * MICROSECONDS)


class Timed(Protocol):
    """An entry of a wheel.

    Attributes:
        bucket: where it is; None while it is on no wheel.
    """

    bucket: dict[Timed, None] | None

    def expire(self) -> None:
        """Act on the deadline; called once, by the wheel's task."""
        ...


class Alarm:
    """Calls *action* at its deadline. See `Timed`."""

    __slots__ = ("_action", "bucket")

    def __init__(self, action: Callable[[], None]) -> None:
        self.bucket: dict[Timed, None] | None = None
        self._action = action

    def expire(self) -> None:
        """See `Timed`."""
        self._action()


class Wheel:
    """Deadlines on the scale of `trio.current_time`."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Timed, None]] = {}
        self._order: list[int] = []  # a heap of the keys of _buckets
        self._sleep: trio.CancelScope | None = None

    def add(self, timed: Timed, at: float) -> None:
        """Have *timed* expire at *at*, which is at most `FAR_S` from now."""
        assert timed.bucket is None
        index = int(at * TICKS_PER_S) + 1  # rounded up: nothing expires early
        bucket = self._buckets.get(index)
        if bucket is None:
            bucket = self._buckets[index] = {}
            heapq.heappush(self._order, index)
            # The task sleeps until a later one: wake it in time.
            if self._sleep is not None and index == self._order[0]:
                self._sleep.deadline = index * TICK_S
        bucket[timed] = None
        timed.bucket = bucket

    def discard(self, timed: Timed) -> None:
        """Remove *timed*, if it is on a wheel."""
        if timed.bucket is not None:
            bucket, timed.bucket = timed.bucket, None
            del bucket[timed]
            # Its task sleeps until this one: it need not wake, as nothing is due then.
            if not bucket and self._sleep is not None and self._buckets[self._order[0]] is bucket:
                self._sleep.deadline = self._next_due()

    async def run(self) -> None:
        """Expire what is due, until cancelled."""
        while True:
            due_at = self._next_due()
            with trio.CancelScope(deadline=due_at) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None
            self._expire_until(trio.current_time())

    def _next_due(self) -> float:
        order = self._order
        # Most calls end before their time, so most buckets are empty by then: no wake-up for them.
        while order and not self._buckets[order[0]]:
            del self._buckets[heapq.heappop(order)]
        return order[0] * TICK_S if order else math.inf

    def _expire_until(self, now: float) -> None:
        while self._order and self._order[0] * TICK_S <= now:
            bucket = self._buckets.pop(heapq.heappop(self._order))
            while bucket:  # one that expires may discard others of this bucket
                timed, _ = bucket.popitem()
                timed.bucket = None
                timed.expire()


class OwedWatch:
    """Whether a peer that owes us answers sends anything; on the wheel while it is watched.

    See `Timed`.

    Args:
        owed: returns whether the peer owes us answers.
        quiet: called each `QUIET_US` in which it did, and sent nothing.

    Attributes:
        spoke: whether bytes have arrived; set from outside.
    """

    __slots__ = ("_owed", "_quiet", "_wheel", "bucket", "spoke")

    def __init__(self, wheel: Wheel, owed: Callable[[], bool], quiet: Callable[[], None]) -> None:
        self.bucket: dict[Timed, None] | None = None
        self.spoke = False
        self._wheel = wheel
        self._owed = owed
        self._quiet = quiet

    def begin(self, now: float) -> None:
        """Watch from *now* on; call it with a call, unless it is on the wheel already."""
        self.spoke = False
        self._wheel.add(self, now + QUIET_US / MICROSECONDS)

    def expire(self) -> None:
        """See `Timed`."""
        if self._owed():  # otherwise the next call begins anew
            spoke = self.spoke
            self.begin(trio.current_time())  # first: what is called may begin a call here
            if not spoke:
                self._quiet()


class PeerWatch:
    """The deadlines of one connection: whether its peer introduces itself, ends frames, answers.

    Args:
        reader: of what the peer sends.
        busy: returns whether calls are under way, so that the connection is not idle.
        silent: ends the connection because the peer is silent, for the given reason.
        idle: ends the connection because it is not used, or must not be, for the given reason.
        owed: watches whether the peer speaks while it owes answers.
    """

    def __init__(
        self,
        wheel: Wheel,
        limits: WireLimits,
        reader: FrameReader,
        *,
        busy: Callable[[], bool],
        silent: Callable[[str], None],
        idle: Callable[[str], None],
        owed: OwedWatch,
    ) -> None:
        self._wheel = wheel
        self._limits = limits
        self._reader = reader
        self._busy = busy
        self._silent = silent
        self._end_idle = idle
        self.owed = owed
        self._heard = False
        self._timeouts = 0  # in a row
        self._late_init = Alarm(lambda: silent("no init frame came in time"))
        self._late_frame = Alarm(lambda: silent("a frame was not finished in time"))
        self._late_frame_count = 0
        self._idle = Alarm(self._check_idle)
        self._ages = Alarm(self._check_age)

    def start(self) -> None:
        """Watch a new connection: the peer has to introduce itself."""
        self._wheel.add(self._late_init, trio.current_time() + self._limits.init_timeout_s)

    def is_up(self, now: float, proof: Proof) -> None:
        """Note that the peer has introduced itself, and its *proof* of that."""
        self._proof = proof
        if proof is not LASTING:
            self._wheel.add(self._ages, now + LOOK_S)
        self._wheel.discard(self._late_init)
        self._wheel.add(self._idle, now + self._limits.idle_timeout_s)

    def end(self) -> None:
        """Stop watching."""
        for alarm in (self._late_init, self._late_frame, self._idle, self._ages, self.owed):
            self._wheel.discard(alarm)

    def heard(self) -> None:
        """Note that bytes arrived."""
        self._heard = self.owed.spoke = True
        self._timeouts = 0
        if self._reader.partial or self._late_frame.bucket is not None:
            self._watch_frame()

    def timed_out(self) -> None:
        """Note that the peer has not answered a call in time."""
        self._timeouts += 1
        if self._timeouts >= SILENT_TIMEOUTS_MAX:
            self._silent("the peer has gone silent")

    def _watch_frame(self) -> None:
        alarm, count = self._late_frame, self._reader.frame_count
        if alarm.bucket is not None and count == self._late_frame_count and self._reader.partial:
            return  # still the same frame: what trickles in does not prolong its time
        self._wheel.discard(alarm)
        if self._reader.partial:
            self._late_frame_count = count
            self._wheel.add(alarm, trio.current_time() + self._limits.frame_timeout_s)

    def _check_age(self) -> None:
        self._wheel.add(self._ages, trio.current_time() + LOOK_S)
        if why := self._proof.why_over(busy=self._busy()):
            self._end_idle(why)

    def _check_idle(self) -> None:
        if self._heard or self._busy():
            self._heard = False
            self._wheel.add(self._idle, trio.current_time() + self._limits.idle_timeout_s)
        else:
            self._end_idle(IDLE)
