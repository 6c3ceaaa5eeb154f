"""The store and the partitions of a cluster: what fails there, judged by its cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.edge.judge.problems import CRITICAL, WARNING, Problem, Seen, by_member, some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

DISK_SHARE: Final = 0.1
DISK_SHARE_MIN: Final = 0.02
_OVERDUE: Final = {
    "expiry": ("overdue_s", 10, "keys of {name} are still there {most:,.0f} s after they were due"),
    "reminders": ("reminders_overdue_s", 60, "reminders of {name} are {most:,.0f} s late"),
}
"""What is due by a clock: how late it may be, in seconds, and what is said of it then."""
"""For so long a key may be due: its owner looks each second, and a take-over takes some."""
_TEXTS: Final = {
    "store-deleted": ("the store is gone", "bring it back, or restore a checkpoint"),
    "store-full": ("the store is full", "make room: writes go on by themselves"),
    "store-read-only": ("the store refuses writes", "ringpopctl partitions; repair the store"),
    "store": ("the store fails", "ringpopctl partitions"),
}


def store_problems(seen: Seen) -> Iterator[Problem]:
    """Yield one problem for each way in which the store fails, whatever number it fails."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, why in by_member(seen, "store_trouble"):
        found[_kind(seen.checkups[name].get("store_trouble_kind", ""), why)][name] = why
    for name, keyspaces in sorted(seen.keyspaces.items()):
        for keyspace in keyspaces:
            why = keyspace.get("refusal")  # older members say none
            if why and not any(name in members for members in found.values()):
                found[_kind("", why)][name] = why
    for cause, members in found.items():
        text, then = _TEXTS[cause]
        whose, why = some([*members]), next(iter(members.values()))
        yield Problem(CRITICAL, cause, f"{text}, for {whose}: {why}", tuple(members), (), then)


def _kind(code: str, why: str) -> str:
    if code == "store-full" or "No space left" in why:
        return "store-full"
    if "is gone" in why or "No such file" in why or "another store" in why:
        return "store-deleted"
    return "store-read-only" if code == "store-refused" or "Read-only" in why else "store"


def disk_problems(seen: Seen) -> Iterator[Problem]:
    """Yield the disks that have little room, or are not there."""
    for name, disks in by_member(seen, "disks"):
        for disk in disks:
            where = f"{disk['what']} of {name} ({disk['path']})"
            if disk["free_bytes"] is None:
                yield Problem(CRITICAL, "disk", f"{where}: {disk['trouble']}", (name,))
                continue
            share = disk["free_bytes"] / max(disk["total_bytes"], 1)
            if share < DISK_SHARE:
                level = CRITICAL if share < DISK_SHARE_MIN else WARNING
                free = disk["free_bytes"] / 1e9
                yield Problem(
                    level, "disk", f"{where}: {share:.0%} is free, {free:.1f} GB", (name,)
                )


def keyspace_problems(seen: Seen, lost: Collection[str]) -> Iterator[Problem]:
    """Yield what is wrong with keyspaces, besides a store that fails. *lost* are members."""
    said: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for member, found in sorted(seen.keyspaces.items()):
        for keyspace in found:
            said[keyspace["name"]][member] = keyspace
    for name, opinions in sorted(said.items()):
        yield from _unserved(name, [*opinions.values()])
        yield from _damage(name, opinions)
        yield from _checkpoints(name, opinions)
        yield from _overdue(name, opinions)
        yield from _copies(name, opinions)
        yield from _bugs(name, opinions, lost)


def _unserved(name: str, opinions: list[dict[str, Any]]) -> Iterator[Problem]:
    # The median: a member that is behind, or lies, neither hides an outage nor makes one.
    typical = sorted(opinions, key=_unserved_count)[(len(opinions) - 1) // 2]
    if count := _unserved_count(typical):
        text = f"{count} of {typical['partitions']} partitions of {name} are not served"
        if typical["waits_for"]:
            text += f": {typical['waits_for']}"
        then = f"ringpopctl partitions --keyspace {name}"
        yield Problem(CRITICAL, "partitions", text, (), (), then)


def _unserved_count(keyspace: dict[str, Any]) -> int:
    return max(0, int(keyspace["partitions"] - keyspace["served"]))


def _damage(name: str, opinions: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    # Said by the member that should serve them: the others may still take it for their owner.
    met = {member: said for member, said in opinions.items() if said.get("damaged")}
    if met:
        numbers = sorted({number for said in met.values() for number in said["damaged"]})
        whose, first = some([*met]), next(iter(met.values()))
        noun = "partition is" if len(numbers) == 1 else "partitions are"
        text = f"{len(numbers)} {noun} damaged in {name}, met by {whose}: {first['damage']}"
        evidence = f"damaged: {some([str(number) for number in numbers], 20)}"
        then = f"ringpopctl checkpoint restore {name} latest"
        yield Problem(CRITICAL, "damaged", text, tuple(met), (evidence,), then)


def _checkpoints(name: str, opinions: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    failing = {
        m: said["checkpoint_trouble"]
        for m, said in opinions.items()
        if said.get("checkpoint_trouble")
    }
    if failing:
        text = f"checkpoints of {name} fail at {some([*failing])}: {next(iter(failing.values()))}"
        then = f"ringpopctl checkpoint now {name}"
        yield Problem(WARNING, "checkpoints", text, tuple(failing), (), then)


def _overdue(name: str, opinions: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    for cause, (field, bearable_s, what) in _OVERDUE.items():
        late = {m: s for m, said in opinions.items() if (s := said.get(field, 0)) > bearable_s}
        if late:
            text = what.format(name=name, most=max(late.values())) + f", at {some([*late])}"
            then = f"ringpopctl partitions --keyspace {name}"
            yield Problem(WARNING, cause, text, tuple(late), (), then)


def _copies(name: str, opinions: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    short = {m: n for m, said in opinions.items() if (n := said.get("copies_missing", 0))}
    if short:
        count, whole = sum(short.values()), next(iter(opinions.values()))["partitions"]
        text = f"{count} of {whole} partitions of {name} have fewer copies than they should have"
        text += f", by their owners {some([*short])}: one more death may lose them"
        then = f"ringpopctl keyspace show {name}"
        yield Problem(WARNING, "copies", text, tuple(short), (), then)


def _bugs(
    name: str, opinions: dict[str, dict[str, Any]], lost: Collection[str]
) -> Iterator[Problem]:
    failed = Counter(member for opinion in opinions.values() for member in opinion["failed"])
    refused = {
        member for member, said in opinions.items() if said.get("refusal")
    }  # which is no bug
    counted = {m for m, count in failed.items() if 2 * count >= len(opinions)}
    # A label outlives its member: it has ended with it.
    members = sorted(counted - refused - {*lost})
    if members:
        text = f"a bug has stopped the shares of {name} at {some(members)}"
        yield Problem(CRITICAL, "bug", text, tuple(members), (), "read their logs, restart them")
