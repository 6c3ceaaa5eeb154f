"""What a cluster is busy with, as the console shows it. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringpop_py.state.placement.table import TableRow

HANDOVERS_KEPT: Final = 50
SHOWN: Final = 20
"""The most jobs that are shown, and likewise shuffles, streams and dataflows."""
_LATER: Final = {"staging": 0, "aborted": 1, "committed": 2, "applied": 3}
"""The states of a job in their order: of two, the one with the greater number is later."""


class Handovers:
    """The partitions that have changed their owner, as far as tables were compared."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, ...]] = {}
        self._found: list[dict[str, Any]] = []

    def note(self, keyspace: str, table: Iterable[TableRow], at: float) -> None:
        """Compare the owners with those of the last time; *at* is now, by the wall clock."""
        owners = tuple(row.owner for row in table)
        before = self._owners.get(keyspace)
        self._owners[keyspace] = owners
        if before is None or before == owners or len(before) != len(owners):
            return
        moved: dict[tuple[str, str], list[int]] = {}
        for number, pair in enumerate(zip(before, owners, strict=True)):
            if pair[0] != pair[1]:
                moved.setdefault(pair, []).append(number)
        for (source, target), numbers in moved.items():
            what = {"at": round(at, 1), "keyspace": keyspace, "partitions": numbers}
            self._found.append({**what, "from": source, "to": target})
        del self._found[:-HANDOVERS_KEPT]

    def listed(self) -> list[dict[str, Any]]:
        """Return the recent ones: when, of which keyspace, from whom to whom; the newest first."""
        return self._found[::-1]


def under_way(table: Iterable[TableRow]) -> list[dict[str, Any]]:
    """Return how many partitions are on their way, by who had and who should have them."""
    counts = Counter(
        (row.owner, row.desired, row.status.label)
        for row in table
        if row.moving or row.status.label == "offline"
    )
    return [
        {"from": source, "to": target, "status": status, "partitions": count}
        for (source, target, status), count in sorted(counts.items())
    ]


def jobs_in(work: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the jobs that members have a part in, each job once; the newest first.

    Several members stage files; one member leads what follows, and its state is the latest.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for said in work.values():
        for job in said["jobs"]:
            if job["state"] not in _LATER:  # of a later version
                continue
            name = job["keyspace"], job["job"]
            known = found.get(name)
            if known is None:
                found[name] = dict(job)
                continue
            files = known["files"] + job["files"]
            later = max(known, job, key=lambda one: (_LATER[one["state"]], one["partitions_done"]))
            found[name] = {**later, "files": files, "at": max(known["at"], job["at"])}
    return sorted(found.values(), key=lambda job: (-job["at"], job["job"]))[:SHOWN]


def shuffles_in(work: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the shuffles of all members by name, each as the best-informed member sees it."""
    found: dict[str, dict[str, Any]] = {}
    for said in work.values():
        for shuffle in said["shuffles"]:
            known = found.get(shuffle["name"])
            if known is None or known["version"] < shuffle["version"]:
                found[shuffle["name"]] = shuffle
    return [found[name] for name in sorted(found)][:SHOWN]


def streams_in(work: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the streams that members read, each with the sums over its splits; by name."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for reader, said in work.items():
        for split in said.get("streams", ()):
            name = split["stream"], split["keyspace"]
            new = {"stream": name[0], "keyspace": name[1], "splits": 0, "readers": set()}
            stream = found.setdefault(
                name, {**new, "held": 0, "records": 0, "refused": 0, "troubles": []}
            )
            stream["splits"] += 1
            stream["readers"].add(reader)
            for count in ("held", "records", "refused"):
                stream[count] += split[count]
            if split["trouble"]:
                stream["troubles"].append(f"{split['split']}: {split['trouble']}")
    rows = [found[name] for name in sorted(found)][:SHOWN]
    return [
        {**row, "readers": len(row["readers"]), "troubles": row["troubles"][:3]} for row in rows
    ]


def dataflows_in(work: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the dataflows of all members, each with the sums over its workers; by name.

    Epoch, leader and workers are those of the newest record that a member has seen.
    """
    found: dict[str, dict[str, Any]] = {}
    for said in work.values():
        for part in said.get("dataflows", ()):
            new = {"dataflow": part["dataflow"], "epoch": -1, "leader": "", "workers": 0}
            flow = found.setdefault(
                part["dataflow"], {**new, "rows": 0, "late": 0, "refused": 0, "troubles": []}
            )
            epoch = -1 if part["epoch"] is None else part["epoch"]
            if epoch > flow["epoch"]:
                flow["epoch"], flow["leader"] = epoch, part["leader"]
                flow["workers"] = len(part["workers"])
            for count in ("rows", "late", "refused"):
                flow[count] += part[count]
            if part["trouble"]:
                flow["troubles"].append(f"{part['worker']}: {part['trouble']}")
    rows = [found[name] for name in sorted(found)][:SHOWN]
    return [{**row, "epoch": max(0, row["epoch"]), "troubles": row["troubles"][:3]} for row in rows]
