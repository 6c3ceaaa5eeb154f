"""ringpopctl: shows and changes a running cluster through one of its nodes."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ringpop_py.base.errors import (
    ApplicationError,
    CallError,
    ConfigError,
    KeyspaceError,
    RingpopError,
    ShuffleUnavailable,
)
from ringpop_py.client.lines.trust import KEY_VARIABLE
from ringpop_py.edge.cli.commands import (
    Aborted,
    ExitCode,
    Output,
    Parser,
    asking,
    command_parser,
    complain,
    connect,
    count,
    ends_with_its_reader,
    instant,
    seconds,
    table,
    table_of,
)
from ringpop_py.edge.ctl import (
    changes,
    keys,
    keyspaces,
    leaders,
    shuffles,
    streams,
    ticks,
    values,
)
from ringpop_py.edge.ctl.examples import epilog_of
from ringpop_py.edge.ctl.views import views, wait_for
from ringpop_py.edge.diagnosis import history, look
from ringpop_py.edge.diagnosis.bundle import debug
from ringpop_py.edge.diagnosis.check import check
from ringpop_py.edge.diagnosis.monitor import LEVELS, monitor
from ringpop_py.edge.diagnosis.roundtrips import rtt
from ringpop_py.edge.diagnosis.stores import check_config, verify_store
from ringpop_py.edge.judge.judge import CLOCK_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.client.sync.client import Client
    from ringpop_py.edge.cli.commands import Command

CHECK_USAGE: Final = 3
"""The exit code of `check` for wrong usage: to monitors, the usual 2 means an outage."""
HEAL_TIMEOUT_S: Final = 30.0
WATCH_S: Final = 2.0
CONDITIONS: Final = ("converged", "partitions", "applications")
"""What `wait --for` can wait for."""

EPILOG: Final = """\
exit codes: 0 done, 1 the node refused, 2 wrong usage, 3 the members' views differ, members are
lost, or partitions are not where they should be or cannot use the store, 4 a node cannot be
reached, 5 timed out.
`check` uses those of monitors: 0 all is well, 1 a warning, 2 something is wrong, 3 wrong usage.
With keys, --cluster-key FILE or RINGPOP_CLUSTER_KEY names them; a Unix socket needs none.
Without --peer, the environment variable RINGPOP_PEER names the node (HOST:PORT, or unix:PATH).
Otherwise it is this host's daemon: at its Unix socket if it has one, or at 127.0.0.1:3000.
"""


@ends_with_its_reader
def main(argv: Sequence[str] | None = None) -> int:
    """Run ringpopctl; see ``--help``."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        options = _parser().parse_args(arguments)
    except _WrongUsage as error:
        return _complain_of_usage(error, arguments)
    try:
        if options.cluster_key is not None:
            os.environ[KEY_VARIABLE] = options.cluster_key  # also for the members that are asked
        with connect(options.peer) as client:
            if getattr(options, "watch", None) is not None:
                _watch(client, options, getattr(options, "rounds", None))
            output: Output = options.command(client, options)
        print(json.dumps(output.value) if options.format == "json" else output.text, flush=True)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except RingpopError as error:
        return _complain(error, options)
    return output.exit_code


class _WrongUsage(Exception):
    """The arguments cannot be used."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(text)
        self.message = message


class _Parser(Parser):
    def error(self, message: str) -> NoReturn:
        message += self.suggestion(message)
        raise _WrongUsage(message, f"{self.format_usage()}{self.prog}: error: {message}")


def _complain_of_usage(error: _WrongUsage, arguments: Sequence[str]) -> int:
    code = CHECK_USAGE if "check" in arguments else ExitCode.USAGE
    if "--format json" in " ".join(arguments).replace("=", " "):  # nothing is parsed
        complain(json.dumps({"error": error.message, "code": "usage", "exit_code": code}))
    else:
        complain(str(error))
    return code


def _watch(client: Client, options: argparse.Namespace, rounds: int | None) -> None:
    """Show the result again and again, until Ctrl-C; an error is shown in its place.

    With *rounds*, the last of them is left to the caller.
    """
    clear = "\x1b[2J\x1b[H" if sys.stdout.isatty() and options.format == "table" else ""
    clear = clear if rounds is None else ""
    for _ in itertools.count() if rounds is None else range(rounds - 1):
        try:
            output: Output = options.command(client, options)
        except (CallError, ApplicationError, KeyspaceError) as error:
            output = Output({"error": str(error)}, f"ringpopctl: {error}")
        text = json.dumps(output.value) if options.format == "json" else output.text
        print(f"{clear}{text}" if clear else text, flush=True)
        time.sleep(options.watch)


def _complain(error: RingpopError, options: argparse.Namespace) -> int:
    exit_code: int
    match error:
        case ConfigError() | Aborted():
            exit_code = CHECK_USAGE if options.command is check else ExitCode.USAGE
        case CallError() | ShuffleUnavailable() | KeyspaceError() if error.passes:
            exit_code = ExitCode.UNREACHABLE
        case _:
            exit_code = ExitCode.FAILED
    text = (isinstance(error, ApplicationError) and error.message) or str(error)
    if options.format == "json":
        complain(json.dumps({"error": text, "code": error.code, "exit_code": exit_code}))
    else:
        complain(f"ringpopctl: {text}")
    return exit_code


def _shared_flags() -> Parser:
    """Return the flags that may stand before the command or after it."""
    # Without a default here, those given before it are not overwritten.
    shared = _Parser(add_help=False)
    shared.add_argument("--format", choices=["table", "json"], default=argparse.SUPPRESS)
    shared.add_argument("--peer", metavar="ADDRESS", default=argparse.SUPPRESS)
    shared.add_argument("--cluster-key", metavar="FILE", default=argparse.SUPPRESS)
    return shared


def _parser() -> Parser:
    shared = _shared_flags()
    parser = command_parser(
        "ringpopctl", _Parser, description="Show or change a cluster.", epilog=EPILOG
    )
    parser.add_argument("--peer", metavar="ADDRESS", help="the node: HOST:PORT or unix:PATH")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    text = f"keys of the cluster (${KEY_VARIABLE})"
    parser.add_argument("--cluster-key", metavar="FILE", help=text)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        name: str,
        command: Command,
        summary: str,
        *,
        to: argparse._SubParsersAction[Parser] = commands,
        about: str | None = None,
        waits_s: float | None = None,
        reads: bool = False,
    ) -> Parser:
        sub = to.add_parser(name, help=summary, description=summary, parents=[shared])
        sub.set_defaults(command=command)
        sub.epilog = epilog_of(sub.prog)
        if about is not None:
            sub.add_argument("name", metavar="NAME", help=about)
        if reads:
            text = f"show it again every S seconds ({WATCH_S:g}), until Ctrl-C"
            add = sub.add_argument
            add("--watch", nargs="?", const=WATCH_S, type=seconds, metavar="S", help=text)
        if waits_s is not None:
            text = f"seconds to wait ({waits_s:.0f})"
            sub.add_argument("--timeout", type=seconds, default=waits_s, metavar="S", help=text)
        return sub

    add("members", _members, "list the members as this node sees them", reads=True)
    summary = "which members see the same cluster (exit code 3 if not all do, or some are lost)"
    add("views", views, summary, reads=True)
    _add_looks(add)
    _add_diagnosis(add)
    _add_files(add, commands)
    _add_member_changes(add)
    _add_key_commands(add, commands)
    _add_damp_commands(add, commands)
    add("heal", _heal, "look for the other side of a split, and merge with it")
    _add_keyspace_commands(add, commands)
    _add_shuffle_commands(add, commands)
    _add_leader_commands(add)
    wait = add("wait", wait_for, "wait until the cluster is in the given state", waits_s=30)
    wait.add_argument("--for", dest="condition", choices=CONDITIONS, required=True)
    wait.add_argument("--members", type=count, metavar="N", help="also until N members are alive")
    wait.add_argument("--keyspace", metavar="NAME", help="partitions of this keyspace only")
    return parser


def _add_member_changes(add: Callable[..., Parser]) -> None:
    leaves = add("leave", changes.leave, "take a member out of the ring; it goes on serving")
    joins = add("join", changes.join, "bring a member that left back into the ring")
    summary = "take all keys from a member; it goes on serving"
    drains = add("drain", changes.drain, summary, waits_s=60)
    drains.add_argument("--end", action="store_true", help="then end its process, as SIGTERM does")
    undrains = add("undrain", changes.undrain, "let a drained member own keys again")
    for named in (leaves, joins, drains, undrains):
        text = "the member (the node that is asked)"
        named.add_argument("name", metavar="NAME", nargs="?", help=text)
    reaps = add("reap", changes.reap, "turn all members that are gone into tombstones")
    summary = "turn one member that is gone, faulty or suspect, into a tombstone"
    forces = add("force-leave", changes.force_leave, summary, about="the member's name")
    for asks in (leaves, drains, reaps, forces):
        asks.add_argument("--dry-run", action="store_true", help="only say what would happen")
        asks.add_argument("--yes", action="store_true", help="do not ask")


def _add_damp_commands(
    add: Callable[..., Parser], commands: argparse._SubParsersAction[Parser]
) -> None:
    damp = commands.add_parser("damp", help="members kept out because they change too often")
    to = damp.add_subparsers(metavar="COMMAND", required=True)
    show = add("show", _damp_show, "scores, and which members are damped", to=to, reads=True)
    show.add_argument("name", metavar="NAME", nargs="?", help="this member only")
    summary = "bring a damped member back everywhere"
    add("clear", _damp_clear, summary, to=to, about="the member's name")


def _add_looks(add: Callable[..., Parser]) -> None:
    _add_check(add)
    lookup = add("lookup", _look_up, "which member owns a key", reads=True)
    lookup.add_argument("key", metavar="KEY")
    instead = lookup.add_mutually_exclusive_group()
    instead.add_argument("-n", type=count, metavar="N", help="show N members: also its successors")
    text = "say why, with all keyspaces"
    instead.add_argument("--explain", action="store_true", help=text)
    instead.add_argument(
        "--keyspace", metavar="NAME", help="the key's partition in this keyspace, and its owner"
    )
    tracing = add(
        "trace", look.trace, "where each member would send a request for a key", reads=True
    )
    tracing.add_argument("key", metavar="KEY")
    tracing.add_argument("--keyspace", metavar="NAME", help="the key's partition in this keyspace")
    reading = add(
        "streams", streams.show, "which member reads which split, and how far", reads=True
    )
    reading.add_argument("name", nargs="?", metavar="NAME", help="this stream only")
    flowing = add(
        "dataflows",
        streams.show_dataflows,
        "which member has which part of a dataflow, and how far it is",
        reads=True,
    )
    flowing.add_argument("name", nargs="?", metavar="NAME", help="this dataflow only")
    top = add("top", look.Top(), "what each member does, again and again until Ctrl-C", reads=True)
    top.set_defaults(watch=WATCH_S)
    text = "stop after N rounds, and do not clear the screen"
    top.add_argument("-n", dest="rounds", type=count, metavar="N", help=text)
    top.add_argument("--sort", choices=look.FIGURES, help="the members with most of it first")
    top.add_argument("--by", choices=("kind",), help="a row for each kind of requests")
    add("ring", _ring, "how much of the ring each member owns", reads=True)
    summary = "who changed a member's status, when, and on which evidence"
    add("why", _why, summary, about="the member's name", reads=True)
    events_parser = add("events", _events, "what has happened at this node")
    events_parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    add("stats", look.stats, "counters and settings of this node", reads=True)


def _add_diagnosis(add: Callable[..., Parser]) -> None:
    summary = "round trips between two members, or from one to all, as their pings measure them"
    trips = add("rtt", rtt, summary, reads=True)
    trips.add_argument("a", metavar="A", help="a member's name")
    trips.add_argument("b", nargs="?", metavar="B", help="another one (all others)")
    monitoring = add("monitor", monitor, "the log of a node, until Ctrl-C")
    monitoring.add_argument("name", nargs="?", metavar="NAME", help="a member (the node itself)")
    monitoring.add_argument("--level", choices=LEVELS, default="info", help="this and above (info)")
    bundling = add("debug", debug, "write what all members say of themselves to a file")
    text = "the file, which must not exist (ringpop-debug-TIME.tar.gz)"
    bundling.add_argument("--out", metavar="FILE", help=text)


def _add_files(add: Callable[..., Parser], commands: argparse._SubParsersAction[Parser]) -> None:
    config = commands.add_parser("config", help="files of ringpopd --config")
    to = config.add_subparsers(metavar="COMMAND", required=True)
    checking = add("check", check_config, "read a file as ringpopd does, and start nothing", to=to)
    checking.add_argument("file", metavar="FILE")
    text = "flags of ringpopd, which override the file"
    checking.add_argument("flags", nargs=argparse.REMAINDER, metavar="…", help=text)
    store = commands.add_parser("store", help="the store of durable keyspaces")
    to = store.add_subparsers(metavar="COMMAND", required=True)
    summary = "read all that a store holds (exit code 2 if something is damaged)"
    verifying = add("verify", verify_store, summary, to=to)
    verifying.add_argument("url", metavar="URL", help="as of ringpopd --store")
    verifying.add_argument("--keyspace", metavar="NAME", help="only what belongs to this keyspace")


def _add_check(add: Callable[..., Parser]) -> None:
    summary = "is anything wrong? (exit code 0 no, 1 a warning, 2 yes, as monitors expect)"
    checking = add("check", check, summary, reads=True)
    text = "how many members there should be in the ring"
    checking.add_argument("--members", type=count, metavar="N", help=text)
    text = f"seconds by which clocks may differ ({CLOCK_S:g})"
    checking.add_argument("--clock", type=seconds, default=CLOCK_S, metavar="S", help=text)


def _add_keyspace_commands(
    add: Callable[..., Parser], commands: argparse._SubParsersAction[Parser]
) -> None:
    summary = "each member's partitions, and those in trouble (then exit code 3)"
    partitions = add("partitions", keyspaces.partitions, summary, reads=True)
    partitions.add_argument("--keyspace", metavar="NAME", help="of this keyspace only")
    partitions.add_argument("--all", action="store_true", help="a row for each partition")
    keyspace = commands.add_parser("keyspace", help="create, show and drop keyspaces")
    to = keyspace.add_subparsers(metavar="COMMAND", required=True)
    add("list", keyspaces.list_all, "all keyspaces", to=to, reads=True)
    of = "the keyspace's name"
    summary = "one keyspace: settings, moves, checkpoints"
    add("show", keyspaces.show, summary, to=to, about=of, reads=True)
    summary = "create a keyspace, unless it exists with these settings"
    create = add("create", keyspaces.create, summary, to=to, about=of)
    create.add_argument(
        "--manual", action="store_true", help="move no partitions to new members automatically"
    )
    text = "place keys by their part in braces, as in {user:42}/cart"
    create.add_argument("--hash-tags", action="store_true", help=text)
    text = "settings to begin with; other flags override them"
    create.add_argument("--preset", metavar="ripple|fixed|volley", help=text)
    for name, (kind, metavar, text) in keyspaces.SETTINGS.items():
        flag = f"--{name.removesuffix('_s').replace('_', '-')}"  # without the unit, seconds
        create.add_argument(flag, dest=name, type=kind, metavar=metavar, help=text)
    summary = "change what a durable keyspace waits for, though its members are gone for good"
    change = add("set", keyspaces.change, summary, to=to, about=of)
    text = "assign partitions once there are N members; this replaces what code says"
    change.add_argument("--min-cluster-size", type=count, metavar="N", required=True, help=text)
    summary = "no longer serve a keyspace; its data stay in the store"
    drop = add("drop", keyspaces.drop, summary, to=to, about=of)
    drop.add_argument("--yes", action="store_true", help="do not ask")
    summary = "undo a drop, or a restoration"
    back = add("bring-back", keyspaces.bring_back, summary, to=to, about=of, waits_s=600)
    back.add_argument(
        "--generation", type=count, metavar="G", help="as generation G ended (newest)"
    )
    _add_value_commands(add, to, of)
    summary, of = "spread a keyspace's partitions over the members", "a keyspace made with --manual"
    rebalance = add("rebalance", keyspaces.rebalance, summary, about=of)
    rebalance.add_argument("--dry-run", action="store_true", help="only show what would move")
    how_far = rebalance.add_mutually_exclusive_group()
    how_far.add_argument("--max-moves", type=int, metavar="N", help="move at most N partitions now")
    text = "undo: restore assignment V"
    how_far.add_argument("--to-version", type=count, metavar="V", help=text)

    checkpoint = commands.add_parser("checkpoint", help="checkpoints of whole keyspaces")
    to = checkpoint.add_subparsers(metavar="COMMAND", required=True)
    summary, of = "make a checkpoint, and wait until it is complete", "the keyspace's name"
    now = add("now", keyspaces.checkpoint_now, summary, to=to, about=of, waits_s=600)
    now.add_argument("--keep", type=count, metavar="N", help="keep the newest N (10)")
    of = "the keyspace's name; it may be dropped"
    add("list", keyspaces.checkpoint_list, "list complete checkpoints", to=to, about=of, reads=True)
    summary = "restore a keyspace from a checkpoint"
    restore = add("restore", keyspaces.restore, summary, to=to, about=of, waits_s=600)
    text = "epoch-N, or latest"
    restore.add_argument("number", metavar="CHECKPOINT", type=_checkpoint, help=text)
    restore.add_argument("--into", metavar="OTHER", help="make another keyspace, and leave NAME")
    restore.add_argument("--yes", action="store_true", help="do not ask")


def _add_value_commands(
    add: Callable[..., Parser], to: argparse._SubParsersAction[Parser], of: str
) -> None:
    summary = "print the value of a key as JSON (exit code 1 if it has no value)"
    getting = add("get", values.get, summary, to=to, about=of, reads=True)
    putting = add("put", values.put, "set a key to a value", to=to, about=of)
    deleting = add("delete", values.delete, "delete a key", to=to, about=of)
    for each in (getting, putting, deleting):
        each.add_argument("key", metavar="KEY")
    text = "in JSON, as 5, '\"a text\"' or '{\"a\": [1]}'; - reads it from standard input"
    putting.add_argument("value", metavar="VALUE", help=text)
    conditions = putting.add_mutually_exclusive_group()
    conditions.add_argument("--if-absent", action="store_true", help="only if it has no value")
    text = "only if its value has this tag, which `get --format json` shows"
    conditions.add_argument("--if-tag", metavar="TAG", help=text)
    times = putting.add_mutually_exclusive_group()
    summary = "the key expires so long after the write"
    times.add_argument("--expires-in", type=seconds, metavar="SECONDS", help=summary)
    summary = "it expires then: seconds since 1970, or 2030-01-31T09:00:00Z"
    times.add_argument("--expires-at", type=instant, metavar="TIME", help=summary)
    deleting.add_argument("--if-tag", metavar="TAG", help=text)
    deleting.add_argument("--yes", action="store_true", help="do not ask")
    watching = add(
        "watch", values.watch, "print each change of keys, until Ctrl-C", to=to, about=of
    )
    which = watching.add_mutually_exclusive_group()
    which.add_argument("--prefix", default="", metavar="PREFIX", help="of keys that begin so (all)")
    which.add_argument("--key", metavar="KEY", help="of this key only")
    text = "go on after this position, which the end of an earlier watch shows"
    watching.add_argument("--after", metavar="POSITION", help=text)
    text = "begin with the keys that are there"
    watching.add_argument("--existing", action="store_true", help=text)


def _add_leader_commands(add: Callable[..., Parser]) -> None:
    add("leaders", leaders.list_all, "which process holds which name", reads=True)
    summary = "which process holds a name; or have it stop"
    showing = add("leader", leaders.show, summary, about="the leader's name")
    text = "take the name away: its holder stops when it beats next, and others may take it"
    showing.add_argument("--resign", action="store_true", help=text)
    showing.add_argument("--yes", action="store_true", help="do not ask")
    ticking = add("ticks", ticks.list_all, "schedules, and which node runs them", reads=True)
    ticking.add_argument("name", nargs="?", metavar="NAME", help="this schedule only")


def _add_shuffle_commands(
    add: Callable[..., Parser], commands: argparse._SubParsersAction[Parser]
) -> None:
    shuffle = commands.add_parser("shuffle", help="list, show, end and delete shuffles")
    to = shuffle.add_subparsers(metavar="COMMAND", required=True)
    of = "the shuffle's name"
    add("list", shuffles.list_all, "all shuffles", to=to, reads=True)
    summary = "one shuffle: its state, its rows, and each node's share"
    show = add("show", shuffles.show, summary, to=to, about=of, reads=True)
    show.add_argument("--plot", metavar="FILE", help="also write a page about its balance to FILE")
    summary = "end a shuffle whose driver is gone: the rows of its attempts count"
    end = add("end", shuffles.end, summary, to=to, about=of)
    text = "an attempt that counts; may be repeated (all that are finished)"
    end.add_argument("--attempt", type=int, action="append", metavar="N", help=text)
    end.add_argument("--yes", action="store_true", help="do not ask")
    delete = add("delete", shuffles.delete, "delete a shuffle and all its rows", to=to, about=of)
    delete.add_argument("--yes", action="store_true", help="do not ask")


def _add_key_commands(
    add: Callable[..., Parser], commands: argparse._SubParsersAction[Parser]
) -> None:
    keygen = add("keygen", keys.keygen, "make a file with a new key for a cluster")
    keygen.add_argument("file", metavar="FILE")
    about_keys = commands.add_parser("keys", help="the keys in a file, and certificates")
    to = about_keys.add_subparsers(metavar="COMMAND", required=True)

    def on_file(name: str, command: Command, summary: str) -> Parser:
        sub = add(name, command, summary, to=to)
        sub.add_argument("file", metavar="FILE", help="the file of keys")
        return sub

    on_file("list", keys.show, "the ids of all keys, and which is used")
    on_file("add", keys.add, "add a new key, which is trusted and not used yet")
    using = on_file("use", keys.use, "issue certificates by this key, once all members trust it")
    removing = on_file("remove", keys.remove, "no longer trust a key, once no member uses it")
    for chooses in (using, removing):
        chooses.add_argument("key", metavar="KEY", help="its id")
        text = "do not ask the members which keys they have"
        chooses.add_argument("--unseen", action="store_true", help=text)
    revoking = on_file("revoke", keys.revoke, "end what was issued in a name, until now")
    revoking.add_argument("--name", required=True, help="as logs and `keys issue` have it")
    roles = ["client", "admin", "member"]
    revoking.add_argument(
        "--role", choices=roles, help="of this role (client, with reader, or admin)"
    )
    revoking.add_argument("--undo", action="store_true", help="what was issued counts again")
    issuing = on_file("issue", keys.issue, "write a certificate, to be used in place of the keys")
    issuing.add_argument("out", metavar="OUT", help="the file to write it to")
    saying = on_file("token", keys.token, "print a token for HTTP: Authorization: Bearer TOKEN")
    for names, those in ((issuing, ["reader", *roles]), (saying, ["reader", *roles[:-1]])):
        names.add_argument("--role", choices=those, default="client")
        names.add_argument("--name", required=True, help="the name that logs show")
        text = "the cluster's name; a member needs it, and for others the default is any cluster"
        names.add_argument("--cluster", metavar="NAME", help=text)
        text = "only these: names, or with * at the end beginnings of names; a comma between two"
        names.add_argument("--keyspaces", metavar="LIST", help=text)
        names.add_argument("--days", type=count, default=365, metavar="N", help="(365)")
    on_file("authority", keys.authority, "print the certificates that callers of https:// trust")


def _checkpoint(text: str) -> int | str:
    if text == "latest":
        return text
    try:
        return count(text.removeprefix("epoch-"))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither epoch-N nor latest") from None


def _members(client: Client, _options: argparse.Namespace) -> Output:
    value = client.admin("/admin/members")
    outside = ("damped", "draining")  # besides its status, these keep a member out of the ring
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
    if options.explain:
        return look.explain(client, options.key)
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
    value = client.admin("/admin/events")
    if not options.follow:
        return Output(value, history.lines(value["records"]))
    while True:  # until Ctrl-C
        for record in value["records"]:
            line = json.dumps(record) if options.format == "json" else history.lines([record])
            print(line, flush=True)
        value = history.next_page(client, value)


def damping_text(value: dict[str, Any]) -> str:
    """Return the reply of `/admin/damp/show` for people."""
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


_damp_show = asking("damp/show", damping_text, "name")


_damp_clear = asking(
    "damp/clear",
    lambda value: (
        f"{value['name']} {'is no longer' if value['was_damped'] else 'was not'} damped; "
        f"its score at {value['peer']} is 0 now"
    ),
    "name",
)


def _healing_text(value: dict[str, Any]) -> str:
    from ringpop_py.member.swim.records import text_of_healing  # noqa: PLC0415 - help needs nothing that is installed

    trouble = f"\nthe hosts known before were tried: {value['error']}" if value["error"] else ""
    silent = [f"\n{host} does not answer: {why}" for host, why in value["silent_hosts"].items()]
    return "".join([text_of_healing(value), *silent, trouble])


_heal = asking("healpartition/disco", _healing_text, timeout_s=HEAL_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
