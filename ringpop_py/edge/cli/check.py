"""``ringpopctl check``: is the cluster as it should be? For people, and for monitors."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ApplicationError, BadRequest, BodyError, CallError
from ringpop_py.base.texts import printable
from ringpop_py.edge.cli.commands import REACHABLE, Output, connect
from ringpop_py.edge.console.problems import (
    CRITICAL,
    LEVELS,
    OK,
    Problem,
    Seen,
    problems_in,
    views_of,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from ringpop_py.client.client import Client


def check(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl check``."""
    try:
        seen = gather(client)
    except (CallError, ApplicationError) as error:
        return _output([Problem(CRITICAL, "node", f"{client.peer}: {error}")], 0)
    found = sorted(problems_in(seen, members=options.members, clock_s=options.clock))
    return _output(found[::-1], sum(row["in_ring"] for row in seen.rows))


KEYSPACES: Final = "/admin/keyspaces"
TOGETHER_MAX: Final = 16
AGAIN_S: Final = 1.0
"""The time before differing views are compared again: a change takes some rounds of gossip."""

# The exit codes are the levels of Nagios' plugins, which other monitors know, too.


def _output(problems: list[Problem], members: int) -> Output:
    worst = max((problem.level for problem in problems), default=OK)
    head = f"ringpop {LEVELS[worst]}: "
    texts = [printable(each.text) for each in problems]  # parts of them come from other nodes
    head += f"{members} members, nothing is wrong" if not problems else texts[0]
    lines = [
        f"{LEVELS[each.level]:<8}  {each.check:<10}  {text}"
        for each, text in zip(problems, texts, strict=True)
    ]
    value = {
        "status": LEVELS[worst].lower(),
        "members": members,
        "problems": [{**each._asdict(), "level": LEVELS[each.level].lower()} for each in problems],
    }
    return Output(value, "\n".join([head, *lines]), worst)


def gather(client: Client) -> Seen:
    """Ask all members that *client*'s node sees. Raises CallError, ApplicationError."""
    seen = Seen(client.admin("/admin/members")["members"])
    asked = [row for row in seen.rows if row["status"] in REACHABLE]
    with ThreadPoolExecutor(TOGETHER_MAX) as threads:  # a hanging one does not hold up others
        list(threads.map(partial(_ask, seen), asked))
        if len(views_of(seen)) > 1:  # perhaps a change is on its way
            time.sleep(AGAIN_S)
            list(threads.map(partial(_ask_view, seen), asked))
    return seen


def _ask(seen: Seen, row: Mapping[str, Any]) -> None:
    from ringpop_py.edge.admin.accounts import checked  # noqa: PLC0415 - help needs nothing

    name = row["name"]
    try:
        with connect(row["address"]) as peer:
            seen.nodes[name] = node = checked("/admin/node", peer.admin("/admin/node"))
            _look_at(seen, name, peer)
            seen.settings[name] = checked("settings", peer.admin("/admin/config/get", []))
            if node.get("keyspaces", True):  # a node without them would load the code to answer
                seen.keyspaces[name] = checked(KEYSPACES, peer.admin(KEYSPACES))["keyspaces"]
    except (CallError, ApplicationError, BodyError) as error:
        seen.silent[name] = str(error)


def _ask_view(seen: Seen, row: Mapping[str, Any]) -> None:
    from ringpop_py.edge.admin.accounts import checked  # noqa: PLC0415 - help needs nothing

    with suppress(CallError, ApplicationError, BodyError), connect(row["address"]) as peer:
        seen.nodes[row["name"]] = checked("/admin/node", peer.admin("/admin/node"))


def _look_at(seen: Seen, name: str, peer: Client) -> None:
    from ringpop_py.edge.admin.accounts import checked  # noqa: PLC0415 - help needs nothing

    began = time.time()
    try:
        checkup = checked("/admin/checkup", peer.admin("/admin/checkup"))
    except BadRequest:
        return  # an older version, which `problems_in` reports
    ended = time.time()
    seen.checkups[name] = checkup
    seen.clocks_s[name] = checkup["at"] - (began + ended) / 2
    seen.off_s[name] = (ended - began) / 2
