"""Commands that look closer: ``ringpopctl top``, ``stats``, ``trace``, ``lookup --explain``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ApplicationError, BadRequest, CallError
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
    from collections.abc import Iterator, Mapping

    from ringpop_py.client.sync.client import Client

SUCCESSORS: Final = 3
FIGURES: Final = ("cpu", "memory_mb", "requests", "failed", "pings", "slow")
UNITS: Final = {"_s": "s", "_mb": "MB"}
"""The unit of a figure, by the end of its name."""
FIRST_S: Final = 1.0
"""How long `top` measures, in seconds, before it first shows rates."""
KEYSPACE_LOOKUP: Final = "/admin/keyspaces/lookup"


# Who uses what.


class Top:
    """``ringpopctl top``: each member's rates per second. It remembers the last counts."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, float]] = {}

    def __call__(self, client: Client, options: argparse.Namespace) -> Output:
        """Return the rates since the last call; the first call measures for `FIRST_S`."""
        if not self._before:
            self._measured(client)
            time.sleep(FIRST_S)
        rows = self._measured(client)
        if options.sort is not None:
            rows.sort(key=lambda row: row[options.sort] or 0, reverse=True)
        heads = (
            "MEMBER",
            "STATUS",
            "CPU %",
            "MEMORY MB",
            "REQUESTS/S",
            "FAILED/S",
            "PINGS/S",
            "SLOW",
        )
        names = ("name", "status", *FIGURES)
        cells = [["-" if row[name] is None else row[name] for name in names] for row in rows]
        return Output({"members": rows}, table(heads, cells))

    def _measured(self, client: Client) -> list[dict[str, Any]]:
        rows, seen = [], {}
        value = members_said(client, "node", "checkup")
        for member in value["members"]:
            row: dict[str, Any] = dict.fromkeys(FIGURES)
            row |= {"name": member["name"], "status": member["status"]}
            rows.append(row)
            if member["name"] in value["silent"]:
                row["status"] = f"{member['status']}, silent"
            said = value["said"].get(member["name"], {})
            sample = seen[member["name"]] = _sampled(said) if "checkup" in said else None
            before = self._before.get(member["name"])
            if sample is None or before is None:
                continue
            apart_s = max(sample["at_s"] - before["at_s"], 1e-3)
            rate = {
                name: (sample[name] - before[name]) / apart_s
                for name in ("cpu_s", "requests", "failed", "pings")
            }
            row |= {
                "cpu": round(100 * rate["cpu_s"], 1),
                "memory_mb": round(sample["memory_bytes"] / 1e6, 1),
                "slow": int(sample["slow"]),
                **{name: round(rate[name], 1) for name in ("requests", "failed", "pings")},
            }
        self._before = {name: sample for name, sample in seen.items() if sample is not None}
        return rows


def _sampled(said: Mapping[str, Any]) -> dict[str, float]:
    node, checkup = said["node"], said["checkup"]
    proxy, gossip = node["proxy"], node["gossip"]
    return {
        "at_s": checkup["at"],
        "cpu_s": checkup["cpu_s"],
        "memory_bytes": checkup["memory_bytes"],
        "slow": checkup["health_score"],
        "requests": proxy["handled_here"] + proxy["served"] + proxy["proxied"],
        "failed": proxy["failures"],
        "pings": gossip["pings_sent"] + gossip["pings_received"],
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
