"""Commands that change members: ``drain``, ``leave``, ``reap``, ``force-leave``, and their undo."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base import errors
from ringpop_py.edge.cli.commands import (
    ExitCode,
    Output,
    asking,
    at_terminal,
    complain,
    confirm,
    connect,
    did_you_mean,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from ringpop_py.client.sync.client import Client
    from ringpop_py.edge.cli.commands import Command

DRAIN_POLL_S: Final = 0.1
GONE: Final = ("faulty", "tombstone")  # members that do not answer
FORCE_LEAVE: Final = "/admin/member/force-leave"


@contextmanager
def _member(client: Client, name: str | None) -> Iterator[Client]:
    """Yield a client of the member that *client*'s node knows as *name*; without it, *client*.

    Raises:
        ConfigError: no member has this name, or it is gone.
    """
    if name is None:
        yield client
        return
    row = _row_of(client, name)
    if row["status"] in GONE:
        raise errors.ConfigError(
            f"{name} is {row['status']}, says {client.peer}, so it was not asked. If it runs, ask "
            f"it directly (--peer {row['address']}); if it is gone for good, `ringpopctl "
            f"force-leave {name}`"
        )
    with connect(row["address"]) as there:
        yield there


def _row_of(client: Client, name: str) -> dict[str, Any]:
    rows = {row["name"]: row for row in client.admin("/admin/members")["members"]}
    if name not in rows:
        raise errors.ConfigError(f"no member is called {name!r}{did_you_mean(name, rows)}")
    row: dict[str, Any] = rows[name]
    return row


def _considered(there: Client, options: argparse.Namespace, act: str) -> Output | None:
    """Have the user confirm *act* on the member *there*; with ``--dry-run`` return what it means.

    Without a terminal it is not confirmed: scripts have always drained without a question.

    Raises:
        Aborted: the user did not confirm it.
    """
    if not options.dry_run and (options.yes or not at_terminal()):
        return None
    status = there.admin("/admin/member/drain/status")
    name, count = status["source"], status["under_way"].get("partitions", 0)
    shares = {owner["name"]: owner["share"] for owner in there.admin("/admin/ring")["owners"]}
    share = shares.get(name, 0.0)
    if list(shares) == [name]:
        what = "it is the only owner, so that afterwards no member owns a key"
    else:
        partitions = f"{count} partition{'' if count == 1 else 's'}"
        what = f"other members take over its {share:.1%} of the ring, and {partitions}"
    if options.dry_run:
        value = {"name": name, "share": share, "partitions": count, "dry_run": True}
        return Output(value, f"dry run, nothing was done: {act.lower()} {name}: {what}")
    confirm(act, name, what)
    return None


def drain(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl drain``: return when nothing is under way; with ``--end``, when it has ended."""
    with _member(client, options.name) as there:
        act = "Drain and end" if options.end else "Drain"
        return _considered(there, options, act) or _drained(there, options)


def _drained(there: Client, options: argparse.Namespace) -> Output:
    began, who = time.monotonic(), options.name or there.peer
    value = there.admin("/admin/member/drain", {"end": options.end})
    while value is not None and (options.end or value["under_way"]):
        if time.monotonic() - began >= options.timeout:
            left = ", ".join(f"{name} {n}" for name, n in value["under_way"].items()) or "nothing"
            complain(f"ringpopctl: still under way: {left}")
            return Output({**value, "done": False}, f"{who} still drains", ExitCode.TIMED_OUT)
        time.sleep(DRAIN_POLL_S)
        value = status_after(value, there) if options.end else _status(there)
    if value is None:
        return Output({"phase": "ended", "under_way": {}, "done": True}, f"{who} has ended")
    text = (
        f"{who} no longer owns anything and has nothing under way; it goes on serving. "
        f"`{_again('undrain', options)}` brings it back"
    )
    return Output({**value, "done": True}, text)


def _status(client: Client) -> dict[str, Any]:
    value: dict[str, Any] = client.admin("/admin/member/drain/status")
    return value


def status_after(value: dict[str, Any], client: Client) -> dict[str, Any] | None:
    """Return how far the node is; None once nothing listens at its address."""
    try:
        return _status(client)
    except errors.ConnectRefused:
        return None
    except errors.BadRequest:
        raise
    except errors.CallError:
        return value  # as before: the node may be busy, or stopped for a while


def leave(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl leave``."""
    with _member(client, options.name) as there:
        if dry := _considered(there, options, "Take out of the ring"):
            return dry
        value, who = there.admin("/admin/member/leave"), options.name or there.peer
    text = f"{who} has left the ring; `{_again('join', options)}` brings it back"
    return Output(value, text)


def _again(verb: str, options: argparse.Namespace) -> str:
    return " ".join(["ringpopctl", verb, *([options.name] if options.name else [])])


def _bringing_back(verb: str, said: str) -> Command:
    def command(client: Client, options: argparse.Namespace) -> Output:
        with _member(client, options.name) as there:
            value = there.admin(f"/admin/member/{verb}")
            return Output(value, f"{options.name or there.peer} {said}")

    return command


join: Final = _bringing_back("join", "is in the ring")
undrain: Final = _bringing_back("undrain", "no longer drains: it is in the ring again")


def reap(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl reap``: to confirm it, the user types the name of the cluster."""
    if options.dry_run or (not options.yes and at_terminal()):
        found = client.admin("/admin/reapable")
        names = _named(found["members"])
        if options.dry_run:
            text = f"dry run, nothing was done: would become tombstones: {names}"
            return Output({**found, "dry_run": True}, text)
        if found["members"]:
            confirm("Reap the members of", found["cluster"], f"{names} become tombstones")
    return _reaped(client, options)


_reaped = asking("reap", "{reaped} members reaped".format_map)


def _named(rows: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{row['name']} ({row['status']})" for row in rows) or "none"


def force_leave(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl force-leave NAME``."""
    _row_of(client, options.name)
    found = client.admin(FORCE_LEAVE, {"name": options.name, "dry_run": True})
    status = found["member"]["status"]
    what = f"it is {status}, and becomes a tombstone everywhere; if it lives, it comes back"
    if options.dry_run:
        text = f"dry run, nothing was done: force out {options.name}: {what}"
        return Output({**found, "dry_run": True}, text)
    if not options.yes:
        confirm("Force out", options.name, what)
    value = client.admin(FORCE_LEAVE, {"name": options.name})
    return Output(value, f"{options.name} was {status} and is a tombstone now: it no longer counts")
