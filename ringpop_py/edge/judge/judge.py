"""The judge: from what members say to the problems of their cluster, each by its cause."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.edge.judge import reachability, storage
from ringpop_py.edge.judge.problems import (
    CRITICAL,
    WARNING,
    Problem,
    Seen,
    by_member,
    groups_of,
    some,
    views_of,
    worst_first,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

CLOCK_S: Final = 5.0
SETTINGS_SHOWN: Final = 5
RECENT_S: Final = 60.0
"""For how long what happened and is over, as lines of a log that were lost, is a problem."""
_OF_LOSS: Final = ("partitions", "views", "members", "hosts")
EXPLAINED: Final = {
    **dict.fromkeys(("killed", "paused", "cut", "certificate"), _OF_LOSS),
    **dict.fromkeys(("path", "starved", "lossy"), ("views",)),
    "store-deleted": ("partitions",),
}
"""What each cause explains, if it names no member: then it is evidence of the cause."""


def problems_in(
    seen: Seen, *, members: int | None = None, clock_s: float = CLOCK_S
) -> list[Problem]:
    """Return the problems of the cluster, the worst one first.

    Args:
        members: how many there should be in the ring; by default what members say (`--expect`).
        clock_s: by how much clocks may differ.
    """
    links = reachability.links_of(seen)
    lost = reachability.lost_in(seen, links)
    away = {row["name"] for row in seen.rows if row["status"] in ("leave", "tombstone")} | {*lost}
    starved = reachability.starved_in(seen)
    cut = reachability.cut_in(links, lost)
    around = {*starved, *away}
    lossy = {each.members[0] for each in reachability.lossy_problems(links, around, cut)}
    cut = {pair: ping for pair, ping in cut.items() if not {*pair} & {*lossy, *starved}}
    return worst_first(
        _folded(
            [
                *reachability.lost_problems(seen, links, lost),
                *reachability.path_problems(links, cut),
                *reachability.starved_problems(starved),
                *reachability.lossy_problems(links, around, cut),
                *storage.store_problems(seen),
                *storage.disk_problems(seen),
                *storage.keyspace_problems(seen, away),
                *_of_size(seen, members),
                *_of_members(seen, lost),
                *_of_views(seen),
                *_of_differences(seen),
                *_of_clocks(seen, clock_s),
                *_of_nodes(seen),
                *_of_ticks(seen),
                *_of_strangers(seen),
            ]
        )
    )


def _folded(problems: list[Problem]) -> list[Problem]:
    """Return *problems*, but those that another one explains are evidence of the worst such one."""
    causes = worst_first(each for each in problems if each.cause in EXPLAINED)
    explained: dict[Problem, list[Problem]] = {}
    rest = []
    for each in problems:
        by = (cause for cause in causes if each.cause in EXPLAINED[cause.cause])
        cause = None if each.members else next(by, None)
        if cause is not None:
            explained.setdefault(cause, []).append(each)
        elif each not in causes:
            rest.append(each)
    for cause in causes:
        found = explained.get(cause, [])
        level = max(each.level for each in [cause, *found])
        evidence = (*cause.evidence, *(each.text for each in found))
        rest.append(cause._replace(level=level, evidence=evidence))
    return rest


def _of_size(seen: Seen, members: int | None) -> Iterator[Problem]:
    in_ring = sum(row["in_ring"] for row in seen.rows)
    if not in_ring:
        yield Problem(CRITICAL, "members", "nobody is in the ring: no key has an owner")
    told = [node["expected"] for node in seen.nodes.values() if node.get("expected")]
    expected = max(told, default=None) if members is None else members
    if expected is not None and in_ring != expected:
        level = CRITICAL if in_ring < expected else WARNING
        yield Problem(level, "members", f"{in_ring} members are in the ring, not {expected}")


def _of_members(seen: Seen, lost: Collection[str]) -> Iterator[Problem]:
    marks = {"suspect": "ringpopctl why {}", "damped": "ringpopctl damp show {}", "draining": ""}
    for mark, then in marks.items():
        # Who has left was drained before; the row stays for a day.
        names = [
            row["name"]
            for row in seen.rows
            if row["status"] == mark or (row.get(mark) and row["status"] != "leave")
        ]
        if names := [name for name in names if name not in lost]:
            text = f"{mark}: {some(names)}"
            cause = mark if mark == "draining" else "members"
            yield Problem(WARNING, cause, text, tuple(names), (), then.format(names[0]))
    for name, why in seen.silent.items():
        if name not in lost:
            yield Problem(CRITICAL, "members", f"{name} does not answer: {why}")
    joining = [name for name, node in seen.nodes.items() if not node["ready"]]
    if joining:
        yield Problem(CRITICAL, "members", f"not joined yet: {some(joining)}", tuple(joining))
    hosts = {
        host: why for node in seen.nodes.values() for host, why in node["silent_hosts"].items()
    }
    addresses = {row.get("address") for row in seen.rows if row["name"] in lost}
    for host, why in hosts.items():
        who = () if host in addresses else (host,)  # a lost member explains its own host alone
        cause = "key" if "certificate" in why or "key" in why else "hosts"
        yield Problem(WARNING, cause, f"the host {host} does not answer: {why}", who)


def _of_views(seen: Seen) -> Iterator[Problem]:
    groups = views_of(seen)
    if len(groups) > 1 and seen.views_differ:
        sides = " | ".join(some(names) for names in groups.values())
        text = f"{len(groups)} different views of the cluster: {sides}"
        yield Problem(CRITICAL, "views", text, (), (), "ringpopctl views")


def _of_differences(seen: Seen) -> Iterator[Problem]:
    versions = groups_of({name: node["version"] for name, node in seen.nodes.items()})
    if len(versions) > 1:
        said = " | ".join(f"{version}: {some(names)}" for version, names in versions.items())
        yield Problem(WARNING, "versions", f"members have different versions: {said}")
    stores = {name: node.get("store") for name, node in seen.nodes.items()}
    groups = groups_of({name: store for name, store in stores.items() if store is not None})
    if len(groups) > 1:
        said = " | ".join(f"{store}: {some(names)}" for store, names in groups.items())
        yield Problem(CRITICAL, "stores", f"members have different stores: {said}")
    names = sorted({setting for found in seen.settings.values() for setting in found})
    differing = []
    for setting in names:
        values = {repr(found.get(setting)) for found in seen.settings.values()}
        if len(values) > 1:
            differing.append(f"{setting} ({', '.join(sorted(values))})")
    if differing:
        yield Problem(WARNING, "settings", f"members differ in {some(differing, SETTINGS_SHOWN)}")


def _of_clocks(seen: Seen, clock_s: float) -> Iterator[Problem]:
    if not seen.clocks_s:
        return
    # The least that two clocks can differ by: calls take time, at either of their ends.
    least = {name: ahead - seen.off_s[name] for name, ahead in seen.clocks_s.items()}
    most = {name: ahead + seen.off_s[name] for name, ahead in seen.clocks_s.items()}
    fast = max(least, key=least.__getitem__)
    slow = min(most, key=most.__getitem__)
    apart_s = least[fast] - most[slow]
    if apart_s <= clock_s:
        return
    # Whose clock is wrong? Not that of most members.
    middle = sorted(seen.clocks_s.values())[len(seen.clocks_s) // 2]
    wrong = max((fast, slow), key=lambda name: abs(seen.clocks_s[name] - middle))
    how, other = ("ahead of", slow) if wrong == fast else ("behind", fast)
    text = f"the clock of {wrong} is {apart_s:.1f} s {how} that of {other}: correct it"
    yield Problem(WARNING, "clock", text, (wrong,), (), f"chronyc tracking, on {wrong}")


def _of_nodes(seen: Seen) -> Iterator[Problem]:
    for name, why in by_member(seen, "application_trouble"):
        text = f"the application beside {name} is away: {why}"
        yield Problem(CRITICAL, "application", text, (name,), (), f"start it again, on {name}")
    for name, texts in by_member(seen, "flow_troubles"):
        for text in texts:
            yield Problem(WARNING, "flow", f"{name}: {text}", (name,), (), "ringpopctl streams")
    for name, count in by_member(seen, "connections_refused"):
        if _is_recent(seen.checkups[name], "connections_refused_at"):
            text = f"{name} has refused {count} connections since it began: a limit was reached"
            yield Problem(WARNING, "connections", text, (name,), (), "docs/limits.md")
    for name, count in by_member(seen, "log_lines_lost"):
        if _is_recent(seen.checkups[name], "log_lost_at"):
            text = f"{name} could not write {count} lines of its log"
            yield Problem(WARNING, "log", text, (name,), (), f"make room for the log, on {name}")


def _of_ticks(seen: Seen) -> Iterator[Problem]:
    found: defaultdict[str, list[str]] = defaultdict(list)  # all that have a schedule say the same
    for name, texts in by_member(seen, "tick_troubles"):
        for text in texts:
            found[text].append(name)
    for text, names in found.items():
        yield Problem(WARNING, "tick", text, tuple(names), (), "ringpopctl ticks")


def _is_recent(checkup: dict[str, Any], when: str) -> bool:
    # Older members do not say when it was.
    return when not in checkup or checkup["at"] - checkup[when] < RECENT_S


def _of_strangers(seen: Seen) -> Iterator[Problem]:
    found: dict[tuple[str, str], list[str]] = {}
    for name, strangers in by_member(seen, "strangers"):
        for stranger in strangers:
            if "certificate" in stranger["why"] or "key" in stranger["why"]:
                found.setdefault((stranger["peer"], stranger["why"]), []).append(name)
    for (peer, why), names in found.items():
        cause = "certificate" if "expired" in why or "clocks" in why else "key"
        text = f"a process at {peer} is refused by {some(names)}: {why}"
        yield Problem(WARNING, cause, text, (peer,), (), "ringpopctl keys list FILE, on both")
