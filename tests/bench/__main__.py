"""``python -m tests.bench [NAME…]``: the figures of this machine, beside those of named peers."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tests.bench.figures import commit_of, print_stale
from tests.bench.report import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from tests.bench.report import Row

BENCHMARKS: Final = {
    "lookup": "tests.bench.lookup",
    "checksum": "tests.bench.checksum",
    "rpc": "tests.bench.rpc",
    "start": "tests.bench.start",
    "converge": "tests.bench.converge",
    "spark": "tests.bench.spark",
    "gossip": "tests.bench.gossip",
    "protocol": "tests.bench.protocol",
    "simulator": "tests.bench.simulator",
    "state": "tests.bench.state",
    "shuffle": "tests.bench.shuffle",
    "entry": "tests.bench.entry",
    "security": "tests.bench.security",
    "streams": "tests.bench.streams",
}
"""What can be run, and the module whose ``run()`` yields its rows; each is imported on use."""

WITH_OPTIONS: Final = ("gossip", "protocol", "shuffle", "simulator", "spark", "state", "streams")
"""Whose modules add options to the command line, in ``add_options()``, and get them.

Options can be given to one benchmark that is named alone: others have options of the same name.
"""


def main(argv: Sequence[str]) -> int:
    """Run the benchmarks named in *argv*, all if none is; print their rows."""
    benchmarks = {name: module for name, module in BENCHMARKS.items() if find_spec(module)}
    parser = argparse.ArgumentParser(prog="bench", description="Measure side by side with peers.")
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(benchmarks))
    parser.add_argument("--format", choices=["table", "json"], default="table")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument(
        "--stale",
        action="store_true",
        help="list the rows of docs/figures.md whose code has changed since, and stop",
    )
    named = [name for name in benchmarks if name in argv]
    if len(named) == 1 and named[0] in WITH_OPTIONS:
        import_module(benchmarks[named[0]]).add_options(parser)
    arguments = parser.parse_args(argv)
    if arguments.list:
        print("\n".join(benchmarks))
        return 0
    if arguments.stale:
        return print_stale()
    unknown = [name for name in arguments.names if name not in benchmarks]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(benchmarks)}")
    names = arguments.names or list(benchmarks)
    given = arguments if len(names) == 1 else None
    modules = {name: benchmarks[name] for name in names}
    at = commit_of()
    with ending_in_order(), closing(_all_rows(modules, given)) as rows:
        if arguments.format == "json":
            print_json(rows, at)
        else:
            print_table(rows, at)
    return 0


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Have SIGTERM end what was started within, as Ctrl-C does: daemons, brokers, Spark."""
    came: list[int] = []

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # or a second one would cut that short
        came.append(number)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except Exception:
        if not came:
            raise
        sys.exit(128 + came[0])  # py4j, for one, makes another error of it


def _all_rows(modules: Mapping[str, str], given: argparse.Namespace | None) -> Generator[Row]:
    for name, module in modules.items():
        yield from _rows(name, module, given)


def _rows(name: str, module: str, given: argparse.Namespace | None) -> Iterator[Row]:
    """The rows of one benchmark, with the options that were *given*, or else its defaults."""
    benchmark = import_module(module)
    if name not in WITH_OPTIONS:
        yield from benchmark.run()
        return
    if given is None:
        parser = argparse.ArgumentParser()
        benchmark.add_options(parser)
        given = parser.parse_args([])
    yield from benchmark.run(given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
