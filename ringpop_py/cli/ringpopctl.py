"""ringpopctl: asks a running node, and changes what may be changed by hand."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.cli import history, keyspaces
from ringpop_py.cli.commands import (
    Aborted,
    ExitCode,
    Output,
    Parser,
    command_parser,
    complain,
    connect,
    count,
    ends_with_its_reader,
    seconds,
    table,
    table_of,
)
from ringpop_py.cli.views import drain, views, wait_for
from ringpop_py.errors import ApplicationError, CallError, ConfigError, RingpopError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.client.client import Client

    Command = Callable[[Client, argparse.Namespace], Output]

PEER_DEFAULT: Final = "127.0.0.1:3000"
HEAL_TIMEOUT_S: Final = 30.0

EPILOG = """\
exit codes: 0 fine, 1 the node says no, 2 usage, 3 the members' views differ, or partitions are not
where they should be or cannot use the store, 4 a node cannot be reached, 5 timed out.
--peer is taken from RINGPOP_PEER if it is not given.
"""


@ends_with_its_reader
def main(argv: Sequence[str] | None = None) -> int:
    """Run ringpopctl; see ``--help``."""
    options = _parser().parse_args(argv)
    try:
        with connect(options.peer) as client:
            output: Output = options.command(client, options)
        print(json.dumps(output.value) if options.format == "json" else output.text, flush=True)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except RingpopError as error:
        return _complain(error, options.format)
    return output.exit_code


def _complain(error: RingpopError, form: str) -> int:
    """Say what is wrong, as *form* has it; the exit code."""
    match error:
        case ConfigError() | Aborted():
            exit_code = ExitCode.USAGE
        case CallError() if error.passes:
            exit_code = ExitCode.UNREACHABLE
        case _:
            exit_code = ExitCode.FAILED
    text = (isinstance(error, ApplicationError) and error.message) or str(error)
    if form == "json":
        complain(json.dumps({"error": text, "code": error.code, "exit_code": exit_code}))
    else:
        complain(f"ringpopctl: {text}")
    return exit_code


def _parser() -> Parser:
    shared = Parser(add_help=False)
    shared.add_argument("--format", choices=["table", "json"], default=argparse.SUPPRESS)
    shared.add_argument("--peer", metavar="HOST:PORT", default=argparse.SUPPRESS)
    parser = command_parser("ringpopctl", description="Ask a node of a cluster.", epilog=EPILOG)
    peer = os.environ.get("RINGPOP_PEER", PEER_DEFAULT)
    parser.add_argument("--peer", metavar="HOST:PORT", default=peer, help="the node (%(default)s)")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        name: str,
        command: Command,
        summary: str,
        *,
        to: argparse._SubParsersAction[Parser] = commands,
        about: str | None = None,
        waits_s: float | None = None,
    ) -> Parser:
        sub = to.add_parser(name, help=summary, description=summary, parents=[shared])
        sub.set_defaults(command=command)
        if about is not None:
            sub.add_argument("name", metavar="NAME", help=about)
        if waits_s is not None:
            text = f"seconds to wait for it ({waits_s:.0f})"
            sub.add_argument("--timeout", type=seconds, default=waits_s, metavar="S", help=text)
        return sub

    add("members", _members, "the member list as this node sees it")
    add("views", views, "which members see the same cluster (exit code 3 if not all do)")
    lookup = add("lookup", _look_up, "who owns a key")
    lookup.add_argument("key", metavar="KEY")
    instead = lookup.add_mutually_exclusive_group()
    instead.add_argument("-n", type=count, metavar="N", help="and its successors: N in all")
    instead.add_argument("--keyspace", metavar="NAME", help="its partition there, and who has that")
    add("ring", _ring, "who owns how much of the key space")
    summary, of = "who declared a member what, when, and on which evidence", "the member's name"
    add("why", _why, summary, about=of)
    events_parser = add("events", _events, "what has happened at this node")
    events_parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    add("stats", _stats, "what this node has done")
    add("leave", _leave, "take this node out of the ring; it goes on serving")
    add("join", _join, "bring a node that left back into the ring")
    summary = "let this node own nothing any longer; it goes on serving"
    drains = add("drain", drain, summary, waits_s=60)
    drains.add_argument("--end", action="store_true", help="then end its process, as SIGTERM does")
    add("undrain", _undrain, "let a node that drains own keys again")
    damp = commands.add_parser("damp", help="members that change too often, and are kept out")
    damped = damp.add_subparsers(metavar="COMMAND", required=True)
    show = add("show", _damp_show, "scores, and who is damped", to=damped)
    show.add_argument("name", metavar="NAME", nargs="?", help="just this member")
    add("clear", _damp_clear, "bring a damped member back everywhere", to=damped, about=of)
    add("reap", _reap, "make tombstones of all members that are gone")
    add("heal", _heal, "look for the other side of a split, and merge with it")
    _add_keyspace_commands(add, commands)
    wait = add("wait", wait_for, "wait until the cluster is as asked", waits_s=30)
    wait.add_argument("--for", dest="condition", choices=["converged", "partitions"], required=True)
    wait.add_argument("--members", type=count, metavar="N", help="how many are to be alive")
    wait.add_argument("--keyspace", metavar="NAME", help="partitions of this keyspace only")
    return parser


def _add_keyspace_commands(
    add: Callable[..., Parser], commands: argparse._SubParsersAction[Parser]
) -> None:
    summary = "who has how many partitions, and those that are not well (then exit code 3)"
    partitions = add("partitions", keyspaces.partitions, summary)
    partitions.add_argument("--keyspace", metavar="NAME", help="of this keyspace only")
    partitions.add_argument("--all", action="store_true", help="a row for each partition")
    keyspace = commands.add_parser("keyspace", help="keyspaces: make, look at, drop")
    to = keyspace.add_subparsers(metavar="COMMAND", required=True)
    add("list", keyspaces.list_all, "all keyspaces", to=to)
    of = "the keyspace's name"
    add("show", keyspaces.show, "one keyspace: settings, moves, checkpoints", to=to, about=of)
    summary = "make one; fine if it is there, made alike"
    create = add("create", keyspaces.create, summary, to=to, about=of)
    _add_settings(create)
    summary = "have nobody serve it; its data stay in the store"
    drop = add("drop", keyspaces.drop, summary, to=to, about=of)
    drop.add_argument("--yes", action="store_true", help="do not ask")
    summary = "undo a drop, or a restoration"
    back = add("bring-back", keyspaces.bring_back, summary, to=to, about=of, waits_s=600)
    back.add_argument("--generation", type=count, metavar="G", help="as this one ended (newest)")
    summary = "spread its partitions over the members"
    of = "a keyspace made with --manual"
    rebalance = add("rebalance", keyspaces.rebalance, summary, about=of)
    rebalance.add_argument(
        "--dry-run", action="store_true", help="say what would move, and no more"
    )
    how_far = rebalance.add_mutually_exclusive_group()
    how_far.add_argument("--max-moves", type=int, metavar="N", help="move no more now")
    how_far.add_argument(
        "--to-version", type=count, metavar="V", help="undo: as assignment V had them"
    )

    checkpoint = commands.add_parser("checkpoint", help="checkpoints of a keyspace as a whole")
    to = checkpoint.add_subparsers(metavar="COMMAND", required=True)
    summary, of = "make one, and wait for it", "of this keyspace"
    now = add("now", keyspaces.checkpoint_now, summary, to=to, about=of, waits_s=600)
    now.add_argument("--keep", type=count, metavar="N", help="so many of the newest (10)")
    of = "of this keyspace; it may be dropped"
    add("list", keyspaces.checkpoint_list, "those that are complete", to=to, about=of)
    summary = "have a keyspace as it was in one"
    restore = add("restore", keyspaces.restore, summary, to=to, about=of, waits_s=600)
    restore.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=_checkpoint, help="epoch-N, or latest"
    )
    restore.add_argument("--into", metavar="OTHER", help="make another keyspace, and leave NAME")
    restore.add_argument("--yes", action="store_true", help="do not ask")


def _add_settings(create: Parser) -> None:
    """A flag for each of `keyspaces.SETTINGS`; what can be used, is for the node to say."""
    create.add_argument(
        "--preset", metavar="ripple|fixed|volley", help="settings to begin with; flags override"
    )
    create.add_argument("--partitions", type=int, metavar="N", help="how many, for ever (256)")
    create.add_argument("--mode", metavar="durable|memory", help="in the store, or not (durable)")
    strategies = "balanced|ring|range|round_robin|average"
    create.add_argument("--strategy", metavar=strategies, help="who gets which (balanced)")
    create.add_argument(
        "--manual", action="store_true", help="no partition moves by itself to a member that comes"
    )
    create.add_argument("--min-cluster-size", type=int, metavar="N", help="members to begin (1)")
    create.add_argument("--max-keys-per-partition", type=int, metavar="N", help="(no limit)")
    create.add_argument(
        "--checkpoint-interval",
        dest="checkpoint_interval_s",
        type=float,
        metavar="S",
        help="of each partition, seconds (10)",
    )
    create.add_argument("--merge", metavar="RULE", help="memory: after a split (last_writer_wins)")


def _checkpoint(text: str) -> int | str:
    if text == "latest":
        return text
    try:
        return count(text.removeprefix("epoch-"))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not epoch-N, nor latest") from None


def _members(client: Client, _options: argparse.Namespace) -> Output:
    value = client.admin("/admin/members")
    outside = ("damped", "draining")  # what else keeps a member out of the ring
    rows = [
        {
            **member,
            "status": " ".join([member["status"], *(mark for mark in outside if member[mark])]),
            "labels": " ".join(f"{key}={text}" for key, text in member["labels"].items()),
        }
        for member in value["members"]
    ]
    text = table_of(rows, "NAME", "ADDRESS", "STATUS", "INCARNATION", "LABELS")
    return Output(value, f"{text}\nchecksum {value['checksum']}")


def _look_up(client: Client, options: argparse.Namespace) -> Output:
    if options.keyspace is not None:
        return keyspaces.look_up(client, options.key, options.keyspace)
    if options.n is None:
        owner = client.lookup(options.key)
        return Output({"key": options.key, "owner": owner}, owner)
    value = client.admin("/admin/lookup", {"key": options.key, "n": options.n})
    owners = value["dests"]
    return Output({"key": options.key, "owners": owners}, "\n".join(owners))


def _ring(client: Client, _options: argparse.Namespace) -> Output:
    value = client.admin("/admin/ring")
    owners = value["owners"]
    busiest = max((owner["share"] for owner in owners), default=0.0)
    over_mean = busiest * len(owners)
    rows = [
        (o["name"], o["address"], f"{o['share']:.1%}", f"{o['share'] * len(owners):.2f}")
        for o in owners
    ]
    text = table(("OWNER", "ADDRESS", "SHARE", "OVER MEAN"), rows)
    text += (
        f"\n{value['points_count']} points a member, {value['dialect']} dialect, "
        f"busiest over mean {over_mean:.2f}, checksum {value['checksum']}"
    )
    return Output({**value, "busiest_over_mean": over_mean}, text)


def _why(client: Client, options: argparse.Namespace) -> Output:
    value = history.gather(client, options.name)
    return Output(value, history.story(value))


def _events(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl events [-f]``; followed, it prints by itself and ends with Ctrl-C."""
    value = client.admin("/admin/events")
    if not options.follow:
        return Output(value, history.lines(value["records"]))
    while True:
        for record in value["records"]:
            line = json.dumps(record) if options.format == "json" else history.lines([record])
            print(line, flush=True)
        value = history.next_page(client, value)


def _stats(client: Client, _options: argparse.Namespace) -> Output:
    value = {**client.admin("/admin/node"), "ringpop": client.admin("/admin/stats")}
    rows: list[tuple[str, object]] = []
    for key, item in value.items():
        if key == "ringpop":
            continue
        if isinstance(item, dict):
            rows += [(f"{key}.{name}", number) for name, number in item.items()]
        else:
            rows.append((key, item))
    rows.append(("memory_mb", round(value["ringpop"]["process"]["memory"]["rss"] / 1e6, 1)))
    return Output(value, table(("WHAT", "VALUE"), rows))


def _asking(path: str, text: str) -> Command:
    """Return the command that asks an endpoint, and says *text* of its answer."""

    def command(client: Client, _options: argparse.Namespace) -> Output:
        value = client.admin(f"/admin/{path}")
        return Output(value, text.format(peer=client.peer, **value))

    return command


_leave = _asking("member/leave", "{peer} has left the ring; `ringpopctl join` brings it back")
_join = _asking("member/join", "{peer} is in the ring")
_undrain = _asking("member/undrain", "{peer} no longer drains: it is in the ring again")
_reap = _asking("reap", "{reaped} members reaped")


def _damp_show(client: Client, options: argparse.Namespace) -> Output:
    body = {} if options.name is None else {"name": options.name}
    value = client.admin("/admin/damp/show", body)
    return Output(value, damping_text(value))


def damping_text(value: dict[str, Any]) -> str:
    """What `/admin/damp/show` answers, for people."""
    rows = [
        (
            member["name"],
            member["score"],
            "damped" if member["damped"] else "flapper" if member["flapper"] else "",
            "yes" if member["in_ring"] else "no",
            member["verdict"],
            "" if member["reuse_in_s"] is None else f"{member['reuse_in_s']:.0f} s",
        )
        for member in value["members"]
    ]
    heads = ("NAME", "SCORE", "STATE", "IN RING", "VERDICTS", "BACK IN")
    limits = (
        f"damped from {value['suppress']} if others agree, back at {value['reuse']}; "
        f"at most {value['damped_max']} left out now"
    )
    if not value["damping"]:
        limits = "damping is off on this node"
    return f"{table(heads, rows)}\n{limits}"


def _damp_clear(client: Client, options: argparse.Namespace) -> Output:
    value = client.admin("/admin/damp/clear", {"name": options.name})
    was = "is no longer damped" if value["was_damped"] else "was not damped"
    return Output(value, f"{options.name} {was}; {client.peer} has nothing against it")


def _heal(client: Client, _options: argparse.Namespace) -> Output:
    from ringpop_py.swim.records import text_of_healing  # noqa: PLC0415 - help needs nothing that is installed

    value = client.admin("/admin/healpartition/disco", timeout_s=HEAL_TIMEOUT_S)
    trouble = f"\nthe hosts known before were tried: {value['error']}" if value["error"] else ""
    return Output(value, text_of_healing(value) + trouble)


if __name__ == "__main__":
    sys.exit(main())
