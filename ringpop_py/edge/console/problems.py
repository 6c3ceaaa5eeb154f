"""The problems of a cluster, judged from what its members say, or from a trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OK, WARNING, CRITICAL = 0, 1, 2
LEVELS: Final = ("OK", "WARNING", "CRITICAL")
CLOCK_S: Final = 5.0
DISK_SHARE: Final = 0.1
DISK_SHARE_MIN: Final = 0.02
NAMES_SHOWN: Final = 5
SETTINGS_SHOWN: Final = 5


class Problem(NamedTuple):
    """Something that is not as it should be.

    Attributes:
        check: what was looked at.
        text: what is wrong, and what to do.
    """

    level: int
    check: str
    text: str


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


def problems_in(
    seen: Seen, *, members: int | None = None, clock_s: float = CLOCK_S
) -> Iterator[Problem]:
    """Yield the problems of the cluster.

    Args:
        members: how many there should be in the ring.
        clock_s: by how much clocks may differ.
    """
    yield from _of_size(seen, members)
    yield from _of_members(seen)
    yield from _of_views(seen)
    yield from _of_partitions(seen)
    yield from _of_differences(seen)
    yield from _of_clocks(seen, clock_s)
    yield from _of_disks(seen)
    for name, checkup in seen.checkups.items():
        if checkup.get("store_trouble"):
            text = f"the last write of {name} has failed: {checkup['store_trouble']}"
            yield Problem(CRITICAL, "store", text)
        if checkup.get("application_trouble"):
            text = f"the application beside {name} is away: {checkup['application_trouble']}"
            yield Problem(CRITICAL, "application", text)
        for text in checkup.get("flow_troubles", ()):
            yield Problem(WARNING, "flow", f"{name}: {text}")
        if checkup.get("connections_refused"):
            count = checkup["connections_refused"]
            text = f"{name} has refused {count} connections since it began: a limit was reached"
            yield Problem(WARNING, "connections", text)
        if checkup["log_lines_lost"]:
            lost = f"{name} could not write {checkup['log_lines_lost']} lines of its log"
            yield Problem(WARNING, "log", lost)


def _of_size(seen: Seen, members: int | None) -> Iterator[Problem]:
    in_ring = sum(row["in_ring"] for row in seen.rows)
    if not in_ring:
        yield Problem(CRITICAL, "members", "nobody is in the ring: no key has an owner")
    if members is not None and in_ring != members:
        level = CRITICAL if in_ring < members else WARNING
        yield Problem(level, "members", f"{in_ring} members are in the ring, not {members}")


def _of_members(seen: Seen) -> Iterator[Problem]:
    by_status: defaultdict[str, list[str]] = defaultdict(list)
    for row in seen.rows:
        by_status[row["status"]].append(row["name"])
        for mark in ("damped", "draining"):
            # Who has left was drained before; the row stays for a day.
            if row[mark] and row["status"] != "leave":
                by_status[mark].append(row["name"])
    for status in ("faulty", "suspect", "damped", "draining"):
        if by_status[status]:
            names = _some(by_status[status])
            advice = "" if status == "draining" else f" (ringpopctl why {by_status[status][0]})"
            yield Problem(WARNING, "members", f"{status}: {names}{advice}")
    for name, why in seen.silent.items():
        yield Problem(CRITICAL, "members", f"{name} does not answer: {why}")
    not_ready = [name for name, node in seen.nodes.items() if not node["ready"]]
    if not_ready:
        yield Problem(CRITICAL, "members", f"not joined yet: {_some(not_ready)}")
    hosts = {
        host: why for node in seen.nodes.values() for host, why in node["silent_hosts"].items()
    }
    for host, why in hosts.items():
        yield Problem(WARNING, "hosts", f"the host {host} does not answer: {why}")


def _of_views(seen: Seen) -> Iterator[Problem]:
    groups = views_of(seen)
    if len(groups) > 1 and seen.views_differ:
        sides = " | ".join(_some(names) for names in groups.values())
        yield Problem(CRITICAL, "views", f"{len(groups)} different views of the cluster: {sides}")


def views_of(seen: Seen) -> dict[str, list[str]]:
    """Return the members that have each view, of those that were asked at the same time."""
    asked = seen.nodes.keys() if seen.asked is None else seen.asked & seen.nodes.keys()
    return _groups({name: str(seen.nodes[name]["checksum"]) for name in sorted(asked)})


def _of_partitions(seen: Seen) -> Iterator[Problem]:
    said: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for found in seen.keyspaces.values():
        for keyspace in found:
            said[keyspace["name"]].append(keyspace)
    for name, opinions in sorted(said.items()):
        # The median: a member that is behind, or lies, neither hides an outage nor makes one.
        typical = sorted(opinions, key=_unserved)[(len(opinions) - 1) // 2]
        unserved = _unserved(typical)
        if unserved:
            text = f"{unserved} of {typical['partitions']} partitions of {name} are not served"
            if typical["waits_for"]:
                text += f": {typical['waits_for']}"
            yield Problem(CRITICAL, "partitions", f"{text} (ringpopctl keyspace show {name})")
        yield from _of_damage(name, seen)
        refusals = {
            member: keyspace["refusal"]
            for member, found in sorted(seen.keyspaces.items())
            for keyspace in found
            if keyspace["name"] == name and keyspace.get("refusal")  # older ones say none
        }
        if refusals:
            why = next(iter(refusals.values()))
            text = f"the store refuses writes of {name} from {_some([*refusals])}: {why}"
            yield Problem(CRITICAL, "partitions", text)
        failed = Counter(member for opinion in opinions for member in opinion["failed"])
        members = sorted(m for m, count in failed.items() if 2 * count >= len(opinions))
        members = [member for member in members if member not in refusals]  # which is no bug
        if members:
            text = f"a bug has stopped the shares of {name} at {_some(members)}"
            yield Problem(CRITICAL, "partitions", f"{text}: read their logs, restart them")


def _of_damage(name: str, seen: Seen) -> Iterator[Problem]:
    # Said by the member that should serve them: the others may still take it for their owner.
    for member, found in sorted(seen.keyspaces.items()):
        for keyspace in found:
            numbers = keyspace.get("damaged")
            if keyspace["name"] == name and numbers:
                more = f" (and {len(numbers) - 1} more)" if len(numbers) > 1 else ""
                text = f"damage in {name}, met by {member}: {keyspace['damage']}{more}"
                yield Problem(CRITICAL, "partitions", text)


def _unserved(keyspace: dict[str, Any]) -> int:
    return max(0, int(keyspace["partitions"] - keyspace["served"]))


def _of_differences(seen: Seen) -> Iterator[Problem]:
    versions = _groups({name: node["version"] for name, node in seen.nodes.items()})
    if len(versions) > 1:
        said = " | ".join(f"{version}: {_some(names)}" for version, names in versions.items())
        yield Problem(WARNING, "versions", f"members have different versions: {said}")
    stores = {name: node.get("store") for name, node in seen.nodes.items()}
    groups = _groups({name: store for name, store in stores.items() if store is not None})
    if len(groups) > 1:
        said = " | ".join(f"{store}: {_some(names)}" for store, names in groups.items())
        yield Problem(CRITICAL, "stores", f"members have different stores: {said}")
    names = sorted({setting for found in seen.settings.values() for setting in found})
    differing = []
    for setting in names:
        values = {repr(found.get(setting)) for found in seen.settings.values()}
        if len(values) > 1:
            differing.append(f"{setting} ({', '.join(sorted(values))})")
    if differing:
        yield Problem(WARNING, "settings", f"members differ in {_some(differing, SETTINGS_SHOWN)}")


def _of_clocks(seen: Seen, clock_s: float) -> Iterator[Problem]:
    if not seen.clocks_s:
        return
    # The least that two clocks can differ by: calls take time, at either of their ends.
    least = {name: ahead - seen.off_s[name] for name, ahead in seen.clocks_s.items()}
    most = {name: ahead + seen.off_s[name] for name, ahead in seen.clocks_s.items()}
    fast = max(least, key=least.__getitem__)
    slow = min(most, key=most.__getitem__)
    apart_s = least[fast] - most[slow]
    if apart_s > clock_s:
        text = f"the clock of {fast} is {apart_s:.1f} s ahead of that of {slow}: correct one"
        yield Problem(WARNING, "clocks", text)


def _of_disks(seen: Seen) -> Iterator[Problem]:
    for name, checkup in seen.checkups.items():
        for disk in checkup["disks"]:
            where = f"{disk['what']} of {name} ({disk['path']})"
            if disk["free_bytes"] is None:
                yield Problem(CRITICAL, "disk", f"{where}: {disk['trouble']}")
                continue
            share = disk["free_bytes"] / max(disk["total_bytes"], 1)
            if share < DISK_SHARE:
                level = CRITICAL if share < DISK_SHARE_MIN else WARNING
                free = disk["free_bytes"] / 1e9
                yield Problem(level, "disk", f"{where}: {share:.0%} is free, {free:.1f} GB")


def _groups(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names that have each value, the largest group first."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in values.items():
        found[value].append(name)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def _some(names: list[str], most: int = NAMES_SHOWN) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
