"""Figures of members for the console, from what they say of themselves. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from ringpop_py.base.metering import BOUNDS_S, quantile_ms
from ringpop_py.edge.console.ringmap import MOVING, SERVED, UNSERVED
from ringpop_py.edge.console.svg import natural
from ringpop_py.state.placement.table import PartitionStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ringpop_py.state.placement.table import TableRow

WINDOW_S: Final = 10.0
"""What happens per second is a mean of so many seconds."""
PLACED: Final = ("alive", "suspect", "faulty")
"""The statuses of members that have a place in pictures."""
LOST: Final = ("killed", "paused", "cut")
"""The causes of problems whose members nobody reaches."""
_MEGABYTE: Final = 1_000_000


class Tallied(NamedTuple):
    """What a member has counted since it began; a figure is None if its version has no such count.

    Attributes:
        at: when it said so, in seconds of any clock.
        answered, failed: operations of all kinds; what was refused was answered.
        buckets: the counts of a `Histogram` of those operations that are timed.
    """

    at: float
    answered: int | None
    failed: int | None
    buckets: tuple[int, ...]
    cpu_s: float | None
    memory_bytes: int | None
    puts: int
    puts_s: float

    @classmethod
    def of(cls, at: float, work: Mapping[str, Any], checkup: Mapping[str, Any]) -> Self:
        """Return what is in the answers of ``/admin/work`` and ``/admin/checkup``."""
        tallies = work.get("operations")
        counts = [tally["counts"] for tally in tallies or ()] or [[0] * (len(BOUNDS_S) + 1)]
        return cls(
            at,
            None if tallies is None else sum(each["done"] + each["refused"] for each in tallies),
            None if tallies is None else sum(each["failed"] for each in tallies),
            tuple(map(sum, zip(*counts, strict=True))),
            checkup.get("cpu_s"),
            checkup.get("memory_bytes"),
            work.get("puts", 0),
            work.get("puts_s", 0.0),
        )

    def continues(self, before: Self) -> bool:
        """Return whether this is of the same process as *before*."""
        mine, earlier = (
            (one.answered or 0, one.failed or 0, one.cpu_s or 0.0, one.puts, one.puts_s)
            for one in (self, before)
        )
        return all(now >= then for now, then in zip(mine, earlier, strict=True))


class Figures:
    """How busy a member is: the difference of what it has counted now and some seconds ago."""

    def __init__(self) -> None:
        self._samples: list[Tallied] = []
        self._put_ms: float | None = None

    def note(self, sample: Tallied) -> None:
        """Add what the member has said now."""
        if self._samples and not sample.continues(self._samples[-1]):
            self._samples, self._put_ms = [], None  # it is another process
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].at <= sample.at - WINDOW_S:  # noqa: PLR2004 - a difference
            del self._samples[0]
        first = self._samples[0]
        if puts := sample.puts - first.puts:
            self._put_ms = _rounded(1_000 * (sample.puts_s - first.puts_s) / puts)

    def told(self) -> dict[str, Any]:
        """Return the figures, rounded so that a quiet member's stay the same.

        A latency is of the last `WINDOW_S`; without puts, that of puts stays.
        """
        if not self._samples:
            return dict.fromkeys(FIGURES)
        first, last = self._samples[0], self._samples[-1]
        span_s = last.at - first.at
        counted = None if last.answered is None else last.answered + (last.failed or 0)
        before = None if first.answered is None else first.answered + (first.failed or 0)
        buckets = [now - then for now, then in zip(last.buckets, first.buckets, strict=True)]
        memory = last.memory_bytes
        return {
            "handled": last.answered,
            "failed": last.failed,
            "requests_s": _rounded(_slope(counted, before, span_s)),
            "p99_ms": _rounded(quantile_ms(buckets, 0.99)),
            "cpu_percent": _whole(_slope(last.cpu_s, first.cpu_s, span_s / 100)),
            "memory_mb": None if memory is None else round(memory / _MEGABYTE),
            "put_ms": self._put_ms,
        }


FIGURES: Final = (
    *("handled", "failed", "requests_s", "p99_ms", "cpu_percent", "memory_mb", "put_ms"),
)


def _slope(now: float | None, then: float | None, span: float) -> float | None:
    return (now - then) / span if now is not None and then is not None and span > 0 else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.2g}")


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def cells_of(reach: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the answer of ``/admin/reach`` as cells of a row of the matrix; see `paths_of`."""
    # Many members have the same figures: with 500 of them there are 250,000 cells.
    shared: dict[tuple[Any, ...], dict[str, Any]] = {}
    found: dict[str, dict[str, Any]] = {}
    for row in reach["pings"]:
        trip_s = row["round_trip_s"]
        in_time, late, lost = row.get("last_10_s", (0, 0, 0))
        total, bad = in_time + late + lost, late + lost
        # A single failure may be chance.
        fails = row["failed_at"] > max(row["answered_at"], row.get("failing_since", 0.0))
        cell = {
            "ms": None if trip_s is None else _rounded(1_000 * trip_s),
            "lost": round(bad * (bad > 1) / total, 2) if total else None,
            "failure": row["failure"] if fails else "",
            "tcp": row.get("tcp", ""),
        }
        found[row["name"]] = shared.setdefault(tuple(cell.values()), cell)
    return found


def lost_in(
    members: Iterable[Mapping[str, Any]], problems: Iterable[Mapping[str, Any]]
) -> set[str]:
    """Return the members that answer nobody: the faulty ones, and those that the judge found."""
    faulty = {member["name"] for member in members if member["status"] == "faulty"}
    lost = (problem["members"] for problem in problems if problem["cause"] in LOST)
    return faulty.union(*lost)


def placed(members: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of members that have a place in pictures, in its order."""
    there = [member for member in members if member["status"] in PLACED]
    return sorted(there, key=lambda member: natural(member["name"]))


def owned(
    name: str, table: Iterable[TableRow], places: Sequence[str], there: Collection[str]
) -> dict[str, Any]:
    """Return a keyspace as `Owned` has it.

    Args:
        places: the names of members in the order of their places.
        there: the members that serve what they own.
    """
    numbers = {member: number for number, member in enumerate(places)}
    owners: list[int] = []
    states: list[str] = []
    for row in table:
        served = row.owner in there and row.status is PartitionStatus.ONLINE
        owners.append(numbers.get(row.owner, -1) if served else -1)
        states.append(UNSERVED if not served else MOVING if row.moving else SERVED)
    return {"name": name, "owners": owners, "states": "".join(states)}
