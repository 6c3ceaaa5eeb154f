"""Spark: writes that are exactly once, scans, lookups, owners as a column; beside Spark itself.

And beside what a user would pick instead. All ways take turns, and the first turn is not counted.
Each run has a plan of its own: Spark keeps the finished stages of a DataFrame that was collected
before, and would be timed at adding up two numbers. What was written is read back after each turn,
and compared with Spark's own groupBy. `--help` says what can be chosen.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_py.edge.cli.commands import count
from tests.bench.choices import a_file, some_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tests.bench.report import Row

PARTS: Final = {
    "owners": "functions.owners",
    "routes": "functions.routes",
    "writes": "writes.writes",
    "reads": "reads.reads",
    "instead": "instead.instead",
}
"""What can be measured, and the function that does; each has a folder for itself."""
INPUTS: Final = ("flights", "flights-3m", "zipf")
"""What can be written."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be chosen of this benchmark."""
    group = parser.add_argument_group("spark", "All of it takes about half an hour.")
    group.add_argument(
        "--parts",
        type=some_of(PARTS),
        default=tuple(PARTS),
        metavar="PART,...",
        help=f"of: {', '.join(PARTS)} (all)",
    )
    group.add_argument(
        "--inputs",
        type=some_of(INPUTS),
        default=INPUTS,
        metavar="INPUT,...",
        help=f"that part writes takes, of: {', '.join(INPUTS)} (all)",
    )
    group.add_argument(
        "--flights-3m",
        type=a_file,
        metavar="FILE",
        help="data/flights-3m.parquet of the npm package vega-datasets (without: no rows of it)",
    )
    group.add_argument(
        "--rows",
        type=count,
        default=10_000_000,
        metavar="COUNT",
        help="rows of Zipf keys, and keys whose owners are computed (10000000)",
    )
    group.add_argument(
        "--keys",
        type=count,
        default=1_000_000,
        metavar="COUNT",
        help="distinct keys that are put, scanned and looked up (1000000)",
    )
    group.add_argument("--turns", type=count, default=5, metavar="COUNT", help="that count (5)")


def run(options: argparse.Namespace) -> Iterator[Row]:
    """The rows of `spark`."""
    from tests.bench.dataframes.bench import Bench, cluster, session

    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        with cluster(home) as nodes, session(home) as spark:
            for part in options.parts:
                _tell(f"{part}, load {os.getloadavg()[0]:.1f} ...")
                folder = home / part
                folder.mkdir()
                module, _, function = PARTS[part].partition(".")
                measure = getattr(import_module(f"tests.bench.dataframes.{module}"), function)
                yield from measure(Bench(spark, nodes, folder, options))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
