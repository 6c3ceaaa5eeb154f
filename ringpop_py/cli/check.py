"""``ringpopctl check``: is the cluster as it should be? For people, and for monitors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ringpop_py.admin.problems import CRITICAL, LEVELS, OK, Problem, Seen, problems_in
from ringpop_py.cli.commands import REACHABLE, Output, connect
from ringpop_py.errors import ApplicationError, BadRequest, BodyError, CallError

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.client import Client


def check(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl check``."""
    try:
        seen = gather(client)
    except (CallError, ApplicationError) as error:
        return _output([Problem(CRITICAL, "node", f"{client.peer}: {error}")], 0)
    found = sorted(problems_in(seen, members=options.members, clock_s=options.clock))
    return _output(found[::-1], len(seen.nodes))


KEYSPACES: Final = "/admin/keyspaces"

# The exit codes are the levels, which are those of Nagios' plugins: other monitors know them, too.


def _output(problems: list[Problem], members: int) -> Output:
    worst = max((problem.level for problem in problems), default=OK)
    head = f"ringpop {LEVELS[worst]}: "
    head += f"{members} members, nothing is wrong" if not problems else problems[0].text
    lines = [f"{LEVELS[each.level]:<8}  {each.check:<10}  {each.text}" for each in problems]
    value = {
        "status": LEVELS[worst].lower(),
        "members": members,
        "problems": [{**each._asdict(), "level": LEVELS[each.level].lower()} for each in problems],
    }
    return Output(value, "\n".join([head, *lines]), worst)


def gather(client: Client) -> Seen:
    """Ask all members that *client*'s node sees. Raises CallError, ApplicationError."""
    from ringpop_py.admin.said import checked  # noqa: PLC0415 - help needs nothing

    seen = Seen(client.admin("/admin/members")["members"])
    for row in seen.rows:
        if row["status"] not in REACHABLE:
            continue
        name = row["name"]
        try:
            with connect(row["address"]) as peer:
                seen.nodes[name] = checked("/admin/node", peer.admin("/admin/node"))
                _look_at(seen, name, peer)
                seen.settings[name] = checked("settings", peer.admin("/admin/config/get", []))
                listed = checked(KEYSPACES, peer.admin(KEYSPACES))
                seen.keyspaces[name] = listed["keyspaces"]
        except (CallError, ApplicationError, BodyError) as error:
            seen.silent[name] = str(error)
    return seen


def _look_at(seen: Seen, name: str, peer: Client) -> None:
    from ringpop_py.admin.said import checked  # noqa: PLC0415 - help needs nothing

    began = time.time()
    try:
        checkup = checked("/admin/checkup", peer.admin("/admin/checkup"))
    except BadRequest:
        return  # an older version, of which `problems_in` tells
    ended = time.time()
    seen.checkups[name] = checkup
    seen.clocks_s[name] = checkup["at"] - (began + ended) / 2
    seen.off_s[name] = (ended - began) / 2
