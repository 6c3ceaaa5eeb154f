"""The forms that members' own accounts must have: a member may be of another version, or lie.

Fields that are not named here are left as they came.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from ringpop_py.base.address import PORT_MAX
from ringpop_py.base.metering import BOUNDS_S
from ringpop_py.base.values.declared import Meta, Named, Natural, Text, convert
from ringpop_py.base.values.packed import a_map

Instant = Annotated[float, Meta(ge=0, le=1e11)]
"""Seconds, of the wall clock."""
Share = Annotated[float, Meta(ge=0, le=1.001)]
Outcomes = tuple[Natural, Natural, Natural]
"""How many pings were answered in time, late, and never."""
TEXT_CHARACTERS_MAX = 1_000
Short = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]
Column = Annotated[tuple[float | None, ...], Meta(max_length=100)]
BUCKETS: Final = len(BOUNDS_S) + 1


class ProxyAccount(Named, frozen=True):
    """The counts of requests, in the answer of ``/admin/node``."""

    handled_here: Natural = 0
    served: Natural = 0
    failures: Natural = 0


class NodeAccount(Named, frozen=True):
    """The answer of ``/admin/node``."""

    checksum: int
    ready: bool
    version: Short
    silent_hosts: dict[Short, Short]
    gossip: dict[Text, int]
    proxy: ProxyAccount
    store: Short | None = None
    http_port: Annotated[int, Meta(ge=1, le=PORT_MAX)] | None = None
    keys: tuple[Short, ...] = ()
    expected: Natural | None = None


class DiskAccount(Named, frozen=True):
    """A disk, in the answer of ``/admin/checkup``."""

    what: Short
    path: Short
    trouble: Short
    free_bytes: Natural | None = None
    total_bytes: Natural | None = None


class StrainAccount(Named, frozen=True):
    """Whether a node gets the processor time that it needs, in the answer of ``/admin/checkup``."""

    woken: Natural
    late: Natural
    stalled_s: Annotated[float, Meta(ge=0, le=1e6)]
    waiting: Share | None
    stolen: Share | None


class StrangerAccount(Named, frozen=True):
    """A peer that a node misunderstood, in the answer of ``/admin/checkup``."""

    peer: Short
    why: Short
    count: Natural


class CheckupAccount(Named, frozen=True):
    """The answer of ``/admin/checkup``."""

    at: Instant
    health_score: Natural
    log_lines_lost: Natural
    disks: Annotated[tuple[DiskAccount, ...], Meta(max_length=16)]
    store_trouble: Text = ""
    flow_troubles: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()
    tick_troubles: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()
    store_trouble_kind: Short = ""
    application_trouble: Text = ""
    connections_refused: Natural = 0
    strain: StrainAccount | None = None
    cpu_s: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    memory_bytes: Natural = 0
    strangers: Annotated[tuple[StrangerAccount, ...], Meta(max_length=100)] = ()
    log_lost_at: Instant = 0.0
    connections_refused_at: Instant = 0.0


class PingAccount(Named, frozen=True):
    """The pings to one member, in the answer of ``/admin/reach``."""

    name: Text
    answered_at: Instant
    failed_at: Instant
    failure: Short
    round_trip_s: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    failing_since: Instant = 0.0
    words: Short = ""
    last_10_s: Outcomes = (0, 0, 0)
    last_300_s: Outcomes = (0, 0, 0)
    tcp: Literal["", "refused", "accepted", "silent"] = ""
    answered: Natural = 0
    failed: Natural = 0


class ReachAccount(Named, frozen=True):
    """The answer of ``/admin/reach``."""

    at: Instant
    pings: Annotated[tuple[PingAccount, ...], Meta(max_length=20_000)]
    lag_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0


class KeyspaceAccount(Named, frozen=True):
    """A keyspace, in the answer of ``/admin/keyspaces``."""

    name: Short
    epoch: Natural
    partitions: Natural
    served: Natural
    failed: Annotated[tuple[Short, ...], Meta(max_length=20_000)]
    generation: Natural
    assignment_version: Natural
    settled: Natural
    waits_for: Text | None = None
    damaged: Annotated[tuple[Natural, ...], Meta(max_length=100_000)] = ()
    damage: Text | None = None
    refusal: Text | None = None
    checkpoint_trouble: Text | None = ""
    overdue_s: float = 0.0
    copies_missing: Natural = 0
    reminders_overdue_s: float = 0.0


class KeyspacesAccount(Named, frozen=True):
    """The answer of ``/admin/keyspaces``."""

    keyspaces: Annotated[tuple[KeyspaceAccount, ...], Meta(max_length=100_000)]


class ShareAccount(Named, frozen=True):
    """A member's share of a keyspace, in the answer of ``/admin/keyspaces/show``."""

    here: dict[Text, Any]


class RowAccount(Named, frozen=True):
    """A partition, in the answer of ``/admin/keyspaces/table``."""

    partition: Natural
    keys: Natural | None


class TableAccount(Named, frozen=True):
    """The answer of ``/admin/keyspaces/table``."""

    rows: Annotated[tuple[RowAccount, ...], Meta(max_length=100_000)]


class JobAccount(Named, frozen=True):
    """A job, in the answer of ``/admin/work``."""

    keyspace: Short
    job: Short
    state: Short
    files: Natural
    partitions_done: Natural
    partitions_count: Natural
    rows_count: Natural
    at: Instant


class ShuffleAccount(Named, frozen=True):
    """A shuffle, in the answer of ``/admin/work``."""

    name: Short
    version: Natural
    state: Short
    intervals: Natural
    placed: Natural
    attempts: Natural
    rows: Natural


class SplitAccount(Named, frozen=True):
    """A split of a stream, in the answer of ``/admin/work``."""

    keyspace: Short
    stream: Short
    split: Short
    read: Natural
    counted: Natural
    held: Natural
    records: Natural
    refused: Natural
    trouble: Text


class DataflowAccount(Named, frozen=True):
    """A dataflow at one worker, in the answer of ``/admin/work``.

    Attributes:
        run: None if the worker has no part now.
        key_groups: the first one, and the one behind the last; empty without a part.
        splits: how far each is read there.
        rows, late, refused: since the node began; records that are read again count again.
    """

    dataflow: Short
    worker: Short
    leader: Short
    epoch: Natural | None
    run: Natural | None
    workers: Annotated[tuple[Short, ...], Meta(max_length=4_000)]
    key_groups: Annotated[tuple[Natural, ...], Meta(max_length=2)]
    splits: Annotated[dict[Text, Natural], Meta(max_length=4_000)]
    watermark: int | None
    rows: Natural
    late: Natural
    refused: Natural
    trouble: Text


class OperationAccount(Named, frozen=True):
    """What was served of one kind, in the answer of ``/admin/work``; see `Tally`.

    Attributes:
        counts, total_s: of a `Histogram`.
    """

    kind: Short
    done: Natural
    refused: Natural
    failed: Natural
    counts: Annotated[tuple[Natural, ...], Meta(min_length=BUCKETS, max_length=BUCKETS)]
    total_s: Annotated[float, Meta(ge=0, le=1e12)]


class WorkAccount(Named, frozen=True):
    """The answer of ``/admin/work``."""

    puts: Natural
    puts_s: Annotated[float, Meta(ge=0, le=1e12)]
    jobs: Annotated[tuple[JobAccount, ...], Meta(max_length=100)]
    shuffles: Annotated[tuple[ShuffleAccount, ...], Meta(max_length=100)]
    streams: Annotated[tuple[SplitAccount, ...], Meta(max_length=4_000)] = ()
    dataflows: Annotated[tuple[DataflowAccount, ...], Meta(max_length=100)] = ()
    operations: Annotated[tuple[OperationAccount, ...], Meta(max_length=100)] = ()


class SeriesAccount(Named, frozen=True):
    """The answer of ``/admin/series``: see `Series`.

    Attributes:
        names: of the figures in each of *columns*, which are *step_s* apart; a figure without a
            value, for example the latency of nothing, is None.
        ended_at: when the newest column was complete.
    """

    step_s: Annotated[float, Meta(gt=0, le=3_600)]
    ended_at: Instant
    names: Annotated[tuple[Short, ...], Meta(max_length=100)]
    columns: Annotated[tuple[Column, ...], Meta(max_length=1_000)]


KINDS: dict[str, type[Named]] = {
    "/admin/node": NodeAccount,
    "/admin/checkup": CheckupAccount,
    "/admin/reach": ReachAccount,
    "/admin/work": WorkAccount,
    "/admin/series": SeriesAccount,
    "/admin/keyspaces": KeyspacesAccount,
    "/admin/keyspaces/show": ShareAccount,
    "/admin/keyspaces/table": TableAccount,
}


def checked(endpoint: str, answer: object) -> dict[str, Any]:
    """Return *answer* of *endpoint* unchanged. Raises BodyError if it is not valid."""
    kind = KINDS.get(endpoint)
    if kind is not None:
        convert(kind, answer, f"the answer of {endpoint}")
    return a_map(answer, "answer")
