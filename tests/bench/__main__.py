"""``python -m tests.bench [NAME…]``: the figures of this machine, beside those of named peers."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Final

from tests.bench.report import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.bench.report import Row

BENCHMARKS: Final = {
    "lookup": "tests.bench.lookup",
    "checksum": "tests.bench.checksum",
    "rpc": "tests.bench.rpc",
    "converge": "tests.bench.converge",
    "spark": "tests.bench.spark",
    "gossip": "tests.bench.gossip",
    "protocol": "tests.bench.protocol",
    "simulator": "tests.bench.simulator",
    "state": "tests.bench.state",
}
"""What can be run, and the module whose ``run()`` yields its rows; each is imported on use."""

WITH_OPTIONS: Final = ("gossip", "protocol", "simulator", "spark", "state")
"""Whose modules add options to the command line, in ``add_options()``, and get them."""


def main(argv: Sequence[str]) -> int:
    """Run the benchmarks named in *argv*, all if none is; print their rows."""
    benchmarks = {name: module for name, module in BENCHMARKS.items() if find_spec(module)}
    parser = argparse.ArgumentParser(prog="bench", description="Measure side by side with peers.")
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(benchmarks))
    parser.add_argument("--format", choices=["table", "json"], default="table")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    named = benchmarks.keys() & set(argv) or benchmarks.keys()
    for name in WITH_OPTIONS:
        if name in named:
            import_module(benchmarks[name]).add_options(parser)
    arguments = parser.parse_args(argv)
    if arguments.list:
        print("\n".join(benchmarks))
        return 0
    unknown = [name for name in arguments.names if name not in benchmarks]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(benchmarks)}")
    names = arguments.names or benchmarks
    rows = chain.from_iterable(_rows(name, benchmarks[name], arguments) for name in names)
    if arguments.format == "json":
        print_json(rows)
    else:
        print_table(rows)
    return 0


def _rows(name: str, module: str, arguments: argparse.Namespace) -> Iterator[Row]:
    run = import_module(module).run
    yield from run(arguments) if name in WITH_OPTIONS else run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
