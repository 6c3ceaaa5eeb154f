"""Parts of replies about keyspaces.

`here_of` describes the replying node alone; the others describe the cluster as this node knows it.
"""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import StateDamaged
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.state.durable.host import DurableHost
from ringpop_py.state.keyspaces.shares import has_failed
from ringpop_py.state.placement.table import PartitionStatus
from ringpop_py.state.shares.driver import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Collection

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.catalog.manifests import Manifest
    from ringpop_py.state.memory.host import MemoryHost
    from ringpop_py.state.placement.table import TableRow

    AnyHost = DurableHost | MemoryHost

TROUBLES_SHOWN: Final = 10
ONLINE: Final = PartitionStatus.ONLINE


def manifest_map(manifest: Manifest) -> dict[str, object]:
    """Return a checkpoint of a whole keyspace, without its files."""
    return {
        "name": manifest.name,
        "number": manifest.number,
        "keyspace": manifest.keyspace,
        "generation": manifest.generation,
        "partitions": len(manifest.files),
        "keys": sum(file.keys_count for file in manifest.files),
        "bytes": sum(file.size_bytes for file in manifest.files),
        "members": list(manifest.members),
        "made_by": manifest.made_by,
        "made_at": manifest.made_at_us / 1_000_000,
    }


def members_there(ringpop: Ringpop) -> dict[str, Member]:
    """Return the members that may serve what they own, by name."""
    there = (Status.ALIVE, Status.SUSPECT, Status.LEAVE)
    return {member.name: member for member in ringpop.members if member.status in there}


def row_map(row: TableRow, there: Collection[str]) -> dict[str, object]:
    """Return a partition as it is in the table, and whether it is served and settled."""
    served = row.status is ONLINE and row.owner in there
    return {
        "partition": row.partition,
        "status": row.status.label,
        "owner": row.owner,
        "desired": row.desired,
        "previous": row.previous,
        "epoch": row.epoch,
        "checkpoint": list(row.checkpoint) if row.checkpoint.epoch else None,
        "served": served,
        "settled": served and row.owner == row.desired,
    }


def summary_of(ringpop: Ringpop, name: str) -> dict[str, object]:
    """Return one keyspace in figures."""
    share = ringpop.keyspaces.here(name)
    host = share.host
    table, there = host.table, members_there(ringpop)
    served = [row for row in table if row.status is ONLINE and row.owner in there]
    members = host.members()
    counts, desired = Counter(row.owner for row in served), Counter(row.desired for row in table)
    damaged = damaged_at(host)
    return {
        "source": ringpop.name,
        "name": name,
        "mode": host.definition.mode,
        "strategy": host.definition.strategy,
        "generation": host.generation,
        "partitions": len(table),
        "epoch": table.epoch,  # it only rises: the latest view has the greatest
        "assignment_version": host.assignment_version,
        "statuses": table.statuses(),
        "served": len(served),
        "settled": sum(row.owner == row.desired for row in served),
        "moving": len(table.moving),
        "members": [
            {"name": member, "partitions": counts[member], "desired": desired[member]}
            for member in sorted({*members, *table.counts()})
        ],
        "busiest_over_mean": table.busiest_over_mean(len(members)),
        "waits_for": _waits_for(host),
        "failed": [member.name for member in ringpop.members if has_failed(member, name)],
        "refusal": host.watch.why or None if isinstance(host, DurableHost) else None,
        "checkpoint_trouble": host.checkpointer.trouble if isinstance(host, DurableHost) else "",
        "overdue_s": max(
            (each.state.due.overdue_s() for each in host.driver.online()), default=0.0
        ),
        "copies_missing": copies_missing_at(host),
        "reminders_overdue_s": share.keyspace.stage.reminders_overdue_s(),
        "damaged": [*damaged],
        "damage": next(iter(damaged.values()), None),
    }


def damaged_at(host: AnyHost) -> dict[int, str]:
    """Return the partitions that cannot come to this node as something is damaged, and what."""
    found: dict[int, str] = {}
    if isinstance(host, DurableHost):
        for number in sorted(host.driver.steward.coming):
            obstacle = host.driver.obstacle(number)
            if isinstance(obstacle, StateDamaged):
                found[number] = str(obstacle)
    return found


def copies_missing_at(host: AnyHost) -> int:
    """Return how many of the partitions that this node serves have fewer copies than wanted."""
    return 0 if isinstance(host, DurableHost) else host.driver.feeder.missing_count


def _waits_for(host: AnyHost) -> str | None:
    why = host.driver.steward.waits_for
    if why is not None:
        return str(why)
    return None if host.table.assigned else "it was opened here just now"


def keys_here(host: AnyHost) -> dict[int, int]:
    """Return the number of keys of each partition that is online here."""
    return {partition.number: len(partition.state) for partition in host.driver.online()}


def here_of(ringpop: Ringpop, host: AnyHost) -> dict[str, object]:
    """Return what only this node knows of its share of a keyspace."""
    keys = keys_here(host)
    value: dict[str, object] = {
        "name": ringpop.name,
        "partitions": len(keys),
        "keys": sum(keys.values()),
        "gaining": len(host.driver.steward.coming),
        "failure": host.driver.failure or None,
    }
    if isinstance(host, DurableHost):
        value |= _durable_here(host)
    return value


def _durable_here(host: DurableHost) -> dict[str, object]:
    steward, written = host.driver.steward, host.checkpointer.counts
    journal = host.writer.journal
    pauses_s = [pause_us / MICROSECONDS for pause_us in steward.handoff_pauses_us]
    troubles = host.driver.troubles()
    return {
        "handoffs": {
            "count": len(pauses_s),
            "pause_s_p50": median(pauses_s) if pauses_s else None,
            "pause_s_max": max(pauses_s, default=None),
        },
        "checkpoints": {
            "whole": written.whole_count,
            "incremental": written.incremental_count,
            "failed": written.failed_count,
            "bytes": written.bytes_count,
        },
        "journal": {
            "name": journal.name,
            "slots": journal.next_slot - 1,
            "marked": journal.marked,
            "length": journal.length,
            "seals_met": host.driver.seals_met,
        },
        "damaged": [*damaged_at(host)],
        "troubles_count": len(troubles),
        "troubles": [
            {"partition": number, "text": str(trouble)}
            for number, trouble in troubles[:TROUBLES_SHOWN]
        ],
    }
