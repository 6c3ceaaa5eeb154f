"""The cluster as one page shows it: what this node sees, and what all members say of themselves.

Members are asked only while somebody looks.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.edge.admin import endpoints
from ringpop_py.edge.admin.answers import members_there, summary_of
from ringpop_py.edge.admin.census import REACHABLE, Census, Section
from ringpop_py.edge.admin.series import series
from ringpop_py.edge.console import activity
from ringpop_py.edge.console.figures import (
    PLACED,
    Figures,
    Tallied,
    cells_of,
    lost_in,
    owned,
    placed,
)
from ringpop_py.edge.console.pictures import STEP_S, marks_of
from ringpop_py.edge.judge.judge import problems_in
from ringpop_py.edge.judge.problems import Seen, views_of
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.records import text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ringpop_py.member.swim.records import Record
    from ringpop_py.node.ringpop import Ringpop

PERIOD_S: Final = 1.0
"""The seconds between two rounds of questions to members, while somebody looks."""
LARGE: Final = 40
"""The most members of a cluster that is not large: in a large one, a period does less."""
ASKED_MAX: Final = 8
"""The most members that are asked in one period: in a large cluster they take turns."""
LARGE_EVERY: Final = 5
"""The periods after which a large cluster is judged anew, and its members and its matrix are shown
anew, if no status changes before."""
TEXT_SHOWN: Final = 300
"""The most characters of another member's text that are shown."""
ASKED: Final[tuple[Section, ...]] = ("node", "reach", "checkup", "work", "keyspaces")
"""What members are asked for in each period."""
TIMEOUT_S: Final = 1.0
SETTINGS_S: Final = 30.0
"""The seconds between two questions for a member's settings, which hardly ever change."""
DIFFER_FOR: Final = 2
"""The looks in a row after which differing views are a problem, and not just a change."""
OWNERS_SHOWN: Final = 20
"""The most keyspaces whose partitions are shown one by one."""
NO_FIGURES: Final = Figures()
"""Of a member that was not asked yet."""
EVENTS_SHOWN: Final = 200
MOVES_SHOWN: Final = 20
KEYSPACES_SHOWN: Final = 100


class Overview:
    """See the module. `run` belongs to the node, and works while there are `watching`.

    Attributes:
        sections: the last overview, by section, as plain values.
        watchers: how many look.
    """

    def __init__(self, ringpop: Ringpop) -> None:
        self.sections: dict[str, Any] = {}
        self._ringpop = ringpop
        self._census = Census(ringpop, endpoints.READS)
        self._seen = Seen([])
        self._cells: dict[str, dict[str, Any]] = {}
        """By sender: whom it reaches, as `cells_of` returns it."""
        self._shown: tuple[Any, ...] = ()
        self._settings_at: dict[str, float] = {}
        self._differ_for = 0
        self._round = 0
        self._shares: dict[str, float] = {}
        self._work: dict[str, dict[str, Any]] = {}
        """The current work of each member."""
        self._figures: dict[str, Figures] = {}
        self._handovers = activity.Handovers()
        self._moves: list[dict[str, Any]] = []
        self.watchers = 0
        self._wanted = trio.Event()
        self._changed = trio.Event()
        self.made_at = -1e9
        """When `sections` was made, by trio's clock."""

    # Who looks.

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep asking members during the block."""
        self.watchers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self.watchers -= 1

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
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_changes)
            while True:
                if not self.watchers:
                    self._wanted = trio.Event()
                    await self._wanted.wait()
                await self._look()
                with trio.move_on_after(PERIOD_S):
                    await self.changed()

    async def _follow_changes(self) -> None:
        """Show a member's change, with those that come with it, while others are still asked."""
        while True:
            await self._ringpop.next_change()
            await trio.sleep(PERIOD_S if len(self._seen.rows) > LARGE else PERIOD_S / 10)
            if self.watchers and self.sections:
                self._show()

    # What members say.

    async def _look(self) -> None:
        members = self._ringpop.members
        asked = self._in_turn([member for member in members if member.status in REACHABLE])
        self._round += 1
        await self._census.each(asked, self._ask)
        self._seen.asked = frozenset(member.name for member in asked)
        self._differ_for = self._differ_for + 1 if len(views_of(self._seen)) > 1 else 0
        self._seen.views_differ = self._differ_for >= DIFFER_FOR
        there = {member.name for member in members if member.status in REACHABLE}
        for found in self._all_by_name():
            for name in found.keys() - there:
                del found[name]
        self.made_at = trio.current_time()
        self._show()

    def _show(self) -> None:
        self.sections = self._made(self._ringpop.members)
        self._changed.set()
        self._changed = trio.Event()

    def _in_turn(self, members: Sequence[Member]) -> list[Member]:
        if len(members) <= ASKED_MAX:
            return list(members)
        start = self._round * ASKED_MAX % len(members)
        return list(islice([*members[start:], *members[:start]], ASKED_MAX))

    async def _ask(self, member: Member) -> None:
        name, seen, began = member.name, self._seen, time.time()
        settings_due = began - self._settings_at.get(name, 0.0) > SETTINGS_S
        sections = (*ASKED, "settings") if settings_due else ASKED
        said = await self._census.ask(member, sections, timeout_s=TIMEOUT_S)
        if isinstance(said, str):
            for found in self._all_by_name():
                found.pop(name, None)
            seen.silent[name] = said[:TEXT_SHOWN]
            return
        seen.note(name, said)
        if settings_due:
            self._settings_at[name] = began
        work = said.get("work", {})
        counted = Tallied.of(trio.current_time(), work, said.get("checkup", {}))
        self._figures.setdefault(name, Figures()).note(counted)
        if work:
            self._work[name] = work
        if "reach" in said:
            self._cells[name] = cells_of(said["reach"])

    def _all_by_name(self) -> tuple[dict[str, Any], ...]:
        own = (self._cells, self._settings_at, self._work, self._figures)
        return (*self._seen.by_section().values(), *own)

    # The sections. None has a value that time alone changes, such as an age: a section that stays
    # the same is not sent again.

    def _made(self, members: Sequence[Member]) -> dict[str, Any]:
        ringpop = self._ringpop
        shares = ringpop.ring.weights()
        self._note_moves(shares)
        self._seen.rows = [
            {
                "name": member.name,
                "address": str(member.address),
                "status": member.status.label,
                "damped": member.damped,
                "draining": member.draining,
                "in_ring": ringpop.node.members.in_ring(member),
            }
            for member in members
        ]
        keyspaces = self._keyspaces()
        shown = tuple(tuple(row.values()) for row in self._seen.rows)
        before = self.sections
        if len(members) <= LARGE or shown != self._shown or not self._round % LARGE_EVERY:
            problems = [problem.told() for problem in problems_in(self._seen)]
            lost = lost_in(self._seen.rows, problems)
            before = {
                "problems": problems,
                "members": self._rows(members, shares, lost, keyspaces),
                "pings": self._pings(members, lost),
            }
        self._shown = shown
        events = self._events()
        return {
            "head": {
                "node": ringpop.name,
                "cluster": ringpop.config.cluster,
                "counts": self._counts(members),
                "at": math.ceil(time.time() / STEP_S) * STEP_S,
                "views": len(views_of(self._seen)) if self._seen.views_differ else 1,
                "ring_checksum": str(ringpop.ring.checksum),
            },
            "problems": before["problems"],
            "series": series(ringpop, None),
            "marks": marks_of(events),
            "members": before["members"],
            "pings": before["pings"],
            "moves": self._moves[::-1],
            "keyspaces": keyspaces,
            "ownership": self._ownership(),
            "handovers": self._handovers.listed(),
            "work": {
                "jobs": activity.jobs_in(self._work),
                "shuffles": activity.shuffles_in(self._work),
                "streams": activity.streams_in(self._work),
                "dataflows": activity.dataflows_in(self._work),
            },
            "events": events,
        }

    @staticmethod
    def _counts(members: Sequence[Member]) -> dict[str, int]:
        counts = {status.label: 0 for status in Status}
        for member in members:
            counts[member.status.label] += 1
        return counts

    def _rows(
        self,
        members: Sequence[Member],
        shares: dict[str, float],
        lost: Collection[str],
        keyspaces: list[dict[str, Any]],
    ) -> list[dict[str, Any]]:
        counts: Counter[str] = Counter()
        for keyspace in keyspaces:
            counts.update({each["name"]: each["partitions"] for each in keyspace["members"]})
        return [
            {
                **self._row(member),
                "share": round(shares.get(member.name, 0.0), 4),
                "partitions": counts[member.name] if keyspaces else None,
                "dead": member.name in lost,
            }
            for member in members
        ]

    def _row(self, member: Member) -> dict[str, Any]:
        node = self._seen.nodes.get(member.name, {})
        checkup = self._seen.checkups.get(member.name, {})
        clock_s = self._seen.clocks_s.get(member.name)
        port = node.get("http_port")
        return {
            "name": member.name,
            "address": str(member.address),
            "status": member.status.label,
            "marks": [mark for mark in ("damped", "draining") if getattr(member, mark)]
            + ([] if not node or node["ready"] else ["joining"]),
            "incarnation": member.incarnation,
            "labels": dict(member.labels),
            "version": node.get("version"),
            "health": checkup.get("health_score"),
            "clock_s": None if clock_s is None else round(clock_s, 1),
            "refuted": node.get("gossip", {}).get("refutations", 0),
            "silent": self._seen.silent.get(member.name),
            "console": port and str(member.address._replace(port=port)),
            **self._figures.get(member.name, NO_FIGURES).told(),
        }

    def _pings(self, members: Sequence[Member], lost: Collection[str]) -> dict[str, Any]:
        """Return what `paths_of` takes: who there is, and what each says of the others."""
        there = [member for member in members if member.status.label in PLACED]
        names = {member.name for member in there}
        return {
            "names": [member.name for member in there],
            "cells": dict(self._cells),
            "dead": sorted(names & {*lost}),
            "zones": {m.name: v for m in there for key, v in m.labels if key == "zone"},
        }

    def _ownership(self) -> list[dict[str, Any]]:
        ringpop = self._ringpop
        if not ringpop.keyspaces_on_demand.loaded:
            return []
        places = [row["name"] for row in placed(self._seen.rows)]
        there = members_there(ringpop)
        return [
            owned(each.name, ringpop.keyspaces.here(each.name).host.table, places, there)
            for each in ringpop.keyspaces.all()[:OWNERS_SHOWN]
        ]

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

    def _keyspaces(self) -> list[dict[str, Any]]:
        ringpop = self._ringpop
        if not ringpop.keyspaces_on_demand.loaded:
            return []
        found = []
        for keyspace in ringpop.keyspaces.all()[:KEYSPACES_SHOWN]:
            summary = summary_of(ringpop, keyspace.name)
            table = ringpop.keyspaces.here(keyspace.name).host.table
            self._handovers.note(keyspace.name, table, time.time())
            shown = ("name", "mode", "partitions", "served", "settled", "moving", "members")
            more = ("waits_for", "failed", "assignment_version")
            found.append({name: summary[name] for name in (*shown, *more)})
            found[-1]["under_way"] = activity.under_way(table)
        return found

    def _events(self) -> list[dict[str, Any]]:
        records = self._ringpop.reporter.events.last(EVENTS_SHOWN)
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
