"""Commands that look closer: ``ringpopctl top``, ``stats``, ``trace``, ``lookup --explain``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.errors import ApplicationError, BadRequest, CallError
from ringpop_py.base.metering import BOUNDS_S, OUTCOMES, quantile_ms
from ringpop_py.edge.cli.commands import (
    REACHABLE,
    ExitCode,
    Output,
    connect,
    members_said,
    table,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from ringpop_py.client.sync.client import Client

SUCCESSORS: Final = 3
UNITS: Final = {"_s": "s", "_mb": "MB"}
"""The unit of a figure, by the end of its name."""
_RATES: Final = {
    "requests": "REQUESTS/S",
    "refused": "REFUSED/S",
    "failed": "FAILED/S",
    "p99_ms": "P99 MS",
}
FIGURES: Final = {"cpu": "CPU %", "memory_mb": "MEMORY MB", **_RATES, "pings": "PINGS/S"}
TOP_HEADS: Final = {"name": "MEMBER", "status": "STATUS", **FIGURES, "slow": "SLOW"}
KIND_HEADS: Final = {"name": "MEMBER", "kind": "KIND", **_RATES}
"""The columns of `top`, by the names of what is in them."""
FIRST_S: Final = 1.0
"""How long `top` measures, in seconds, before it first shows rates."""
KEYSPACE_LOOKUP: Final = "/admin/keyspaces/lookup"


# Who uses what.


class Top:
    """``ringpopctl top``: each member's rates per second. It remembers the last counts."""

    def __init__(self) -> None:
        self._before: dict[str, _Sample] = {}

    def __call__(self, client: Client, options: argparse.Namespace) -> Output:
        """Return the rates since the last call; the first call measures for `FIRST_S`."""
        if not self._before:
            self._measured(client)
            time.sleep(FIRST_S)
        rows = self._measured(client)
        if options.sort is not None:
            rows.sort(key=lambda row: row[options.sort] or 0, reverse=True)
        if options.by == "kind":
            rows = [
                {"name": row["name"], "kind": kind, **rates}
                for row in rows
                for kind, rates in row["kinds"].items()
            ]
            return Output({"members": rows}, _table_of(rows, KIND_HEADS))
        for row in rows:
            del row["kinds"]
        return Output({"members": rows}, _table_of(rows, TOP_HEADS))

    def _measured(self, client: Client) -> list[dict[str, Any]]:
        rows, seen = [], {}
        value = members_said(client, "node", "checkup", "work")
        for member in value["members"]:
            name, status = member["name"], member["status"]
            row: dict[str, Any] = {
                "name": name,
                "status": status,
                **dict.fromkeys([*FIGURES, "slow"]),
            }
            row["kinds"] = {}
            rows.append(row)
            if name in value["silent"]:
                row["status"] = f"{status}, silent"
            said = value["said"].get(name, {})
            if not {"checkup", "work"} <= said.keys():
                continue
            sample = seen[name] = _Sample.of(said)
            before = self._before.get(name)
            if before is not None:
                row |= sample.since(before)
        self._before = seen
        return rows


class _Sample(NamedTuple):
    """What a member has counted so far.

    Attributes:
        kinds: by kind of operation, how many ended in each way of `OUTCOMES`, and the buckets of
            those that were timed; None from a member of an older version.
    """

    at_s: float
    cpu_s: float
    memory_bytes: int
    slow: int
    pings: int
    kinds: dict[str, tuple[list[int], list[int]]] | None

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> _Sample:
        gossip, checkup = said["node"]["gossip"], said["checkup"]
        operations = said["work"].get("operations")
        kinds = (
            None
            if operations is None
            else {
                each["kind"]: ([each[outcome] for outcome in OUTCOMES], list(each["counts"]))
                for each in operations
            }
        )
        return cls(
            checkup["at"],
            checkup["cpu_s"],
            checkup["memory_bytes"],
            checkup["health_score"],
            gossip["pings_sent"] + gossip["pings_received"],
            kinds,
        )

    def since(self, before: _Sample) -> dict[str, Any]:
        """Return the rates since *before*, of all operations and by kind."""
        apart_s = max(self.at_s - before.at_s, 1e-3)
        row: dict[str, Any] = {
            "cpu": round(100 * (self.cpu_s - before.cpu_s) / apart_s, 1),
            "memory_mb": round(self.memory_bytes / 1e6, 1),
            "pings": round((self.pings - before.pings) / apart_s, 1),
            "slow": self.slow,
        }
        if self.kinds is None:
            return row
        none = [0] * len(OUTCOMES), [0] * (len(BOUNDS_S) + 1)
        more = {
            kind: (_more(ended, then[0]), _more(buckets, then[1]))
            for kind, (ended, buckets) in self.kinds.items()
            for then in [(before.kinds or {}).get(kind, none)]
        }
        row["kinds"] = {kind: _rates(*each, apart_s) for kind, each in more.items()}
        all_kinds = zip(none, *more.values(), strict=True)
        ended, buckets = ([sum(each) for each in zip(*part, strict=True)] for part in all_kinds)
        return row | _rates(ended, buckets, apart_s)


def _more(now: Sequence[int], then: Sequence[int]) -> list[int]:
    # The counts of a member that was started again are smaller than before.
    return [max(after - before, 0) for after, before in zip(now, then, strict=True)]


def _rates(ended: Sequence[int], buckets: Sequence[int], apart_s: float) -> dict[str, Any]:
    p99_ms = quantile_ms(buckets, 0.99)
    return {
        "requests": round(sum(ended) / apart_s, 1),
        "refused": round(ended[1] / apart_s, 1),
        "failed": round(ended[2] / apart_s, 1),
        "p99_ms": None if p99_ms is None else round(p99_ms, 2),
    }


def stats(client: Client, _options: argparse.Namespace) -> Output:
    """``ringpopctl stats``: figures with their units for people, and as they are in JSON."""
    node, ringpop = client.admin("/admin/node"), client.admin("/admin/stats")
    rows = []
    for key, item in node.items():
        fields = item if isinstance(item, dict) else {"": item}
        rows += [(f"{key}.{name}".removesuffix("."), value) for name, value in fields.items()]
    rows.append(("memory_mb", ringpop["process"]["memory"]["rss"] / 1e6))
    cells = [figure(name, value) for name, value in rows]
    return Output({**node, "ringpop": ringpop}, table(("WHAT", "VALUE"), cells))


def figure(name: str, value: object) -> tuple[str, str]:
    """Return *name* without its unit, and *value* with it, with three digits that count.

    Whole numbers are counts, ids and checksums: they stay as they are.
    """
    match value:
        case bool():
            text = "yes" if value else "no"
        case float():
            text = f"{float(f'{value:.3g}'):,.12g}"
        case list():
            text = ", ".join(map(str, value))
        case dict():
            text = ", ".join(f"{key} {item}" for key, item in value.items())
        case _:
            text = "" if value is None else str(value)
    for ending, unit in UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending), f"{text} {unit}"
    return name, text or "-"


def _table_of(rows: Sequence[Mapping[str, Any]], heads: Mapping[str, str]) -> str:
    cells = [["-" if row[name] is None else row[name] for name in heads] for row in rows]
    return table(tuple(heads.values()), cells)


# Which members are asked about a key, and what they answer.


def trace(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl trace``: where each member would send a request for a key."""
    rows: list[dict[str, Any]] = []
    for member in client.admin("/admin/members")["members"]:
        row = {"member": member["name"], "owner": None, "partition": None, "ms": None}
        rows.append({**row, "trouble": ""})
        if member["status"] not in REACHABLE:
            rows[-1]["trouble"] = member["status"]
            continue
        began = time.perf_counter()
        try:
            with connect(member["address"]) as peer:
                rows[-1] |= _opinion(peer, options.key, options.keyspace)
        except (CallError, ApplicationError) as error:
            rows[-1]["trouble"] = str(error)
        rows[-1]["ms"] = round(1_000 * (time.perf_counter() - began), 1)
    answers = [row for row in rows if row["owner"] is not None]
    owners = {row["owner"] for row in answers}
    heads = ("MEMBER", "SAYS", "PARTITION", "MS", "")
    names = ("member", "owner", "partition", "ms", "trouble")
    text = table(heads, [["-" if row[n] is None else row[n] for n in names] for row in rows])
    agree = len(owners) == 1
    if agree:
        text += f"\nall of {len(answers)} say that {owners.pop()} owns it"
    elif not owners:
        text += "\nno member names an owner"
    else:
        text += f"\nthey name {len(owners)} owners: ringpopctl views says who sees which cluster"
    value = {"key": options.key, "agree": agree, "answers": rows}
    return Output(value, text, ExitCode.OK if agree else ExitCode.DIVERGED)


def _opinion(peer: Client, key: str, keyspace: str | None) -> dict[str, Any]:
    if keyspace is None:
        return {"owner": peer.lookup(key)}
    found = peer.admin(KEYSPACE_LOOKUP, {"name": keyspace, "key": key})
    served = f"{found['partition']} {found['status']}"
    return {"owner": found["owner"] or "nobody", "partition": served}


# Why a key belongs to its owner.


def explain(client: Client, key: str) -> Output:
    """``ringpopctl lookup KEY --explain``."""
    ring = client.ring().ring
    members = {row["name"]: row for row in client.admin("/admin/members")["members"]}
    owners = ring.lookup_n(key, SUCCESSORS)
    position, shares = ring.dialect.hash_key(key), ring.weights()
    keyspaces = _partitions(client, key)
    lines = [
        f"{key!r} has the hash {position:#x} in the {ring.dialect.name} dialect. The first",
        f"point of the ring from there on belongs to {owners[0]}, so it is the owner.",
        "",
        *(_line_of(place, name, members.get(name), shares) for place, name in enumerate(owners)),
        *_left_out(members),
        *(_line_of_partition(name, row) for name, row in keyspaces.items()),
    ]
    value = {
        "key": key,
        "hash": position,
        "owners": [{"name": name, "share": shares[name]} for name in owners],
        "left_out": [name for name, row in members.items() if not row["in_ring"]],
        "keyspaces": keyspaces,
    }
    return Output(value, "\n".join(lines))


def _line_of(
    place: int, name: str, row: Mapping[str, Any] | None, shares: Mapping[str, float]
) -> str:
    who = "the owner" if not place else f"if {'that one is' if place == 1 else 'those are'} gone"
    status = "unknown here" if row is None else row["status"]
    return f"{who + ':':<22}{name} ({status}, {shares[name]:.1%} of the ring)"


def _left_out(members: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    from ringpop_py.member.swim.member import AWAY  # noqa: PLC0415 - help needs nothing that is installed

    for name, row in members.items():
        if row["in_ring"] or row["status"] == "tombstone":
            continue
        marks = [mark for mark in ("damped", "draining") if row[mark]]
        marks += ["its application is away"] if AWAY in row["labels"].items() else []
        yield f"not in the ring:      {name} ({', '.join([row['status'], *marks])})"


def _partitions(client: Client, key: str) -> dict[str, dict[str, Any]]:
    names = [each["name"] for each in client.admin("/admin/keyspaces")["keyspaces"]]
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        try:
            found[name] = client.admin(KEYSPACE_LOOKUP, {"name": name, "key": key})
        except BadRequest:
            continue
    return found


def _line_of_partition(name: str, row: Mapping[str, Any]) -> str:
    owner = row["owner"] or "nobody"
    where = f"served by {owner}" if row["served"] else f"{row['status']} at {owner}, not served"
    return f"{f'keyspace {name}:':<22}partition {row['partition']}, {where}"
