"""Facts as records: a flat, structured record of each, and one line for people.

Logs, ``ringpopctl why`` and ``events``, and the traces of the simulator all show these, so that
an event looks the same everywhere. The keys are stable; durations are in seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.address import Address
from ringpop_py.base.texts import printable
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.timers import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.member.swim.member import Member

Record = dict[str, Any]
"""A JSON-like dict: ``event`` is its kind; ``member`` is the member that it is about, if any."""

NAMED_MAX: Final = 256
"""How many members of each status the record of a burst names; it only counts the others."""
SHOWN_MAX: Final = 5
"""How many members of each status the sentence about a burst names."""

UNKNOWN: Final = "unknown"
EVICTED: Final = "evicted"
SAME_CLUSTER: Final = "give both the same --cluster if they belong together"

_VIA: Final[dict[str, str]] = {
    "timer": "its time was up",
    "ping": "by ping",
    "ack": "by the answer to a ping",
    "ping-req": "by ping-req",
    "join": "by joining",
    "full-sync": "by comparing lists",
    "reap": "reaped by hand",
    "heal": "by healing",
    "damping": "by flap damping",
}


def is_fact(effect: fx.Effect) -> bool:
    """Return whether *effect* is a fact; a duty has no record."""
    return type(effect) in _KINDS


def record_of(effect: fx.Effect) -> Record | None:
    """Return the record of a fact; None for a duty."""
    kind = _KINDS.get(type(effect))
    if kind is None:
        return None
    event, rest = kind
    return {"event": event, **rest(effect)}


def record_of_burst(changes: Sequence[fx.StatusChanged]) -> Record:
    """Return one record of many simultaneous changes: how many members now have each status.

    It names at most `NAMED_MAX` of each status. ``via`` and ``told_by`` are those of the first.
    """
    names: dict[str, list[str]] = {}
    for change in changes:
        status = change.after.status.label if change.after else EVICTED
        names.setdefault(status, []).append(change.member.name)
    return {
        "event": "members-changed",
        "count": len(changes),
        "counts": {status: len(members) for status, members in names.items()},
        "members": {status: members[:NAMED_MAX] for status, members in names.items()},
        "via": changes[0].via,
        "told_by": changes[0].told_by,
    }


def _of_change(change: fx.StatusChanged) -> Record:
    member = change.member
    record: Record = {
        "member": member.name,
        "address": str(member.address),
        "before": change.before.status.label if change.before else UNKNOWN,
        "after": change.after.status.label if change.after else EVICTED,
        "incarnation": member.incarnation,
        "via": change.via,
        "told_by": change.told_by,
        "source": change.source,
    }
    what = _what_else(change.before, change.after)
    if what:
        record["changed"] = what
    if "damping" in what:
        record["damped"] = member.damped
    if change.accusers:
        record["accusers"] = list(change.accusers)
    if change.waited_us:
        record["waited_s"] = change.waited_us / SECOND_US
    return record | _of_probe(change.probe)


def _what_else(before: Member | None, after: Member | None) -> list[str]:
    """Return the fields that changed, other than status and incarnation."""
    if before is None or after is None:
        return []
    aligned = replace(before, status=after.status, incarnation=after.incarnation)
    names = ("address", "labels", "damping")
    return [name for name in names if getattr(aligned, name) != getattr(after, name)]


def _of_probe(probe: fx.ProbeReport | None) -> Record:
    if probe is None:
        return {}
    return {
        "ping": probe.ping,
        "helpers": dict(probe.helpers),
        "strong": probe.strong,
        "probe_s": probe.duration_us / SECOND_US,
    }


def _of_confirmation(fact: fx.SuspicionConfirmed) -> Record:
    return {
        "member": fact.member.name,
        "incarnation": fact.member.incarnation,
        "accuser": fact.accuser,
        "accusers": list(fact.accusers),
        "left_s": fact.left_us / SECOND_US,
        **_of_probe(fact.probe),
    }


def _of_refutation(fact: fx.Refuted) -> Record:
    return {
        "accusation": fact.accusation.status.label,
        "accused_at": fact.accusation.incarnation,
        "incarnation": fact.now.incarnation,
        "source": fact.source,
    }


def _of_vote(fact: fx.DampVoted) -> Record:
    return {
        "member": fact.name,
        "score": fact.score,
        "answers": dict(fact.answers),
        "damped": fact.damped,
        "reason": fact.reason,
    }


def _of_name(fact: fx.NameTaken) -> Record:
    record: Record = {
        "name": fact.ours.name,
        "ours": str(fact.ours.address),
        "theirs": str(fact.theirs.address),
        "lost": fact.lost,
    }
    return record if fact.since_ms is None else record | {"since_ms": fact.since_ms}


def _of_fields(fact: fx.Effect) -> Record:
    fields = ((name, getattr(fact, name)) for name in fact.__struct_fields__)
    return {name: str(value) if isinstance(value, Address) else value for name, value in fields}


def _of_healing(fact: fx.Healed) -> Record:
    # A run that merged nothing has another name, because operators look for merges.
    record: Record = {} if fact.merged else {"event": "heal-tried"}
    for name in ("targets", "merged", "failed"):
        record[name] = [str(address) for address in getattr(fact, name)]
    return record


_KINDS: Final[dict[type, tuple[str, Callable[[Any], Record]]]] = {
    fx.StatusChanged: ("member-changed", _of_change),
    fx.SuspicionConfirmed: ("suspicion-confirmed", _of_confirmation),
    fx.Refuted: ("refuted", _of_refutation),
    fx.HealthChanged: ("health-changed", _of_fields),
    fx.Stalled: ("stalled", lambda f: {"for_s": f.for_us / SECOND_US}),
    fx.DampVoted: ("damp-voted", _of_vote),
    fx.NameTaken: ("name-taken", _of_name),
    fx.StrangerRefused: ("stranger-refused", _of_fields),
    fx.PeerTrouble: ("peer-trouble", _of_fields),
    fx.Ready: ("ready", lambda f: {"hosts_joined": f.joined}),
    fx.JoinRejected: ("join-rejected", _of_fields),
    fx.HostSilent: ("host-silent", _of_fields),
    fx.Healed: ("healed", _of_healing),
    fx.Announced: ("announced", _of_fields),
    fx.Evicted: ("farewell-said", _of_fields),
}
"""The ``event`` of each kind of fact, and the function that returns the rest of its record."""


# For people.


def text_of(record: Record) -> str:
    """Return *record* in one line, in which no text of a peer can control a terminal."""
    return printable(_text_of(record))


def _text_of(record: Record) -> str:
    event = record["event"]
    if event in _TEXTS:
        return _TEXTS[event](record)
    if "text" in record:  # from a layer above the protocol
        return str(record["text"])
    rest = ", ".join(f"{key} {value}" for key, value in record.items() if key != "event")
    return f"{event}: {rest}" if rest else event


def _text_of_change(record: Record) -> str:
    line = f"{record['member']} {record['before']} -> {record['after']}"
    if record["before"] == record["after"]:
        what = record.get("changed") or [f"incarnation {record['incarnation']}"]
        told = ", ".join(name for name in what if name != "damping")
        line = f"{record['member']} {record['after']}{', new ' if told else ''}{told}"
    if "damped" in record:
        line += ", damped" if record["damped"] else ", no longer damped"
    if record["via"] == "probe":
        return f"{line}: own probe{_text_of_probe(record)}"
    if record["via"] == "local":
        return f"{line}: said so itself"
    line += f": {_text_of_via(record)}"
    if record["told_by"] != record["source"] or record["via"] != "timer":
        line += f" from {record['told_by']}"
    if record["source"] not in ("", record["told_by"]):
        line += f", first said by {record['source']}"
    if "waited_s" in record:
        line += f" after {record['waited_s']:.2f} s"
    if "accusers" in record:
        line += f", accused by {', '.join(record['accusers'])}"
    return line


def _text_of_confirmation(record: Record) -> str:
    line = f"{record['member']} is accused by {record['accuser']} as well"
    return f"{line}{_text_of_probe(record)}; {record['left_s']:.2f} s left to refute"


def _text_of_vote(record: Record) -> str:
    scores = ", ".join(f"{name} {score}" for name, score in record["answers"].items())
    verdict = "damped" if record["damped"] else f"not damped ({record['reason']})"
    return f"{record['member']} {verdict}: own score {record['score']}, others {scores or '-'}"


def _text_of_name(record: Record) -> str:
    ends = "has to stop" if record["lost"] else "keeps it"
    return (
        f"the process at {record['theirs']} has the name {record['name']}, too: "
        f"this one, at {record['ours']}, {ends}"
    )


def _text_of_stranger(record: Record) -> str:
    refused = f"refused {record['address']}, of cluster {record['cluster']!r}"
    return f"{refused}: this node is of {record['ours']!r}; {SAME_CLUSTER}"


def _text_of_burst(record: Record) -> str:
    parts = []
    for status, count in record["counts"].items():
        shown = record["members"][status][:SHOWN_MAX]
        more = f" and {count - len(shown)} more" if count > len(shown) else ""
        parts.append(f"{count} {status} ({', '.join(shown)}{more})")
    what = f"{record['count']} members changed: {', '.join(parts)}"
    return f"{what}: {_text_of_via(record)} from {record['told_by']}"


def _text_of_via(record: Record) -> str:
    via: str = record["via"]
    return _VIA.get(via, via)


def _text_of_probe(record: Record) -> str:
    if "ping" not in record:
        return ""
    helpers = ", ".join(f"{name} {said}" for name, said in record["helpers"].items())
    evidence = "evidence" if record["strong"] else "silence"
    return f" ({evidence}: ping {record['ping']}; helpers: {helpers or 'none'})"


def text_of_healing(record: Record) -> str:
    """Return in one line what a run of healing has done."""
    merged = record["merged"]
    unmerged = [target for target in record["targets"] if target not in merged]
    parts = [f"merged with {', '.join(merged)}"] if merged else []
    if unmerged:
        parts.append(f"reached {', '.join(unmerged)}, where members have to refute before a merge")
    if record["failed"]:
        parts.append(f"no list came from {', '.join(record['failed'])}")
    return "; ".join(parts) or "nothing to heal"


_TEXTS: Final[dict[str, Callable[[Record], str]]] = {
    "member-changed": _text_of_change,
    "members-changed": _text_of_burst,
    "suspicion-confirmed": _text_of_confirmation,
    "stalled": lambda r: f"this node did not run for {r['for_s']:.2f} s",
    "damp-voted": _text_of_vote,
    "name-taken": _text_of_name,
    "stranger-refused": _text_of_stranger,
    "peer-trouble": lambda r: f"{r['peer']}, {r['endpoint']}: {r['reason']}; {r['advice']}",
    "host-silent": lambda r: f"the host {r['host']} does not answer: {r['why']}",
    "healed": text_of_healing,
    "heal-tried": text_of_healing,
}
"""Functions that return the sentence of a record; other records are shown as a list of fields."""
