"""Whether this node gets the processor time that it needs, by itself and by the system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.base.metering import Histogram
from ringpop_py.node.signals.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Collection

LATE_S: Final = 0.05
"""From how many seconds on an event loop is late."""
STALLS_S: Final = 10.0
"""For how many seconds the node says that it did not run."""
NAPS: Final = 5
NAP_S: Final = 0.03
PRESSURE: Final = Path("/proc/pressure/cpu")
STAT: Final = Path("/proc/stat")
STEAL: Final = 7
"""The place of the stolen time among those of a processor (proc(5))."""


class Lateness:
    """How late an event loop is when it wakes a node for its deadlines.

    Attributes:
        seconds: all of it.
        recent: how often it was in time, and late, in the last ten seconds.
    """

    __slots__ = ("recent", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.recent = Recent(1.0, 10, 2)

    def observe(self, late_s: float, now: float) -> None:
        """Count that the loop was *late_s* late at *now*."""
        self.seconds.observe(late_s)
        self.recent.note(late_s >= LATE_S, now)

    def recently(self) -> list[int]:
        """Return how often the loop was in time, and late, in the last ten seconds."""
        return self.recent.sums(trio.current_time())


class Strain:
    """See the module. The share of stolen time is that since the last question.

    Args:
        stalls: when the node did not run, and for how many seconds.
        root: of the file system with the system's figures; they are None where it has not got them.
    """

    def __init__(
        self,
        lateness: Lateness,
        stalls: Collection[tuple[float, float]],
        root: Path = Path("/"),
    ) -> None:
        self._lateness, self._stalls, self._root = lateness, stalls, root
        self._ticks = self._read_ticks()

    async def lag_s(self) -> float:
        """Sleep `NAPS` times, and return how late the event loop woke this task, in all.

        A node at rest seldom wakes, and may be in time each time by chance.
        """
        began = trio.current_time()
        for _ in range(NAPS):
            await trio.sleep(NAP_S)
        return max(0.0, trio.current_time() - began - NAPS * NAP_S)

    def told(self) -> dict[str, Any]:
        """Return how often the event loop ran and was late in the last ten seconds, and the rest.

        ``stalled_s`` is for how long the process did not run in the last `STALLS_S`, ``waiting``
        the share of the last ten seconds in which a process of this machine waited for a processor,
        and ``stolen`` the share of their time that the host of this virtual machine took.
        """
        on_time, late = self._lateness.recently()
        began = trio.current_time() - STALLS_S
        stalled_s = sum(lasted_s for at, lasted_s in self._stalls if at >= began)
        before, self._ticks = self._ticks, self._read_ticks()
        spent, stolen = (now - then for now, then in zip(self._ticks, before, strict=True))
        return {
            "woken": on_time + late,
            "late": late,
            "stalled_s": round(stalled_s, 3),
            "waiting": self._waiting(),
            "stolen": round(stolen / spent, 3) if spent > 0 else None,
        }

    def _waiting(self) -> float | None:
        # some avg10=1.53 avg60=1.87 avg300=2.07 total=186371853
        words = self._text(PRESSURE).split()
        shares = [word for word in words if word.startswith("avg10=")]
        return float(shares[0].removeprefix("avg10=")) / 100 if shares else None

    def _read_ticks(self) -> tuple[int, int]:
        """Return all time of the processors, and what of it was stolen."""
        times = [int(word) for word in self._text(STAT).partition("\n")[0].split()[1:]]
        return sum(times[: STEAL + 1]), times[STEAL] if len(times) > STEAL else 0

    def _text(self, path: Path) -> str:
        try:
            return (self._root / path.relative_to("/")).read_text(encoding="ascii")
        except OSError:
            return ""
