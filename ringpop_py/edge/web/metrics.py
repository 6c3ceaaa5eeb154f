"""The metrics of a node, for Prometheus: their names are in docs/monitoring.md.

Layers count in plain integers of their own. They are read on request, so counting costs
calls next to nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from ringpop_py.base.logs import log
from ringpop_py.base.metering import CHECKSUM_BITS, OUTCOMES, Histogram
from ringpop_py.base.version import package_version
from ringpop_py.edge.admin.answers import copies_missing_at, damaged_at
from ringpop_py.edge.admin.checkup import metered_store
from ringpop_py.edge.admin.series import THERE, unserved_count
from ringpop_py.member.swim.member import Status
from ringpop_py.state.durable.host import DurableHost
from ringpop_py.state.keyspaces.shares import has_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.shares import Share
    from ringpop_py.state.ticks.ticks import Schedule

F = TypeVar("F", GaugeMetricFamily, CounterMetricFamily)
L = TypeVar("L", bound=tuple[str, ...])
KEYSPACES_MAX: Final = 100
ENDPOINTS_MAX: Final = 300
"""The most names of keyspaces and endpoints with their own series; the others are one, `REST`:
thousands of names must not make thousands of series."""
REST: Final = "(others)"


class NodeMetrics:
    """See the module. Counts of the whole process, such as those of log lines, are here, too."""

    def __init__(self, ringpop: Ringpop) -> None:
        self._ringpop = ringpop
        self._endpoints, self._keyspace_names = _Slots(ENDPOINTS_MAX), _Slots(KEYSPACES_MAX)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def exposed(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics as text, and its media type, by the header *accept*."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names are not needed before a request (`CollectorRegistry`)."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics as they are now."""
        yield from self._node()
        yield from self._membership()
        yield from self._calls()
        yield from self._requests()
        keyspaces = self._ringpop.keyspaces_on_demand
        if keyspaces.loaded:
            yield from self._keyspaces(
                {one.name: keyspaces.get().here(one.name) for one in keyspaces.get().all()}
            )
            yield from self._store()
            yield from self._dataflows()
            yield from self._ticks()
        yield from self._shuffles()
        yield from _of_log()

    # The node and its members.

    def _node(self) -> Iterator[Metric]:
        ringpop, driver = self._ringpop, self._ringpop.driver
        what = {
            "name": ringpop.name,
            "cluster": ringpop.config.cluster,
            "dialect": ringpop.node.dialect.name,
            "version": package_version(),
        }
        yield _gauge("ringpop_info", "What this node is.", {tuple(what.values()): 1}, *what)
        text = "When this node was started, in seconds since 1970."
        yield _one("ringpop_start_time_seconds", text, ringpop.reporter.started_at)
        yield _one("ringpop_ready", "1 once the first join is done.", ringpop.ready)
        yield _one("ringpop_draining", "1 while it drains or ends.", ringpop.ending.draining)
        away = bool(ringpop.readiness.application_trouble)
        yield _one("ringpop_application_away", "1 while the application beside it is away.", away)
        text = "1 if others than this machine are admitted without keys."
        address = ringpop.address
        insecure = not address.is_loopback and ringpop.credentials is None
        yield _one("ringpop_insecure", text, insecure)
        text = "How slow this node takes itself for; 0 is healthy."
        yield _one("ringpop_health_score", text, ringpop.node.health_score)
        text = "How late the event loop woke the node for its deadlines."
        yield _histogram("ringpop_loop_lateness_seconds", text, {(): driver.lateness.seconds})
        text = "Round trips of pings that were answered."
        yield _histogram("ringpop_ping_seconds", text, {(): driver.reach.round_trips})
        there = (member.address for member in ringpop.members if member.status.reachable)
        text = "Pings of the last 10 s to members that are alive or suspect."
        yield _gauge("ringpop_pings_recent", text, driver.reach.recent(there), "outcome")
        on_time, late = driver.lateness.recently()
        yield _one("ringpop_loop_woken_recent", "Wakes in the last 10 s.", on_time + late)
        yield _one("ringpop_loop_late_recent", "How often it was late.", late)
        text = "Events of the gossip protocol."
        counts = {(name,): count for name, count in asdict(ringpop.node.counts).items()}
        yield _counter("ringpop_gossip_events", text, counts, "event")
        text = "Hosts of the bootstrap file that have not answered for 10 s."
        yield _one("ringpop_hosts_silent", text, len(ringpop.silent_hosts()))

    def _membership(self) -> Iterator[Metric]:
        ringpop = self._ringpop
        members = ringpop.members
        by_status = Counter({status.label: 0 for status in Status})
        by_status.update(member.status.label for member in members)
        counts = {(status,): count for status, count in by_status.items()}
        yield _gauge(
            "ringpop_members", "Members by status, as this node sees them.", counts, "status"
        )
        yield _one("ringpop_members_expected", "By --expect, or 0.", ringpop.config.expect or 0)
        yield _one("ringpop_members_damped", "Damped members.", sum(m.damped for m in members))
        yield _one("ringpop_ring_members", "Members of the ring.", len(ringpop.ring))
        share = ringpop.ring.weights().get(ringpop.name, 0.0)
        yield _one("ringpop_ring_share", "This node's share of the ring, 0 to 1.", share)
        text = "How often the set of the ring's members has changed."
        yield _counter("ringpop_ring_changes", text, {(): ringpop.placement.changes_count})
        text = "Changes of members that were seen, by the new status."
        changes = {(status.label,): ringpop.reporter.status_changes[status] for status in Status}
        yield _counter("ringpop_member_changes", text, changes, "status")
        text = "48 bits of the membership checksum: equal on nodes that see the same."
        yield _one("ringpop_membership_checksum", text, ringpop.checksum & CHECKSUM_BITS)

    # Calls and requests.

    def _calls(self) -> Iterator[Metric]:
        channel = self._ringpop.channel
        served = channel.handlers.served
        counts: Counter[tuple[str, ...]] = Counter()
        failed: Counter[tuple[str, ...]] = Counter()
        took: dict[tuple[str, ...], Histogram] = {}
        for (service, endpoint), one in served.items():
            if not one.count:
                continue
            has_slot = self._endpoints.gives_slot((service, endpoint))
            name = (service, endpoint if has_slot else REST)
            counts[name] += one.count
            for code, count in one.failed.items():
                failed[*name, code.name.lower()] += count
            took.setdefault(name, Histogram()).add(one.seconds)
        labels = "service", "endpoint"
        yield _counter("ringpop_calls", "Calls that came.", counts, *labels)
        text = "Calls that were answered with an error."
        yield _counter("ringpop_calls_failed", text, failed, *labels, "code")
        text = "From the bytes of a call to its answer; one of 16 calls is timed."
        yield _histogram("ringpop_call_seconds", text, took, *labels)
        text = "Calls that no handler got: unserved, declined, or for the caller's role or limit."
        refused = {(why,): count for why, count in channel.handlers.refused.items()}
        yield _counter("ringpop_calls_refused", text, refused, "why")
        yield _one("ringpop_connections", "Open connections.", len(channel.links))
        text = "Connections that were refused, as there were as many as there may be."
        yield _counter("ringpop_connections_refused", text, {(): channel.links.refused_count})
        under_way = sum(len(link.incoming) for link in channel.links)
        yield _one("ringpop_calls_under_way", "Calls of others that wait for an answer.", under_way)

    def _requests(self) -> Iterator[Metric]:
        counts = self._ringpop.proxying.counts
        tallies = self._ringpop.proxying.operations.by_kind()
        text = "Operations that ended here, by kind and by outcome: done, refused, or failed."
        ended = {(k, o): getattr(tally, o) for k, tally in tallies.items() for o in OUTCOMES}
        yield _counter("ringpop_operations", text, ended, "kind", "outcome")
        text = "How long operations took that were served here; one of 16 is timed."
        took = {(kind,): tally.seconds for kind, tally in tallies.items() if tally.done}
        yield _histogram("ringpop_operation_seconds", text, took, "kind")
        text = "Calls with requests to the owners of their keys."
        yield _counter("ringpop_requests_forwarded", text, {(): counts.proxied})
        text = "Calls to owners that failed, by error; the request may be tried again."
        failed = {(error,): count for error, count in counts.attempts_failed.items()}
        yield _counter("ringpop_attempts_failed", text, failed, "error")
        yield _counter(
            "ringpop_retries", "Calls to owners that were repeated.", {(): counts.retries}
        )
        text = "Retries that went to another owner."
        yield _counter("ringpop_reroutes", text, {(): counts.reroutes})
        text = "Forwarded requests that this node refused, by why."
        refused = {("keys",): counts.refused_keys, ("checksum",): counts.refused_checksum}
        yield _counter("ringpop_requests_refused", text, refused, "why")
        yield _one("ringpop_requests_under_way", "Requests at work here.", counts.in_flight)

    # Keyspaces.

    def _keyspaces(self, shares: Mapping[str, Share]) -> Iterator[Metric]:
        there = {member.name for member in self._ringpop.members if member.status in THERE}
        sums: dict[str, Counter[tuple[str, ...]]] = {what: Counter() for what in _SUMS}
        pauses: dict[tuple[str, ...], Histogram] = {}
        for name, share in shares.items():
            host, table = share.host, share.host.table
            has_slot = self._keyspace_names.gives_slot(name)
            label = (name if has_slot else REST,)
            online = host.driver.online()
            sums["partitions"][label] += len(table)
            sums["unserved"][label] += unserved_count(table, there)
            sums["here"][label] += len(online)
            sums["keys"][label] += sum(len(partition.state) for partition in online)
            due = [partition.state.due for partition in online]
            sums["expiring"][label] += sum(map(len, due))
            overdue_s = (int(each.overdue_s()) for each in due)
            sums["overdue"][label] = max(sums["overdue"][label], *overdue_s, 0)
            sums["copies_missing"][label] += copies_missing_at(host)
            stage = share.keyspace.stage
            sums["reminding"][label] += sum(len(wakes) for _, wakes in stage.armed())
            sums["late"][label] = max(sums["late"][label], int(stage.reminders_overdue_s()))
            sums["moving"][label] += len(table.moving)
            sums["failed"][label] += any(has_failed(m, name) for m in self._ringpop.members)
            # Counters of those without a slot are left out: a sum would fall when one is dropped.
            if has_slot:
                sums["expired"][label] += self._ringpop.keyspaces.states.expired[name]
                sums["reminders_done"][label] += stage.reminders["done"]
                sums["reminders_failed"][label] += stage.reminders["failed"]
            if has_slot and isinstance(host, DurableHost):
                watches = self._ringpop.keyspaces.states.watches[name]
                sums["watches"][label] += watches.waiting
                sums["changes_sent"][label] += watches.sent
                sums["watch_gaps"][label] += watches.gaps
                written, jobs = host.checkpointer.counts, host.jobs.counts
                sums["files"][label] += jobs.staged_files
                sums["committed"][label] += jobs.committed
                sums["aborted"][label] += jobs.aborted
                sums["writes"][label] += host.writer.journal.next_slot - 1
                sums["checkpoints"][label] += written.whole_count + written.incremental_count
                sums["checkpoints_failed"][label] += written.failed_count
                sums["checkpoint_bytes"][label] += written.bytes_count
                sums["checkpoint_troubles"][label] += bool(host.checkpointer.trouble)
                sums["damaged"][label] += len(damaged_at(host))
                sums["obstacles"][label] += len(host.driver.troubles())
                pauses.setdefault(label, host.driver.steward.handoff_seconds)
                for stream in share.keyspace.streams.values():
                    sums["stream_records"][label] += stream.records_count
                    sums["stream_refused"][label] += stream.refused_count
                    splits = stream.rows()
                    sums["stream_splits"][label] += len(splits)
                    sums["stream_troubles"][label] += sum(bool(s["trouble"]) for s in splits)
        for what, (kind, name, text) in _SUMS.items():
            yield kind(name, text, sums[what], "keyspace")
        text = "How long a partition was served nowhere when it was handed over."
        yield _histogram("ringpop_handoff_seconds", text, pauses, "keyspace")

    def _dataflows(self) -> Iterator[Metric]:
        flows = self._ringpop.dataflows
        rows = [] if flows is None else flows.rows()
        for kind, name, text, column in _OF_DATAFLOWS:
            found = {(row["dataflow"],): float(row[column] or 0) for row in rows}
            yield kind(name, text, found, "dataflow")
        troubles = {(row["dataflow"],): float(bool(row["trouble"])) for row in rows}
        text = "1 if a part of a dataflow does not go on."
        yield _gauge("ringpop_dataflow_in_trouble", text, troubles, "dataflow")

    def _ticks(self) -> Iterator[Metric]:
        for kind, name, text, value in _OF_TICKS:
            found = {(name,): value(one) for name, one in self._ringpop.schedules.items()}
            yield kind(name, text, found, "schedule")

    def _store(self) -> Iterator[Metric]:
        store = metered_store(self._ringpop)
        if store is None:
            return
        took = {(verb,): seconds for verb, seconds in store.seconds.items()}
        text = "How long the store took, by verb. Of a local store, `get` is not timed."
        yield _histogram("ringpop_store_seconds", text, took, "verb")
        failed = {(verb,): store.failed[verb] for verb in store.seconds}
        yield _counter("ringpop_store_failed", "Verbs of the store that failed.", failed, "verb")

    def _shuffles(self) -> Iterator[Metric]:
        beside = self._ringpop.shuffles
        if beside is None:
            return
        yield _one("ringpop_shuffle_process", "1 while the process for shuffles runs.", beside.runs)
        load = beside.load
        text = "Shuffles that have rows here, by state."
        yield _gauge("ringpop_shuffles", text, {(s,): n for s, n in load.shuffles.items()}, "state")
        yield _one("ringpop_shuffle_held_bytes", "Rows on their way, in memory.", load.held_bytes)
        yield _one("ringpop_shuffle_disk_bytes", "Files of shuffles on disk.", load.disk_bytes)
        starts = {(): beside.starts}
        yield _counter("ringpop_shuffle_starts", "Starts of the process for shuffles.", starts)


def _of_log() -> Iterator[Metric]:
    counts = {
        (event, logging.getLevelName(level).lower()): count
        for (event, level), count in list(log.counts.items())  # other threads log as well
    }
    text = "Events that this process has logged; docs/monitoring.md says what each means."
    yield _counter("ringpop_log_events", text, counts, "event", "level")
    text = "Lines of the log that could not be written."
    yield _counter("ringpop_log_lines_lost", text, {(): log.lost_count})


class _Slots:
    """Slots that give the first *most* names a series of their own, permanently."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[object] = set()

    def gives_slot(self, name: object) -> bool:
        """Return whether *name* has a series of its own."""
        if name not in self._names and len(self._names) < self._most:
            self._names.add(name)
        return name in self._names


def _family(kind: type[F], name: str, text: str, values: Mapping[L, float], *labels: str) -> F:
    family = kind(name, text, labels=labels)
    for label, value in values.items():
        family.add_metric(label, value)
    return family


_gauge: Final = partial(_family, GaugeMetricFamily)
_counter: Final = partial(_family, CounterMetricFamily)
_OF_DATAFLOWS: Final = (
    (_gauge, "ringpop_dataflow_epoch", "The newest epoch that is complete.", "epoch"),
    (_counter, "ringpop_dataflow_rows", "Rows that the stage here has processed.", "rows"),
    (_counter, "ringpop_dataflow_late", "Rows that came too late, and were left out.", "late"),
    (_counter, "ringpop_dataflow_refused", "Records that could not be used.", "refused"),
)
_OF_TICKS: Final[
    tuple[tuple[Callable[..., Metric], str, str, Callable[[Schedule], float]], ...]
] = (
    (_counter, "ringpop_ticks_ended", "Ticks that have ended here.", lambda one: one.ended_count),
    (_counter, "ringpop_ticks_failed", "Attempts that failed here.", lambda one: one.failed_count),
    (
        *(_gauge, "ringpop_tick_overdue_seconds", "Since when the next tick is due."),
        lambda one: one.overdue_s(),
    ),
)


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return _gauge(name, text, {(): float(value)})


def _histogram(
    name: str, text: str, values: Mapping[L, Histogram], *labels: str
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=labels)
    for label, value in values.items():
        buckets = [
            ("+Inf" if bound == float("inf") else str(bound), count)
            for bound, count in value.cumulative()
        ]
        family.add_metric(label, buckets, value.total_s)
    return family


_SUMS: Final[dict[str, tuple[Callable[..., Metric], str, str]]] = {
    "partitions": (_gauge, "ringpop_partitions", "Partitions."),
    "unserved": (_gauge, "ringpop_partitions_unserved", "Partitions that nobody serves."),
    "moving": (_gauge, "ringpop_partitions_moving", "Partitions that are being handed over."),
    "here": (_gauge, "ringpop_partitions_here", "Partitions that this node serves."),
    "keys": (_gauge, "ringpop_keys_here", "Keys in these."),
    "expiring": (_gauge, "ringpop_keys_expiring", "Those of them that expire."),
    "expired": (_counter, "ringpop_keys_expired", "Keys that have expired here."),
    "overdue": (_gauge, "ringpop_keys_overdue_seconds", "Since when the oldest one is due."),
    "copies_missing": (_gauge, "ringpop_copies_missing", "Partitions here with too few copies."),
    "reminding": (_gauge, "ringpop_actors_with_reminders", "Actors here that have reminders."),
    "reminders_done": (_counter, "ringpop_reminders", "Turns with reminders, here."),
    "reminders_failed": (_counter, "ringpop_reminders_failed", "Those that have failed."),
    "late": (_gauge, "ringpop_reminders_overdue_seconds", "Since when the oldest one is due."),
    "watches": (_gauge, "ringpop_watches", "Watchers that wait for changes here."),
    "changes_sent": (_counter, "ringpop_changes_sent", "Changes that were sent to watchers."),
    "watch_gaps": (_counter, "ringpop_watch_gaps", "Watchers that asked for what is gone."),
    "obstacles": (_gauge, "ringpop_partition_obstacles", "Partitions that cannot come here now."),
    "failed": (_gauge, "ringpop_keyspace_failed", "1 if a bug has stopped a member's share."),
    "writes": (_counter, "ringpop_commits", "Groups of writes in this node's journal."),
    "checkpoints": (_counter, "ringpop_checkpoints", "Checkpoints that this node wrote."),
    "checkpoints_failed": (_counter, "ringpop_checkpoints_failed", "Those that failed."),
    "checkpoint_troubles": (_gauge, "ringpop_checkpoints_in_trouble", "1 while they fail."),
    "damaged": (_gauge, "ringpop_partitions_damaged", "Those with something damaged."),
    "stream_records": (_counter, "ringpop_stream_records", "Records brought by streams."),
    "stream_refused": (_counter, "ringpop_stream_refused", "Records that could not be used."),
    "stream_splits": (_gauge, "ringpop_stream_splits", "Splits that this node reads."),
    "stream_troubles": (_gauge, "ringpop_stream_splits_in_trouble", "Those that do not go on."),
    "files": (_counter, "ringpop_job_files", "Files of jobs that this node took."),
    "committed": (_counter, "ringpop_jobs_committed", "Jobs that this node committed."),
    "aborted": (_counter, "ringpop_jobs_aborted", "Jobs that this node aborted."),
    "checkpoint_bytes": (_counter, "ringpop_checkpoint_bytes", "The bytes of those written."),
}
