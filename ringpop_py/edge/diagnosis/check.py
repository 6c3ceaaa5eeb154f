"""``ringpopctl check``: is the cluster as it should be? For people, and for monitors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ApplicationError, CallError
from ringpop_py.base.texts import printable
from ringpop_py.edge.cli.commands import Output, members_said
from ringpop_py.edge.judge.judge import problems_in
from ringpop_py.edge.judge.problems import CRITICAL, LEVELS, OK, Problem, Seen, views_of

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.sync.client import Client


def check(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl check``."""
    try:
        seen = gather(client)
    except (CallError, ApplicationError) as error:
        return _output([Problem(CRITICAL, "node", f"{client.peer}: {error}")], 0)
    found = problems_in(seen, members=options.members, clock_s=options.clock)
    return _output(found, sum(row["in_ring"] for row in seen.rows))


AGAIN_S: Final = 1.0
"""The time before differing views are compared again: a change takes some rounds of gossip."""

# The exit codes are the levels of Nagios' plugins, which other monitors know, too.


def _output(problems: list[Problem], members: int) -> Output:
    worst = max((problem.level for problem in problems), default=OK)
    head = f"ringpop {LEVELS[worst]}: "
    texts = [printable(each.text) for each in problems]  # parts of them come from other nodes
    head += f"{members} members, nothing is wrong" if not problems else texts[0]
    lines: list[str] = []
    for each, text in zip(problems, texts, strict=True):
        lines.append(f"{LEVELS[each.level]:<8}  {each.cause:<15}  {text}")
        lines += [f"{'seen:':>25}  {printable(seen)}" for seen in each.evidence]
        lines += [f"{'next:':>25}  {printable(each.next)}"] if each.next else []
    value = {
        "status": LEVELS[worst].lower(),
        "members": members,
        "problems": [each.told() for each in problems],
    }
    return Output(value, "\n".join([head, *lines]), worst)


def gather(client: Client) -> Seen:
    """Ask all members that *client*'s node sees. Raises CallError, ApplicationError."""
    value = members_said(client, "node", "reach", "checkup", "settings", "keyspaces")
    seen = Seen(value["members"], silent=value["silent"])
    for name, said in value["said"].items():
        seen.note(name, said)
    if len(views_of(seen)) > 1:  # perhaps a change is on its way
        time.sleep(AGAIN_S)
        for name, said in members_said(client, "node")["said"].items():
            seen.nodes[name] = said["node"]
    return seen
