"""Who reaches whom, judged from pings: members that are gone, hang or are cut off; bad paths."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.edge.judge.problems import CRITICAL, WARNING, Problem, Seen, some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    Links = dict[tuple[str, str], dict[str, Any]]

LOSSY_SHARE: Final = 0.1
LOSSY_MIN: Final = 3
"""A member has bad paths if so many, and such a share, of its recent pings are late or lost."""
PINGS_MIN: Final = 6
CUT_S: Final = 2.0
"""For how long all pings of a path must fail, and none in the last 10 s be answered."""
STARVED_SHARE: Final = 0.2
LATE_MIN: Final = 3
STALLED_S: Final = 1.0
"""A node is starved if its event loop is late so often, or if it did not run for so long."""
STOLEN_SHARE: Final = 0.2
LAG_S: Final = 0.3
"""Likewise if it woke so late from naps of 0.15 s together."""
WITNESSES_SHOWN: Final = 3
_CAUSES: Final = {"refused": "killed", "accepted": "paused", "silent": "cut"}


def links_of(seen: Seen) -> Links:
    """Return what each member that answers says of its pings to each other one."""
    return {
        (sender, ping["name"]): {**ping, "at": said["at"]}
        for sender, said in seen.reach.items()
        for ping in said["pings"]
    }


def lost_in(seen: Seen, links: Links) -> dict[str, str]:
    """Return the members that nobody reaches, and why, as a cause."""
    found: dict[str, str] = {}
    by_receiver: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for (_, receiver), ping in links.items():
        by_receiver[receiver].append(ping)
    for row in seen.rows:
        name = row["name"]
        to = by_receiver[name]
        failing = [ping for ping in to if ping.get("failing_since")]
        unheard = name not in seen.nodes and len(failing) == len(to) > 0
        if row["status"] == "faulty" or (unheard and row["status"] in ("alive", "suspect")):
            found[name] = _cause_of(failing)
    return found


def _cause_of(failing: list[dict[str, Any]]) -> str:
    if any("certificate" in ping.get("words", "") for ping in failing):
        return "certificate"
    knocks = [ping["tcp"] for ping in failing if ping.get("tcp")]
    if knocks:  # the best that a witness can say: it has reached the machine
        return _CAUSES[min(knocks, key=("refused", "accepted", "silent").index)]
    if any(ping["failure"] in ("refused", "lost") for ping in failing):
        return "killed"
    return "cut"


def lost_problems(seen: Seen, links: Links, lost: dict[str, str]) -> Iterator[Problem]:
    """Yield a problem for each cause by which members are lost."""
    by_cause: defaultdict[str, list[str]] = defaultdict(list)
    for name, cause in lost.items():
        by_cause[cause].append(name)
    known = sum(row["status"] in ("alive", "suspect", "faulty") for row in seen.rows)
    for cause, names in by_cause.items():
        pings = [(by, to, ping) for (by, to), ping in links.items() if to in names]
        since = [ping["failing_since"] for _, _, ping in pings if ping.get("failing_since")]
        yield Problem(
            CRITICAL if 2 * len(lost) >= known else WARNING,
            cause,
            _text_of_loss(cause, names, pings),
            tuple(names),
            tuple(_witnesses(pings)),
            _NEXT.get(cause, "ringpopctl why {0}").format(names[0]),
            min(since, default=None),
        )


_NEXT: Final = {
    "killed": "ringpopctl why {0}; start it again, or ringpopctl force-leave {0}",
    "cut": "ringpopctl why {0}; repair the network or the machine: the sides merge by themselves",
    "certificate": "ringpopctl keys list FILE, on both machines; compare their clocks",
}


def _text_of_loss(cause: str, names: list[str], pings: list[tuple[str, str, Any]]) -> str:
    who, them = some(names), "its" if len(names) == 1 else "their"
    is_, s = ("is", "s") if len(names) == 1 else ("are", "")
    match cause:
        case "killed":
            machine = "machine answers" if s else "machines answer"
            return f"{who} {is_} gone: {them} {machine}, and no process listens there (killed)"
        case "paused":
            return (
                f"{who} stand{s} still: the system accepts connections, and the process does not "
                "answer (paused, hanging or swapping)"
            )
        case "certificate":
            words = next(p["words"] for _, _, p in pings if "certificate" in p.get("words", ""))
            return f"{who} and others do not trust each other's certificates: {words}"
        case _:
            pass
    reached = "nothing answers there (a cut network, or a machine that is off)"
    by = sorted({by for by, _, ping in pings if ping.get("failing_since")})
    return f"{who} {is_} out of reach of {some(by) or 'others'}: {reached}"


def _witnesses(pings: list[tuple[str, str, Any]]) -> Iterator[str]:
    told = {"refused": "refuses", "accepted": "accepts", "silent": "does not answer"}
    failing = [each for each in pings if each[2].get("failing_since")]
    for by, to, ping in failing[:WITNESSES_SHOWN]:
        machine = f"; its machine {told[ping['tcp']]} connections" if ping.get("tcp") else ""
        yield f"{by}: pings to {to} fail ({ping['failure']}){machine}"


def cut_in(links: Links, lost: Collection[str]) -> Links:
    """Return the pings of members that do not reach each other, though others reach both."""
    return {
        pair: ping
        for pair, ping in sorted(links.items())
        if ping.get("failing_since")
        and not {*pair} & {*lost}
        and not sum(ping["last_10_s"][:2])
        and ping["at"] - ping["failing_since"] >= CUT_S
    }


def path_problems(links: Links, failing: Links) -> Iterator[Problem]:
    """Yield the problem of the paths that are cut, as `cut_in` returns them."""
    if not failing:
        return
    tried = sum(sum(ping["last_10_s"]) > 0 for ping in links.values())
    words = [f"{a} to {b}" for a, b in failing]
    refused = [ping["words"] for ping in failing.values() if "certificate" in ping["words"]]
    if refused:
        text, cause = f"certificates are not trusted: {refused[0]}", "certificate"
    else:
        text, cause = (
            f"{len(failing)} of {tried} paths are cut, though others reach both ends",
            "path",
        )
    yield Problem(
        CRITICAL,
        cause,
        f"{text}: {some(words)}",
        tuple(sorted({name for pair in failing for name in pair})),
        tuple(f"{a}: pings to {b} fail ({ping['failure']})" for (a, b), ping in failing.items()),
        f"ringpopctl rtt {' '.join(next(iter(failing)))}",
        min(ping["failing_since"] for ping in failing.values()),
    )


def starved_in(seen: Seen) -> dict[str, dict[str, Any]]:
    """Return the members that lack processor time, and what they say of it."""
    return {
        name: {**strain, "lag_s": lag_s}
        for name, checkup in sorted(seen.checkups.items())
        if (strain := checkup.get("strain"))
        and (
            (lag_s := seen.reach.get(name, {}).get("lag_s", 0.0)) >= LAG_S
            or strain["late"] >= max(LATE_MIN, STARVED_SHARE * strain["woken"])
            or strain["stalled_s"] >= STALLED_S
            or (strain["stolen"] or 0) >= STOLEN_SHARE
        )
    }


def starved_problems(starved: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    """Yield the problem that members lack processor time: slowness is no outage."""
    if not starved:
        return
    names = sorted(starved, key=lambda name: -_hunger(starved[name]))
    strain = starved[names[0]]
    told = [f"its event loop was late {strain['late']} of {strain['woken']} times in 10 s"]
    if strain["lag_s"] >= LAG_S:
        told.insert(0, f"it woke {strain['lag_s']:.2f} s late from naps of 0.15 s")
    if strain["stalled_s"] >= STALLED_S:
        told.insert(0, f"it did not run for {strain['stalled_s']:.1f} s of the last 10 s")
    if strain["waiting"] is not None:
        told.append(f"processes of its machine wait {strain['waiting']:.0%} of the time")
    if strain["stolen"]:
        told.append(f"its host has taken {strain['stolen']:.0%} of the machine's time")
    text = f"{names[0]} is starved, it gets too little processor time: {told[0]}"
    if others := names[1:]:
        told.append(f"so {'are' if others[1:] else 'is'} {some(others)}")
    yield Problem(WARNING, "starved", text, tuple(names), tuple(told[1:]), "ringpopctl top")


def _hunger(strain: dict[str, Any]) -> float:
    return float(strain["stalled_s"] + strain["lag_s"] + strain["late"] / max(1, strain["woken"]))


def lossy_problems(links: Links, without: Collection[str], cut: Links) -> Iterator[Problem]:
    """Yield members with many pings, to or from them, that are late or lost: the worst one first.

    Members and paths that have a problem of their own are left out. A path that fails between
    members one of which has bad paths is one of these, and no problem of its own.

    The paths of each are left out before the next one is looked for: a bad path has two ends.
    """
    left = {
        pair: ping["last_10_s"]
        for pair, ping in links.items()
        if not {*pair} & {*without} and pair not in cut
    }
    while True:
        totals, bads = Counter[str](), Counter[str]()
        for pair, (in_time, late, lost) in left.items():
            for name in pair:
                totals[name] += in_time + late + lost
                bads[name] += late + lost
        shares = {
            name: (bads[name] / total, bads[name], total)
            for name, total in sorted(totals.items())
            if total >= PINGS_MIN and bads[name] >= LOSSY_MIN
        }
        worst = max(shares, key=lambda name: shares[name][0], default="")
        if not worst or shares[worst][0] < LOSSY_SHARE:
            return
        share, bad, total = shares[worst]
        others = sorted({name for pair in left if worst in pair for name in pair} - {worst})
        yield Problem(
            WARNING,
            "lossy",
            f"{share:.0%} of the pings to and from {worst} are late or lost ({bad} of {total} in "
            f"10 s, with {some(others)}): the network loses packets",
            (worst,),
            (),
            f"ringpopctl rtt {worst}",
        )
        left = {pair: counts for pair, counts in left.items() if worst not in pair}
