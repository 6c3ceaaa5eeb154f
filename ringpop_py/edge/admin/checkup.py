"""The checkup of a node, for monitors and the console: its reach, room, work and log."""

from __future__ import annotations

import dataclasses
import resource
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

import trio

from ringpop_py.base.logs import LogEvent, log
from ringpop_py.base.metering import OUTCOMES
from ringpop_py.base.texts import redacted
from ringpop_py.base.values.declared import Named, Natural, asdict, convert
from ringpop_py.edge.admin.accounts import TEXT_CHARACTERS_MAX
from ringpop_py.member.swim.member import Status

if TYPE_CHECKING:
    from ringpop_py.base.logs import Kept
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.stores.metered import MeteredStore

JOBS_MAX: Final = 20
"""The most jobs of a node that are shown."""
SPLITS_MAX: Final = 4_000
"""The most splits of streams of a node that are shown."""


DOUBTED: Final = (Status.ALIVE, Status.SUSPECT, Status.FAULTY)
"""The statuses of members of which it is asked, if pings fail, what their machines do."""
STRANGE_S: Final = 30.0
"""For how many seconds a node says that it misunderstood a peer."""
TROUBLES_MAX: Final = 20
"""The most troubles of streams and dataflows of a node that are shown."""


async def reach(ringpop: Ringpop, _value: object) -> object:
    """Return the outcomes of this node's pings, by member, and what machines in trouble do.

    ``last_10_s`` and ``last_300_s`` count the pings that were answered in time, late, and never.
    ``lag_s`` says how late this node is itself: a late node takes others for late.
    """
    lag_s = await ringpop.signals.strain.lag_s()
    now, until = time.time(), trio.current_time()
    told = [
        (member, row)
        for member in ringpop.members
        if (row := ringpop.signals.reach.peers.get(member.address)) and member.name != ringpop.name
    ]
    doubted = [
        member.address for member, row in told if row.failing_since and member.status in DOUBTED
    ]
    knocks = await ringpop.signals.knocks.at(doubted)
    rows: list[dict[str, Any]] = [
        {
            "name": member.name,
            "answered": row.answered,
            "failed": row.failed,
            "round_trip_s": row.round_trip_s,
            "answered_at": row.answered_at,
            "failed_at": row.failed_at,
            "failing_since": row.failing_since,
            "failure": row.failure,
            "words": row.words,
            "last_10_s": row.seconds.sums(until),
            "last_300_s": row.minutes.sums(until),
            "tcp": knocks.get(member.address, ""),
        }
        for member, row in told
    ]
    return {"source": ringpop.name, "at": now, "lag_s": round(lag_s, 3), "pings": rows}


async def checkup(ringpop: Ringpop, _value: object) -> object:
    """Return the state by which a monitor judges a node, besides that of its other endpoints."""
    store, now = metered_store(ringpop), time.time()
    links = ringpop.channel.links
    refused_at = now - trio.current_time() + links.refused_at if links.refused_count else 0.0
    return {
        "source": ringpop.name,
        "at": now,
        "health_score": ringpop.node.health_score,
        "log_lines_lost": log.lost_count,
        "log_lost_at": now - time.monotonic() + log.lost_at if log.lost_count else 0.0,
        "connections_refused": links.refused_count,
        "connections_refused_at": refused_at,
        "strain": ringpop.signals.strain.told(),
        "strangers": _strangers(ringpop),
        "cpu_s": time.process_time(),
        "memory_bytes": memory_bytes(),
        "store_trouble": "" if store is None else store.trouble,
        "store_trouble_kind": "" if store is None else store.trouble_kind,
        "application_trouble": ringpop.readiness.application_trouble[:TEXT_CHARACTERS_MAX],
        "flow_troubles": _flow_troubles(ringpop),
        "tick_troubles": _tick_troubles(ringpop),
        "disks": await ringpop.signals.disks.usage(),
    }


def _strangers(ringpop: Ringpop) -> list[dict[str, Any]]:
    """Return the peers that this node misunderstood in the last `STRANGE_S`, and why."""
    began = trio.current_time() - STRANGE_S
    recent = [(peer, why) for at, peer, why in ringpop.reporter.troubles if at >= began]
    return [
        {"peer": peer[:TEXT_CHARACTERS_MAX], "why": why[:TEXT_CHARACTERS_MAX], "count": count}
        for (peer, why), count in Counter(recent).most_common(TROUBLES_MAX)
    ]


def work(ringpop: Ringpop, _value: object) -> object:
    """Return what this node is busy with: its store, its jobs, and all that flows through it."""
    store = metered_store(ringpop)
    put = None if store is None else store.seconds["put"]
    listed = () if ringpop.shuffles is None else ringpop.shuffles.load.listed
    return {
        "source": ringpop.name,
        "puts": 0 if put is None else sum(put.counts),
        "puts_s": 0.0 if put is None else put.total_s,
        "jobs": _jobs(ringpop),
        "shuffles": [asdict(shuffle) for shuffle in listed],
        "operations": operations(ringpop),
        **flowing_through(ringpop),
    }


def operations(ringpop: Ringpop) -> list[dict[str, Any]]:
    """Return what this node has served, by kind; kinds without a count are left out."""
    return [
        {
            "kind": kind,
            **{outcome: getattr(tally, outcome) for outcome in OUTCOMES},
            "counts": tally.seconds.counts,
            "total_s": tally.seconds.total_s,
        }
        for kind, tally in ringpop.proxying.operations.by_kind().items()
        if tally.done or tally.refused or tally.failed
    ]


def flowing_through(ringpop: Ringpop) -> dict[str, list[dict[str, Any]]]:
    """Return the splits of streams that this node reads, and its parts in dataflows."""
    flows = ringpop.dataflows
    return {
        "streams": _streams(ringpop),
        "dataflows": [] if flows is None else flows.rows(),
    }


def _flow_troubles(ringpop: Ringpop) -> list[str]:
    """Return why streams and dataflows do not go on here, and what they may have lost."""
    flows = ringpop.dataflows
    texts = [
        f"stream {row['stream']}: {row['split']}: {row['trouble']}".replace(": : ", ": ")
        for row in _streams(ringpop)
        if row["trouble"]
    ]
    for row in () if flows is None else flows.rows():
        name = f"dataflow {row['dataflow']}"
        texts += [f"{name}: {row['trouble']}"] if row["trouble"] else []
        if row["late"]:
            late = f"{row['late']} records came too late since the node began, and were left out"
            texts.append(f"{name}: {late}; dataflow-late in the log names some")
    return [text[:TEXT_CHARACTERS_MAX] for text in texts[:TROUBLES_MAX]]


def _tick_troubles(ringpop: Ringpop) -> list[str]:
    """Return what each schedule of this node has that does not go on."""
    texts = filter(None, (schedule.trouble() for schedule in ringpop.schedules.values()))
    return [text[:TEXT_CHARACTERS_MAX] for text in texts][:TROUBLES_MAX]


def _streams(ringpop: Ringpop) -> list[dict[str, Any]]:
    if not ringpop.keyspaces_on_demand.loaded:
        return []
    streams = (s for keyspace in ringpop.keyspaces.all() for s in keyspace.streams.values())
    return [row for stream in streams for row in stream.rows()][:SPLITS_MAX]


def _jobs(ringpop: Ringpop) -> list[dict[str, object]]:
    """Return the jobs that this node had a part in, the latest first."""
    if not ringpop.keyspaces_on_demand.loaded:
        return []
    from ringpop_py.state.durable.host import DurableHost  # noqa: PLC0415 - loads keyspaces

    found: list[dict[str, Any]] = []
    for keyspace in ringpop.keyspaces.all():
        host = ringpop.keyspaces.here(keyspace.name).host
        seen = host.jobs.seen if isinstance(host, DurableHost) else {}
        found += (
            {"keyspace": keyspace.name, "job": job, **dataclasses.asdict(each)}
            for job, each in seen.items()
        )
    return sorted(found, key=lambda job: -float(job["at"]))[:JOBS_MAX]


def metered_store(ringpop: Ringpop) -> MeteredStore | None:
    """Return the store of this node, if it has one whose calls are timed."""
    opened = ringpop.keyspaces_on_demand.store
    if opened is None:
        return None
    from ringpop_py.state.stores.metered import MeteredStore  # noqa: PLC0415 - only for a store

    return opened.store if isinstance(opened.store, MeteredStore) else None


def memory_bytes() -> int:
    """Return the memory of this process in bytes; its peak, where only that is known."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - a pseudo file
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
NAMES: Final = {number: name for name, number in LEVELS.items()}
PAGE_MAX: Final = 200
"""The most lines of one answer."""
SHOWN: Final = 100
"""The lines of an answer to a caller that names no line after which they begin."""
LINE_CHARACTERS_MAX: Final = 2_000


class _Wanted(Named, frozen=True):
    """What ``/admin/log`` is asked for.

    Attributes:
        after: the number of the line before the first; None asks for the last `SHOWN`.
        level: of which level lines are at least. Debug lines are kept only while they are asked
            for.
    """

    after: Natural | None = None
    level: Literal["debug", "info", "warning", "error"] = "info"


def recent(ringpop: Ringpop, value: object) -> object:
    """Return the lines, the number up to which they reach, and how many before were forgotten."""
    wanted = convert(_Wanted, {} if value is None else value, "request")
    if wanted.level == "debug":
        log.watch()
    kept, after = list(log.kept), wanted.after
    last = kept[-1][0] if kept else 0
    rows = [row for row in kept if row[2] >= LEVELS[wanted.level] and row[0] > (after or 0)]
    if after is None:
        rows = rows[-SHOWN:]
    elif len(rows) > PAGE_MAX:
        rows = rows[:PAGE_MAX]
        last = rows[-1][0]
    forgotten = max(0, kept[0][0] - 1 - after) if kept and after is not None else 0
    return {
        "source": ringpop.name,
        "last": last,
        "forgotten": forgotten,
        "lines": [_line(row) for row in rows],
    }


def _line(row: Kept) -> dict[str, Any]:
    number, at, level, event, fields, raised = row
    text = redacted(str(LogEvent(event, fields)))[:LINE_CHARACTERS_MAX]
    line = {"number": number, "at": at, "level": NAMES[level], "event": event, "text": text}
    return {**line, "traceback": redacted(raised)} if raised else line
