"""ringpop-demo: real flights from Spark jobs to the nodes that own them, and one node killed."""

from __future__ import annotations

import argparse
import logging
import select
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_demo.app import KEY
from ringpop_demo.cluster import Cluster
from ringpop_demo.flights import read_flights, write_by_hour, write_flights
from ringpop_demo.pipelines import run_batch, run_stream
from ringpop_demo.routed import query, route_flights, show_load
from ringpop_demo.session import open_spark
from ringpop_demo.texts import title
from ringpop_py.edge.cli.commands import ExitCode, command_parser, complain, count
from ringpop_py.errors import ConfigError, RingpopError
from ringpop_py.spark.pipeline.interrupts import POLL_S, Interrupts, run_in_thread
from ringpop_py.spark.pipeline.plot import check_page
from ringpop_py.spark.pipeline.progress import meanwhile
from ringpop_py.spark.pipeline.session import check_java

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

DIFFERENT: Final = 1
INTERRUPTED: Final = 130
NODES_MAX: Final = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; see ``--help``."""
    options = _parser().parse_args(argv)
    # py4j logs details of a cancelled job, which do not help the reader; errors are raised as well.
    logging.disable(logging.CRITICAL)
    started_at = time.monotonic()
    with Interrupts() as interrupts:
        work = run_in_thread(lambda: _demonstrate(options, interrupts))
    logging.disable(logging.NOTSET)
    error = work.exception()
    if interrupts.came:  # whatever error came of it: a cancelled job can fail in many ways
        complain("\ninterrupted; all nodes have ended")
        return INTERRUPTED
    if isinstance(error, RingpopError):
        complain(f"ringpop-demo: {error}")
        return ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILED
    exit_code = work.result()
    print(f"\nAll nodes have ended. {time.monotonic() - started_at:.0f} s in all.")
    return exit_code


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "ringpop-demo",
        description=(
            "Start a cluster, bring 336,776 flights to it from Spark in three ways, kill a node."
        ),
        epilog="Exit codes: 0 all totals are equal, 1 they differ or something failed, 2 usage.",
    )
    parser.add_argument("--nodes", type=_nodes, default=5, metavar="N", help="2 to 20 (5)")
    parser.add_argument("--rows", type=count, metavar="N", help="only the first N flights")
    parser.add_argument(
        "--through",
        choices=["owners", "daemon"],
        default="owners",
        help="send rows straight to their owners, or by way of one daemon",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        default=Path("ringpop-demo.html"),
        metavar="FILE",
        help="how it went, as a page of HTML",
    )
    text = "at the end, keep the nodes and their console until you press Enter"
    parser.add_argument("--stay", "--keep", action="store_true", help=text)
    return parser


def _nodes(text: str) -> int:
    found = count(text)
    if not 2 <= found <= NODES_MAX:  # noqa: PLR2004 - one is killed, and one has to be left
        raise argparse.ArgumentTypeError(f"must be 2 to {NODES_MAX}")
    return found


def _demonstrate(options: argparse.Namespace, interrupts: Interrupts) -> int:
    # What can be wrong with the machine is checked before anything is started.
    check_page(options.plot)
    check_java()
    with tempfile.TemporaryDirectory(prefix="ringpop-demo-") as name:
        folder = Path(name)
        title(f"{options.nodes} ringpopd processes")
        started_at = time.monotonic()
        with Cluster(
            folder,
            options.nodes,
            app="ringpop_demo.app:create",
            store=folder / "store",
            serves_http=True,
            check_wanted=interrupts.check,
        ) as cluster:
            print(f"converged after {time.monotonic() - started_at:.1f} s, without a leader:")
            for node in cluster.nodes:
                print(f"  {node.name}  {node.address}  pid {node.process.pid}")
            print(f"look at them: {cluster.console}", flush=True)
            equal = _spark_jobs(cluster, folder, options, interrupts)
            interrupts.check()
            if options.stay:
                _stay(cluster, interrupts)
            else:
                print("\nTo look around in what is there now: bin/demo --stay")
    return ExitCode.OK if equal else DIFFERENT


def _stay(cluster: Cluster, interrupts: Interrupts) -> None:
    """Say where to look, and return when a key is pressed or a signal comes."""
    title("The cluster stays")
    print(f"the console     {cluster.console}")
    print(f"the commands    export RINGPOP_PEER={cluster.addresses[0]}")
    print("                bin/ringpopctl check; bin/ringpopctl top; bin/ringpopctl partitions")
    print(f"\nThe nodes at {' '.join(cluster.addresses)} run until you press Enter.", flush=True)
    interrupts.wait(_enter_pressed)


def _enter_pressed() -> bool:
    """Return whether somebody at the terminal has pressed Enter."""
    return sys.stdin.isatty() and bool(select.select([sys.stdin], [], [], 0)[0])


def _spark_jobs(
    cluster: Cluster, folder: Path, options: argparse.Namespace, interrupts: Interrupts
) -> bool:
    """Run all Spark jobs; return whether all totals were right."""
    title("A Spark job routes flights to their owners")
    print("starting Spark ...", flush=True)
    rows = write_flights(folder / "flights", options.rows)
    write_by_hour(folder / "flights", folder / "by-hour")
    interrupts.check()
    with open_spark("ringpop-demo", folder=folder) as spark, _jobs_cancelled(spark, interrupts):
        interrupts.check()
        flights = read_flights(spark, folder / "flights")
        print(f"{rows:,} flights, {len(flights.columns)} columns each, key {KEY}", flush=True)
        expected, routed = route_flights(flights, cluster, options.through)
        show_load(cluster)
        # The aircraft with the most flights; of equal ones, the last by name.
        tailnum = max(expected, key=lambda key: (expected[key][0], key), default="N14228")
        victim = query(cluster, tailnum)
        interrupts.check()
        batch = run_batch(spark, cluster, folder, interrupts)
        interrupts.check()
        stream = run_stream(spark, cluster, folder, interrupts, victim, options.plot)
    return routed and batch and stream


def _jobs_cancelled(spark: SparkSession, interrupts: Interrupts) -> AbstractContextManager[None]:
    """Cancel Spark's jobs, present and later ones, once there is an interrupt in the block."""

    def cancel() -> None:
        if interrupts.came:
            with suppress(Exception):  # the same signal has ended the JVM
                spark.sparkContext.cancelAllJobs()

    return meanwhile(cancel, POLL_S)


if __name__ == "__main__":
    sys.exit(main())
