"""The problems of a cluster by their causes, judged from what members say, or from a trace."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

OK, WARNING, CRITICAL = 0, 1, 2
LEVELS: Final = ("OK", "WARNING", "CRITICAL")
NAMES_SHOWN: Final = 5
RANKS: Final = (
    *("node", "key", "certificate", "killed", "paused", "cut", "path", "store-deleted"),
    *("store-full", "store-read-only", "store", "damaged", "application", "starved", "lossy"),
    *("clock", "disk", "checkpoints", "expiry", "reminders", "tick", "bug", "members", "views"),
    *("copies", "stores"),
    *("partitions", "hosts", "flow", "versions", "settings", "connections", "log", "draining"),
)
"""Causes come before what they may cause: of several problems of one level, the first is told
first."""


class Problem(NamedTuple):
    """Something that is not as it should be.

    Attributes:
        cause: one of `RANKS`.
        text: what is wrong.
        members: whom it concerns.
        evidence: what was seen of it, and what else it explains.
        next: the command to go on with, or what to do.
        since: when it began, by the wall clock, if that is known.
    """

    level: int
    cause: str
    text: str
    members: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    next: str = ""
    since: float | None = None

    def told(self) -> dict[str, Any]:
        """Return the problem as plain values, with the level as a word."""
        lists = {"members": [*self.members], "evidence": [*self.evidence]}
        return {**self._asdict(), **lists, "level": LEVELS[self.level].lower()}


@dataclass(slots=True)
class Seen:
    """What the reachable members say, by name; those that do not answer are *silent*.

    Attributes:
        rows: all members, as the node that was asked sees them.
        clocks_s: by how much each clock is ahead of this machine's, at least or at most: the middle
            of the call.
        off_s: by how much that may be wrong: half of the call.
        asked: the members that were asked at the same time; None if all were.
        views_differ: whether the views have differed for a while, and not for a moment.
    """

    rows: list[dict[str, Any]]
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    checkups: dict[str, dict[str, Any]] = field(default_factory=dict)
    reach: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    keyspaces: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    clocks_s: dict[str, float] = field(default_factory=dict)
    off_s: dict[str, float] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    asked: frozenset[str] | None = None
    views_differ: bool = True

    def by_section(self) -> dict[str, dict[str, Any]]:
        """Return what is kept by member: the sections of `admin.census`, and who is silent."""
        return {
            "node": self.nodes,
            "checkup": self.checkups,
            "reach": self.reach,
            "settings": self.settings,
            "keyspaces": self.keyspaces,
            "clock_s": self.clocks_s,
            "off_s": self.off_s,
            "silent": self.silent,
        }

    def note(self, name: str, said: Mapping[str, Any]) -> None:
        """Note what a member says of itself, by section."""
        self.silent.pop(name, None)
        for section, found in self.by_section().items():
            if section in said:
                found[name] = said[section]


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    """Return *problems* in the order in which people should read them."""
    return sorted(problems, key=lambda each: (-each.level, RANKS.index(each.cause), each.text))


def groups_of(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names that have each value, the largest group first."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in values.items():
        found[value].append(name)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def views_of(seen: Seen) -> dict[str, list[str]]:
    """Return the members that have each view, of those that were asked at the same time."""
    asked = seen.nodes.keys() if seen.asked is None else seen.asked & seen.nodes.keys()
    return groups_of({name: str(seen.nodes[name]["checksum"]) for name in sorted(asked)})


def some(names: Sequence[str], most: int = NAMES_SHOWN) -> str:
    """Return *names* as text: if they are many, the first ones, and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def by_member(seen: Seen, what: str) -> Iterator[tuple[str, Any]]:
    """Yield each member's *what* in its checkup, if there is any."""
    for name, checkup in sorted(seen.checkups.items()):
        if checkup.get(what):
            yield name, checkup[what]
