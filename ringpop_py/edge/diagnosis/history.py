"""``ringpopctl why`` and ``events``: what happened to a member, from all nodes involved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ApplicationError, BodyError, CallError
from ringpop_py.edge.cli.commands import REACHABLE, connect, time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.client.sync.client import Client
    from ringpop_py.member.swim.records import Record

WITNESSES_MAX: Final = 8
WITNESS_TIMEOUT_S: Final = 1.0  # for each witness, one after the other
FOLLOW_MS: Final = 20_000  # the node replies sooner if something happens
_MACHINES: Final = {
    "refused": "its system refuses connections: no process listens",
    "accepted": "its system accepts connections, and nobody answers: it is paused, hangs or swaps",
    "silent": "nothing answers: the machine is off, or the network is cut",
}
_OF_ITS_NODE: Final = ("at", "at_node", "number")


def gather(client: Client, name: str) -> dict[str, Any]:
    """Return what *client*'s node and its witnesses know of *name*, and what other members saw.

    Members that are not named as witnesses are asked, too, because a node that was restarted knows
    no witnesses; only what these members did or met themselves counts. ``silent`` has the members
    that did not answer, and why. ``records`` has the records of all nodes in the order of time,
    each with ``at_node``. ``now`` has what the pings of each node to *name* say now: the rows of
    ``/admin/reach``, each with ``at_node`` and ``at``.

    Raises:
        ApplicationError: the node knows no such member.
        CallError: the node does not answer.
    """
    first = client.admin("/admin/why", {"name": name})
    members = client.admin("/admin/members")["members"]
    rows = {row["name"]: row["address"] for row in members}
    records, now = _at_node(first), _now(client, first["source"], name)
    silent: dict[str, str] = {}
    witnesses: list[str] = []
    named = _witnesses(first["records"], but={first["source"], name})
    others = [row["name"] for row in members if row["status"] in REACHABLE]
    for witness in list(dict.fromkeys([*named, name, *others]))[:WITNESSES_MAX]:
        if witness == first["source"] or (witness == name and witness not in others):
            continue
        if witness not in rows:
            silent[witness] = "no longer a member"
            continue
        try:
            with connect(rows[witness], timeout_s=WITNESS_TIMEOUT_S) as peer:
                found = _at_node(peer.admin("/admin/why", {"name": name}))
                now += _now(peer, witness, name)
        except (CallError, ApplicationError) as error:
            silent[witness] = str(error)
            continue
        if witness in named:
            own = found
        else:  # only what the node of a record did to *name* itself, or met as *name*
            own = [r for r in found if r["at_node"] in {name, r.get("source"), r.get("by")}]
        if own:
            witnesses.append(witness)
            records += own
    # By each node's own clock: no other one exists. The text of `story` says so.
    records.sort(key=lambda record: record["at"])
    return {
        "name": name,
        "asked": first["source"],
        "member": first["member"],
        "witnesses": witnesses,
        "silent": silent,
        "records": records,
        "now": now,
    }


def _now(client: Client, at_node: str, name: str) -> list[dict[str, Any]]:
    """Return the row about *name* in the ``/admin/reach`` of *client*'s node, if it has one."""
    from ringpop_py.edge.admin.accounts import checked  # noqa: PLC0415 - help needs nothing that is installed

    try:
        said = checked("/admin/reach", client.admin("/admin/reach"))
    except (ApplicationError, BodyError, CallError):  # an older node does not know the endpoint
        return []
    rows = [row for row in said["pings"] if row["name"] == name]
    return [{"at_node": at_node, "at": said["at"], **row} for row in rows]


def seen_now(row: dict[str, Any]) -> str:
    """Return what a row of ``now`` says, as a sentence."""
    if row.get("failing_since"):
        text = f"pings have failed since {time_of(row['failing_since'])} ({row['failure']})"
        if row["failure"] == "untrusted":  # the process answers, and TLS refuses it
            return f"{text}: {row['words']}"
        machine = _MACHINES.get(row.get("tcp", ""), row.get("words", ""))
        return f"{text}; {machine}" if machine else text
    # Without a ping since then, it may have died in between.
    text = f"it answered a ping {row['at'] - row['answered_at']:.1f} s ago"
    if trip_s := row.get("round_trip_s"):
        text += f", within {1000 * trip_s:.1f} ms"
    on_time, late, lost = row.get("last_10_s", (0, 0, 0))
    if late or lost:
        text += f"; of {on_time + late + lost} pings in 10 s, {late} came late and {lost} were lost"
    return text


def _at_node(answer: dict[str, Any]) -> list[Record]:
    return [{**record, "at_node": answer["source"]} for record in answer["records"]]


def _witnesses(records: Sequence[Record], *, but: set[str]) -> list[str]:
    # Members that only passed an accusation on are left out: they know no more.
    found: dict[str, None] = {}  # a set that keeps its order
    for record in reversed(records):
        for name in (record.get("source", ""), *record.get("accusers", ())):
            if name and name not in but:
                found[name] = None
    return list(found)[:WITNESSES_MAX]


def next_page(client: Client, page: dict[str, Any]) -> dict[str, Any]:
    """Wait for events after those of *page*, and return them."""
    body = {"after": page["records"][-1]["number"] if page["records"] else page["last"]}
    body["wait_ms"] = FOLLOW_MS
    value: dict[str, Any] = client.admin(
        "/admin/events", body, timeout_s=FOLLOW_MS / 1000 + WITNESS_TIMEOUT_S
    )
    if value["last"] < body["after"]:  # the node was restarted, and counts from 1 again
        value = client.admin("/admin/events", {"after": 0})
    return value


def story(gathered: dict[str, Any]) -> str:
    """Return the result of `gather` for people."""
    name, member, asked = gathered["name"], gathered["member"], gathered["asked"]
    if member is None:
        head = f"{asked} no longer knows {name}"
    else:
        head = (
            f"{name} at {member['address']} is {member['status']}"
            f" (incarnation {member['incarnation']}), says {asked}"
        )
    body = lines(gathered["records"]) or "no events of it are recorded"
    now = [f"now: {row['at_node']}: {seen_now(row)}" for row in gathered["now"]]
    told = [head, *now, "", body]
    told += [f"{witness} could not be asked: {why}" for witness, why in gathered["silent"].items()]
    told += ["", "Times are those of each node's own clock. A node keeps its last 2,000 events."]
    return "\n".join(told)


def lines(records: Sequence[Record]) -> str:
    """Return a line for each record: when, at which node if that is known, and what."""
    from ringpop_py.member.swim.records import text_of  # noqa: PLC0415 - help needs nothing that is installed

    width = max((len(record.get("at_node", "")) for record in records), default=0)
    return "\n".join(
        f"{time_of(record['at'])}  {record.get('at_node', ''):<{width}}{'  ' if width else ''}"
        f"{text_of({key: record[key] for key in record if key not in _OF_ITS_NODE})}"
        for record in records
    )
