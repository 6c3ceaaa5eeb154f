"""ringpopd: runs one member of a cluster; `ringpopd dev N` runs a local cluster."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ConfigError, JoinRefused, NameLost
from ringpop_py.edge.cli import commands
from ringpop_py.edge.cli.commands import ExitCode, command_parser, complain_of, ends_with_its_reader
from ringpop_py.edge.cli.logs import LEVELS, Logs
from ringpop_py.edge.cli.options import add_node_options, config_from

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ringpop_py.net.transport.network import Network

EPILOG = """\
All nodes of a cluster use the same store (--store), which is made once (--create-store). A node
without one has no part in durable keyspaces. Stores need pip install 'ringpop_py[state]':
  /var/lib/ringpop                  a folder that all nodes share, also as folder:///var/lib/ringpop
  sqlite:///var/lib/ringpop.sqlite  one file, for the nodes of one machine
  s3://bucket/prefix?region=name    needs pip install 'ringpop_py[s3]'; credentials come from the
                                    environment; ?endpoint=https://host:port if not Amazon's
  etcd://host:2379,host:2379/prefix
  memory:                           one node alone, for a trial: all data is lost with its process

`ringpopd dev N` starts N nodes on this machine, with a table and keys to break them; see
`ringpopd dev --help`. Signals: SIGTERM finishes open requests (see --drain-timeout) and ends the
node, a second SIGTERM ends it immediately; SIGHUP reads the hosts file again. Exit codes: 0 ended
on request, 1 failed, 2 cannot be started with these settings.
"""


@ends_with_its_reader
def main(argv: Sequence[str] | None = None, network: Network | None = None) -> int:
    """Run ringpopd, perhaps over another *network* than TCP; see ``--help``."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["dev"]:
        from ringpop_py.edge.cli.dev import main as dev_main  # noqa: PLC0415 - only `dev` needs it

        return dev_main(arguments[1:])
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser, command = _parser(), arguments[at + 1 :]
    options = parser.parse_args(arguments[:at])
    if (options.run_as_leader is None) != (not command):
        parser.error("--run-as-leader NAME and -- COMMAND … need each other")
    go_below_the_first()  # before a thread is started
    logs = Logs(options.log_format, options.log_level)  # first: imports and checks may log
    # Until the node handles signals itself: imports take a while, above all those of --app.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        gc.disable()  # what imports make stays
        from ringpop_py.edge.cli import process  # noqa: PLC0415 - help needs nothing that is installed

        gc.enable()
        gc.set_threshold(options.gc_threshold)
        try:
            program = process.NodeProgram(options.app, options.run_as_leader, command)
            process.run(config_from(options), program, logs, network)
        finally:
            logs.flush()  # no line of the log stands within what follows
    except KeyboardInterrupt:
        return ExitCode.OK
    except ConfigError as error:
        return complain_of("ringpopd", error, ExitCode.USAGE)
    except (JoinRefused, NameLost, process.ProcessFailed) as error:
        return complain_of("ringpopd", error, ExitCode.FAILED)
    return ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "ringpopd", description="Run one node of a cluster without a leader.", epilog=EPILOG
    )
    add_node_options(parser)
    add = parser.add_argument
    add("--app", metavar="MODULE:FACTORY", help="load handlers: FACTORY(ringpop) registers them")
    text = "run COMMAND, which stands after --, while this node holds the name of a leader"
    add("--run-as-leader", metavar="NAME", help=text)
    text = "collect garbage after N more new objects than freed ones (10000)"
    add("--gc-threshold", type=commands.count, default=10_000, metavar="N", help=text)
    add("--log-format", choices=["console", "json"], default="console")
    add("--log-level", choices=list(LEVELS), default="info")
    return parser


FIRST: Final = 1
PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def go_below_the_first() -> None:
    """Return in a child, if this process is the first of its container; do nothing otherwise.

    The system gives the first process all orphans: those for which nobody waits stay as zombies.
    The node is no place for that, as its own children, of which it awaits the exit codes, are among
    them. Call this before a thread is started. The first process ends with the child's exit code.
    """
    if os.getpid() != FIRST:
        return
    # Blocked signals stay pending; the system would drop those of a first process otherwise.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*PASSED_ON, signal.SIGCHLD))
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # Ctrl-C is for the first process, which passes it on: not twice
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*PASSED_ON, signal.SIGCHLD))
        return
    while True:
        number = signal.sigwait((*PASSED_ON, signal.SIGCHLD))
        if number != signal.SIGCHLD:
            os.kill(child, number)
            continue
        code = _exit_code_of(child)
        if code is not None:
            os._exit(code)  # the system ends all others of the container


def _exit_code_of(child: int) -> int | None:
    """Wait for all children that have ended; return the exit code of *child* if it is among them.

    As in a shell, it is above 128 if a signal has ended it.
    """
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)  # *child* is there, or among them
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if pid == 0:
            return None


if __name__ == "__main__":
    sys.exit(main())
