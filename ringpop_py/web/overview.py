"""The cluster as one page shows it: what this node sees, and what all members say of themselves.

Members are asked while somebody looks, and not otherwise.
"""

from __future__ import annotations

import inspect
import math
import time
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.admin import endpoints, keyspaces
from ringpop_py.admin.answers import summary_of
from ringpop_py.admin.problems import LEVELS, Seen, problems_in
from ringpop_py.errors import BodyError, CallError
from ringpop_py.swim.member import Member, Status
from ringpop_py.swim.records import text_of
from ringpop_py.values.packed import a_map, decode_value, encode_value
from ringpop_py.web.pictures import STEP_S
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringpop_py.address import Address
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.swim.records import Record

PERIOD_S: Final = 1.0
"""How often members are asked while somebody looks."""
ASKED_MAX: Final = 50
"""So many members are asked in one period. In a larger cluster they take turns."""
TOGETHER_MAX: Final = 16
"""So many are asked at a time."""
TIMEOUT_S: Final = 1.0
SETTINGS_EVERY: Final = 30
"""Settings are asked for once in so many periods: they hardly ever change."""
CELLS_MAX: Final = 40
"""The matrix has at most so many rows. In a larger cluster a row stands for several members."""
EVENTS_SHOWN: Final = 200
MOVES_SHOWN: Final = 20
KEYSPACES_SHOWN: Final = 100
LATE_S: Final = 5.0
"""A ping that failed so recently counts as failing."""
_ENDPOINTS: Final = ("/admin/node", "/admin/reach", "/admin/checkup")
_SETTINGS: Final = "/admin/config/get"
_KEYSPACES: Final = "/admin/keyspaces"
READS: Final = endpoints.READS | keyspaces.READS
_REACHABLE: Final = (Status.ALIVE, Status.SUSPECT)


class Overview:
    """See the module. `run` belongs to the node, and works while there are `watching`.

    Attributes:
        sections: the last overview, by section, as plain values.
    """

    def __init__(self, ringpop: Ringpop) -> None:
        self.sections: dict[str, Any] = {}
        self._ringpop = ringpop
        self._seen = Seen([])
        self._pings: dict[str, dict[str, Any]] = {}
        self._turn = 0
        self._round = 0
        self._shares: dict[str, float] = {}
        self._moves: list[dict[str, Any]] = []
        self._watchers = 0
        self._wanted = trio.Event()
        self._changed = trio.Event()
        self.made_at = -1e9
        """When it was made, by trio's clock."""

    # Who looks.

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Have members asked again and again during the block."""
        self._watchers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._watchers -= 1

    @property
    def watchers(self) -> int:
        """How many look."""
        return self._watchers

    async def fresh(self) -> dict[str, Any]:
        """Return an overview that is at most two periods old."""
        with self.watching():
            while trio.current_time() - self.made_at > 2 * PERIOD_S:
                await self.changed()
        return self.sections

    async def changed(self) -> None:
        """Return once there is another overview."""
        await self._changed.wait()

    async def run(self) -> None:
        """Make overviews while somebody looks, until cancelled."""
        while True:
            if not self._watchers:
                self._wanted = trio.Event()
                await self._wanted.wait()
            await self._look()
            with trio.move_on_after(PERIOD_S):  # a change of a member is shown at once
                await self._ringpop.next_change()
                await trio.sleep(PERIOD_S / 10)  # with those that come with it

    # What members say.

    async def _look(self) -> None:
        members = self._ringpop.members
        asked = [member for member in members if member.status in _REACHABLE]
        asked = self._in_turn(asked)
        limiter = trio.CapacityLimiter(TOGETHER_MAX)
        asks_settings = self._round % SETTINGS_EVERY == 0
        self._round += 1
        async with trio.open_nursery() as nursery:
            for member in asked:
                nursery.start_soon(partial(self._ask, member, limiter, settings=asks_settings))
        self._forget({member.name for member in members if member.status in _REACHABLE})
        self.sections = self._made(members)
        self.made_at = trio.current_time()
        self._changed.set()
        self._changed = trio.Event()

    def _in_turn(self, members: Sequence[Member]) -> list[Member]:
        if len(members) <= ASKED_MAX:
            return list(members)
        start = self._turn % len(members)
        self._turn += ASKED_MAX
        return list(islice([*members[start:], *members[:start]], ASKED_MAX))

    async def _ask(self, member: Member, limiter: trio.CapacityLimiter, *, settings: bool) -> None:
        name, seen = member.name, self._seen
        async with limiter:
            began = time.time()
            try:
                node, reach, checkup = [
                    await self._said(member.address, endpoint) for endpoint in _ENDPOINTS
                ]
                took = time.time() - began
                if settings:
                    seen.settings[name] = await self._said(member.address, _SETTINGS, [])
                listed: dict[str, Any] = {"keyspaces": []}
                if self._ringpop.keyspaces_on_demand.loaded:  # asking would have them loaded
                    listed = await self._said(member.address, _KEYSPACES)
            except (CallError, BodyError) as error:
                seen.silent[name] = str(error)
                for found in (seen.nodes, seen.checkups, seen.keyspaces, self._pings):
                    found.pop(name, None)
                return
        seen.silent.pop(name, None)
        seen.nodes[name], seen.checkups[name] = node, checkup
        seen.keyspaces[name] = listed["keyspaces"]
        seen.clocks_s[name] = checkup["at"] - (began + took / 2)
        seen.off_s[name] = took / 2
        self._pings[name] = {row["name"]: row for row in reach["pings"]}

    async def _said(self, to: Address, endpoint: str, body: object = None) -> dict[str, Any]:
        if to == self._ringpop.address:
            value = READS[endpoint](self._ringpop, body)
            said = await value if inspect.isawaitable(value) else value
            # As it would come from others: tuples become lists.
            return a_map(decode_value("msgpack", encode_value("msgpack", said)), "answer")
        encoded = encode_value("msgpack", body)
        call = Call(NODE_SERVICE, endpoint, b"", encoded, ttl_s=TIMEOUT_S, scheme="msgpack")
        answer = await self._ringpop.channel.call(to, call)
        return a_map(decode_value("msgpack", answer.arg3), "answer")

    def _forget(self, there: set[str]) -> None:
        seen = self._seen
        by_name: tuple[dict[str, Any], ...] = (
            *(seen.nodes, seen.checkups, seen.settings, seen.keyspaces),
            *(seen.clocks_s, seen.off_s, seen.silent, self._pings),
        )
        for found in by_name:
            for name in found.keys() - there:
                del found[name]

    # What is shown. No section has what changes by itself, such as a time since: one that is as it
    # was is not sent again.

    def _made(self, members: Sequence[Member]) -> dict[str, Any]:
        ringpop = self._ringpop
        shares = ringpop.ring.weights()
        self._note_moves(shares)
        self._seen.rows = [
            {
                "name": member.name,
                "status": member.status.label,
                "damped": member.damped,
                "draining": member.draining,
                "in_ring": ringpop.node.members.in_ring(member),
            }
            for member in members
        ]
        problems = sorted(problems_in(self._seen), reverse=True)
        return {
            "head": {
                "node": ringpop.name,
                "cluster": ringpop.config.cluster,
                "counts": self._counts(members),
                "at": math.ceil(time.time() / STEP_S) * STEP_S,
                "views": len({node["checksum"] for node in self._seen.nodes.values()}),
                "ring_checksum": str(ringpop.ring.checksum),
            },
            "problems": [[LEVELS[level].lower(), check, text] for level, check, text in problems],
            "members": [self._row(member, shares) for member in members],
            "pings": self._matrix(
                [member.name for member in members if member.status in _REACHABLE]
            ),
            "moves": self._moves[::-1],
            "keyspaces": self._keyspaces(),
            "events": self._events(),
        }

    @staticmethod
    def _counts(members: Sequence[Member]) -> dict[str, int]:
        counts = {status.label: 0 for status in Status}
        for member in members:
            counts[member.status.label] += 1
        return counts

    def _row(self, member: Member, shares: dict[str, float]) -> dict[str, Any]:
        node = self._seen.nodes.get(member.name, {})
        checkup = self._seen.checkups.get(member.name, {})
        clock_s = self._seen.clocks_s.get(member.name)
        gossip, proxy = node.get("gossip", {}), node.get("proxy", {})
        return {
            "name": member.name,
            "address": str(member.address),
            "status": member.status.label,
            "marks": [mark for mark in ("damped", "draining") if getattr(member, mark)]
            + ([] if not node or node["ready"] else ["joining"]),
            "incarnation": member.incarnation,
            "share": round(shares.get(member.name, 0.0), 4),
            "labels": dict(member.labels),
            "version": node.get("version"),
            "health": checkup.get("health_score"),
            "clock_s": None if clock_s is None else round(clock_s, 1),
            "handled": proxy.get("handled_here", 0) + proxy.get("served", 0),
            "failed": proxy.get("failures", 0),
            "refuted": gossip.get("refutations", 0),
            "silent": self._seen.silent.get(member.name),
        }

    def _note_moves(self, shares: dict[str, float]) -> None:
        if self._shares and shares != self._shares:
            names = shares.keys() | self._shares.keys()
            changes = {
                name: [round(self._shares.get(name, 0.0), 4), round(shares.get(name, 0.0), 4)]
                for name in sorted(names)
                if shares.get(name) != self._shares.get(name)
            }
            came = sorted(shares.keys() - self._shares.keys())
            gone = sorted(self._shares.keys() - shares.keys())
            moved = sum(max(0.0, after - before) for before, after in changes.values())
            move = {"at": round(time.time(), 1), "came": came, "gone": gone}
            self._moves = [*self._moves, {**move, "moved": round(moved, 4)}][-MOVES_SHOWN:]
        self._shares = shares

    def _matrix(self, names: Sequence[str]) -> dict[str, Any]:
        """Return who pings whom: a row and a column for each member, or for some in a row."""
        size = -(-len(names) // CELLS_MAX) or 1
        groups = [names[at : at + size] for at in range(0, len(names), size)]
        labels = [one[0] if len(one) == 1 else f"{one[0]} … {one[-1]}" for one in groups]
        cells = [[self._cell(row, column) for column in groups] for row in groups]
        return {"labels": labels, "size": size, "cells": cells}

    def _cell(self, senders: Sequence[str], receivers: Sequence[str]) -> list[Any]:
        """Return the state of the pings from some members to some, and for how many it holds.

        The state is ``fails`` if one of late has failed, with the reason; ``ok`` with the mean
        round trip in milliseconds; ``none`` if there was none; or ``self``.
        """
        trips: list[float] = []
        failing: list[str] = []
        for sender in senders:
            row = self._pings.get(sender)
            if row is None:
                continue
            said_at = self._seen.checkups[sender]["at"]
            for receiver in receivers:
                ping = row.get(receiver)
                if ping is None or receiver == sender:
                    continue
                late = ping["failed_at"] > max(said_at - LATE_S, ping["answered_at"])
                if late:
                    failing.append(f"{sender} → {receiver}: {ping['failure']}")
                elif ping["round_trip_s"] is not None:
                    trips.append(ping["round_trip_s"])
        if failing:
            return ["fails", "; ".join(failing[:3]), len(failing)]
        if trips:
            mean_ms = 1_000 * sum(trips) / len(trips)
            return ["ok", float(f"{mean_ms:.2g}"), len(trips)]
        return ["self" if senders == receivers and len(senders) == 1 else "none", None, 0]

    def _keyspaces(self) -> list[dict[str, Any]]:
        ringpop = self._ringpop
        if not ringpop.keyspaces_on_demand.loaded:
            return []
        found = []
        for keyspace in ringpop.keyspaces.all()[:KEYSPACES_SHOWN]:
            summary = summary_of(ringpop, keyspace.name)
            shown = ("name", "mode", "partitions", "served", "settled", "moving", "members")
            found.append({name: summary[name] for name in (*shown, "waits_for", "failed")})
        return found

    def _events(self) -> list[dict[str, Any]]:
        records = self._ringpop.events.last(EVENTS_SHOWN)
        return [
            {
                "number": record["number"],
                "at": round(record["at"], 2),
                "member": record.get("member"),
                "before": record.get("before") if _is_change(record) else None,
                "after": record.get("after") if _is_change(record) else None,
                "text": text_of_event(record),
            }
            for record in records
        ]


def _is_change(record: Record) -> bool:
    return bool(record["event"] == "member-changed")


def text_of_event(record: Record) -> str:
    """Return what an event says, without its number and time."""
    return text_of({key: value for key, value in record.items() if key not in ("number", "at")})
