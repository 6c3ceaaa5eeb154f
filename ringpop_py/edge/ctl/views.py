"""Commands that watch members: ``ringpopctl views`` and ``wait``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ringpop_py.base import errors
from ringpop_py.edge.cli.commands import (
    REACHABLE,
    ExitCode,
    Output,
    complain,
    members_said,
    table,
)

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.sync.client import Client

POLL_S: Final = 0.05  # between two rounds: in each, all members are asked
SAME: Final = "all see the same cluster"
TELL_S: Final = 1.0
"""Seconds between two messages about what a command waits for."""


def views(client: Client, _options: argparse.Namespace) -> Output:
    """``ringpopctl views``."""
    found = _views(client)
    groups: dict[int, list[str]] = {}
    for name, checksum in found.checksums.items():
        groups.setdefault(checksum, []).append(name)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))  # largest first
    rows = [(checksum, len(names), " ".join(names)) for checksum, names in ordered]
    text = table(("CHECKSUM", "COUNT", "MEMBERS"), rows)
    for name, reason in found.silent.items():
        text += f"\n{name} does not answer: {reason}"
    for name, keyspaces in found.failed.items():
        text += f"\n{name} has failed at its share of keyspaces: {keyspaces}"
    for host, why in found.silent_hosts.items():
        text += f"\nthe host {host} does not answer: {why}"
    if len(found.stores) > 1:
        text += "\nnot all members have the same store, so they share no durable keyspaces:"
        for store, members in sorted(found.stores.items()):
            text += f"\n  {store}: {' '.join(members)}"
    text += f"\n{agreement(len(groups), found)}"
    listed = [{"checksum": checksum, "members": names} for checksum, names in ordered]
    value: dict[str, object] = {"groups": listed, "silent": found.silent, "failed": found.failed}
    value["silent_hosts"] = found.silent_hosts
    value["stores"] = found.stores
    value |= {"lost": found.lost, "expected": found.expected, "in_ring": found.in_ring}
    if len(groups) > 1 or found.lost or found.missing:
        return Output(value, text, ExitCode.DIVERGED)
    return Output(value, text, ExitCode.UNREACHABLE if found.silent else ExitCode.OK)


def agreement(groups: int, found: Views) -> str:
    """Return in a line how many members see the same cluster, and who is out of reach."""
    count = len(found.checksums) + len(found.silent) + len(found.lost) + found.missing
    told = f"{groups} different views"
    if groups == 1:
        seen = len(found.checksums)
        told = f"{seen} of {count} members see the same" if seen < count else SAME
    if found.lost:
        told += f"; out of reach: {', '.join(found.lost)} (faulty)"
    if found.missing:
        told += f"; {found.in_ring} members are in the ring, {found.expected} are expected"
    return told


@dataclass(slots=True)
class Views:
    """The views of all members that one node considers reachable, by member.

    Attributes:
        lost: the members that this node declared faulty: they may be the other side of a split.
        expected: how many members there should be in the ring; 0 if no member knows.
    """

    statuses: list[str]
    checksums: dict[str, int] = field(default_factory=dict)
    keyspaces: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    silent_hosts: dict[str, str] = field(default_factory=dict)
    stores: dict[str, list[str]] = field(default_factory=dict)
    away: list[str] = field(default_factory=list)
    all_ready: bool = True
    lost: list[str] = field(default_factory=list)
    in_ring: int = 0
    expected: int = 0

    @property
    def missing(self) -> int:
        """How many of the expected members are not in the ring, and not *lost* either."""
        return max(0, self.expected - self.in_ring - len(self.lost))


def _views(client: Client, *, keyspaces: bool = False) -> Views:
    from ringpop_py.member.swim.member import AWAY_LABEL, FAILED_LABEL, STORE_LABEL  # noqa: PLC0415 - help needs nothing that is installed

    sections = ("node", "keyspaces") if keyspaces else ("node",)
    value = members_said(client, *sections, load=keyspaces)
    rows, said = value["members"], value["said"]
    found = Views([row["status"] for row in rows], silent=value["silent"])
    found.lost = [row["name"] for row in rows if row["status"] == "faulty"]
    found.in_ring = sum(row["in_ring"] for row in rows)
    found.failed = {
        row["name"]: unquote(row["labels"][FAILED_LABEL])
        for row in rows
        if FAILED_LABEL in row["labels"]
    }
    for row in rows:
        if row["status"] in REACHABLE and AWAY_LABEL in row["labels"]:
            found.away.append(row["name"])
        if row["status"] in REACHABLE and STORE_LABEL in row["labels"]:
            found.stores.setdefault(row["labels"][STORE_LABEL], []).append(row["name"])
    for name, sections_of in said.items():
        node = sections_of["node"]
        found.checksums[name] = node["checksum"]
        found.keyspaces[name] = sections_of.get("keyspaces", [])
        found.all_ready = found.all_ready and node["ready"]
        found.silent_hosts |= node["silent_hosts"]
        found.expected = max(found.expected, node.get("expected") or 0)
    return found


class WaitProgress:
    """Prints to standard error what a command waits for: only changes, at most once a `TELL_S`."""

    def __init__(self) -> None:
        self._told = ""
        self._next_at_s = 0.0

    def tell(self, reason: str, waited_s: float) -> None:
        """Print *reason* unless it was the last one printed."""
        if reason != self._told and waited_s >= self._next_at_s:
            complain(f"ringpopctl: waiting: {reason}")
            self._told, self._next_at_s = reason, waited_s + TELL_S


def wait_for(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl wait``: wait until all reachable members are ready and have the same view."""
    partitions = options.condition == "partitions"
    if options.keyspace is not None and not partitions:
        raise errors.ConfigError("--keyspace needs --for partitions")
    state = "settled" if partitions else "converged"
    started = time.monotonic()
    progress = WaitProgress()
    while True:
        try:
            found = _views(client, keyspaces=partitions)
            reason = _why_not_converged(found, options.members)
            if options.condition == "applications" and found.away:
                reason = reason or f"away: the application beside {', '.join(found.away)}"
            if partitions and not reason:
                reason = why_not_settled(found.keyspaces, options.keyspace)
        except errors.CallError as error:  # the node may still be starting
            reason = str(error)
        waited_s = time.monotonic() - started
        if not reason:
            count = len(found.checksums)
            value: dict[str, Any] = {state: True, "members": count, "waited_s": waited_s}
            text = f"{state}: {count} members"
            if partitions:
                known = next(iter(found.keyspaces.values()))  # all members know the same ones
                names = [keyspace["name"] for keyspace in known]
                settled = [name for name in names if options.keyspace in (None, name)]
                value["keyspaces"] = settled
                text += f", {len(settled)} keyspace{'' if len(settled) == 1 else 's'}"
            for host, why in found.silent_hosts.items():  # maybe of another cluster
                complain(f"ringpopctl: the host {host} does not answer: {why}")
            return Output(value, f"{text} after {waited_s:.2f} s")
        if waited_s >= options.timeout:
            value = {state: False, "reason": reason, "waited_s": waited_s}
            complain(f"ringpopctl: not {state} after {waited_s:.1f} s: {reason}")
            return Output(value, f"not {state}", ExitCode.TIMED_OUT)
        progress.tell(reason, waited_s)
        time.sleep(POLL_S)


def _why_not_converged(found: Views, count: int | None) -> str:
    if found.silent:
        return f"{', '.join(found.silent)} does not answer"
    if not found.all_ready:
        return "a member is still joining"
    if "suspect" in found.statuses:  # it is alive or faulty soon, which changes the views
        return "a member is suspect"
    if len(set(found.checksums.values())) > 1:
        return f"{len(set(found.checksums.values()))} different views"
    if count is not None and len(found.checksums) != count:
        return f"{len(found.checksums)} members are alive, not {count}"
    return ""


def why_not_settled(keyspaces_of: dict[str, list[dict[str, Any]]], only: str | None = None) -> str:
    """Return why not all partitions are where they should be; an empty text if they are.

    Args:
        keyspaces_of: each member's reply to ``/admin/keyspaces``.
        only: the name of the one keyspace to look at.
    """
    found = {
        member: [keyspace for keyspace in keyspaces if only in (None, keyspace["name"])]
        for member, keyspaces in keyspaces_of.items()
    }
    known = {
        member: {(k["name"], k["generation"], k["assignment_version"]) for k in keyspaces}
        for member, keyspaces in found.items()
    }
    everything = set().union(*known.values())
    if only is not None and not everything:
        return f"no member knows a keyspace {only}"
    for member, keyspaces in found.items():
        if known[member] != everything:
            return f"{member} does not know all keyspaces and assignments yet"
        for keyspace in keyspaces:
            if keyspace["waits_for"]:
                return f"keyspace {keyspace['name']}, as {member} sees it: {keyspace['waits_for']}"
            if keyspace["settled"] < keyspace["partitions"]:
                return (
                    f"keyspace {keyspace['name']}: {keyspace['settled']} of "
                    f"{keyspace['partitions']} partitions are where they should be, "
                    f"as {member} sees it"
                )
    return ""
