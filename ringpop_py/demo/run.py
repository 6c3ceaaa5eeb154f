"""ringpop-demo: real flights from a Spark job to the nodes that own them, and one node killed."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.client import Client
from ringpop_py.demo.app import KEY
from ringpop_py.demo.cluster import ASK_TIMEOUT_S, Cluster, NodeProcess
from ringpop_py.demo.flights import read_flights, totals_by_spark, write_flights
from ringpop_py.demo.session import open_spark
from ringpop_py.errors import ConfigError, RingpopError
from ringpop_py.pipeline.interrupts import POLL_S, Interrupts, run_in_thread
from ringpop_py.pipeline.session import check_java
from ringpop_py.proxy.request import Request
from ringpop_py.wire.values import a_list, a_map, decode_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from ringpop_py.spark import RouteReport

OK: Final = 0
DIFFERENT: Final = 1
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
PROGRESS_S: Final = 0.5
KNOWN_S_MAX: Final = 60.0
NODES_MAX: Final = 20
DIFFERENCES_SHOWN: Final = 10

Totals = dict[str, tuple[int, int, int]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; see ``--help``."""
    options = _parser().parse_args(argv)
    # What py4j logs of a cancelled job is nothing to the reader; errors are raised as well.
    logging.disable(logging.CRITICAL)
    started_at = time.monotonic()
    with Interrupts() as interrupts:
        work = run_in_thread(lambda: _demonstrate(options, interrupts))
    logging.disable(logging.NOTSET)
    error = work.exception()
    if interrupts.came:  # whatever error that has led to: a cancelled job has many
        print("\ninterrupted; all nodes have ended", file=sys.stderr)
        return INTERRUPTED
    if isinstance(error, RingpopError):
        print(f"ringpop-demo: {error}", file=sys.stderr)
        return USAGE if isinstance(error, ConfigError) else FAILED
    exit_code = work.result()
    print(f"\nAll nodes have ended. {time.monotonic() - started_at:.0f} s in all.")
    return exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringpop-demo",
        description="Start a cluster, route 336,776 flights to it from Spark, kill a node.",
        epilog="Exit codes: 0 all totals are equal, 1 they differ or something failed, 2 usage.",
        allow_abbrev=False,
    )
    parser.add_argument("--nodes", type=_nodes, default=5, metavar="N", help="2 to 20 (5)")
    parser.add_argument("--rows", type=_rows, metavar="N", help="only the first N flights")
    parser.add_argument(
        "--through",
        choices=["owners", "daemon"],
        default="owners",
        help="send rows straight to their owners, or by way of one daemon",
    )
    parser.add_argument(
        "--keep", action="store_true", help="at the end, keep the nodes until Ctrl-C"
    )
    return parser


def _nodes(text: str) -> int:
    count = int(text)
    if not 2 <= count <= NODES_MAX:  # noqa: PLR2004 - one is killed, and one has to be left
        message = f"must be 2 to {NODES_MAX}"
        raise argparse.ArgumentTypeError(message)
    return count


def _rows(text: str) -> int:
    count = int(text)
    if count < 1:
        message = "must be 1 or more"
        raise argparse.ArgumentTypeError(message)
    return count


def _demonstrate(options: argparse.Namespace, interrupts: Interrupts) -> int:
    check_java()
    with tempfile.TemporaryDirectory(prefix="ringpop-demo-") as name:
        folder = Path(name)
        _title(f"{options.nodes} ringpopd processes")
        started_at = time.monotonic()
        with Cluster(
            folder, options.nodes, app="ringpop_py.demo.app:create", check_wanted=interrupts.check
        ) as cluster:
            print(f"converged after {time.monotonic() - started_at:.1f} s, without a leader:")
            for node in cluster.nodes:
                print(f"  {node.name}  {node.address}  pid {node.process.pid}")
            expected, report = _spark_job(cluster, folder, options, interrupts)
            equal = _compare(cluster, expected, report)
            _show_load(cluster)
            # The one with the most flights; by name where several have as many.
            tailnum = max(expected, key=lambda key: (expected[key][0], key), default="N14228")
            owner = _query(cluster, tailnum)
            interrupts.check()
            _kill(cluster, owner, expected)
            if options.keep:
                print(f"\nThe nodes at {' '.join(cluster.addresses)} run until Ctrl-C.", flush=True)
                interrupts.wait()
    return OK if equal else DIFFERENT


def _title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


# The job.


def _spark_job(
    cluster: Cluster, folder: Path, options: argparse.Namespace, interrupts: Interrupts
) -> tuple[Totals, RouteReport]:
    from ringpop_py.spark import route  # noqa: PLC0415 - pyspark takes a while, say so first

    _title("A Spark job routes flights to their owners")
    print("starting Spark ...", flush=True)
    rows = write_flights(folder / "flights", options.rows)
    interrupts.check()
    with open_spark("ringpop-demo", folder=folder) as spark, _jobs_cancelled(spark, interrupts):
        interrupts.check()
        flights = read_flights(spark, folder / "flights")
        print(f"{rows:,} flights, {len(flights.columns)} columns each, key {KEY}", flush=True)
        with _progress(cluster):
            report = route(
                flights,
                key=KEY,
                endpoint="/flights",
                peers=cluster.addresses,
                through=options.through,
            )
        print(report, flush=True)
        cluster.check()
        expected = totals_by_spark(flights)
    interrupts.check()
    return expected, report


def _jobs_cancelled(spark: SparkSession, interrupts: Interrupts) -> AbstractContextManager[None]:
    """Cancel Spark's jobs, those to come as well, once there is an interrupt in the block."""

    def cancel() -> None:
        if interrupts.came:
            with suppress(Exception):  # the JVM has ended, by the same signal
                spark.sparkContext.cancelAllJobs()

    return _meanwhile(cancel, POLL_S)


def _progress(cluster: Cluster) -> AbstractContextManager[None]:
    """Print how many rows each node has, now and then, while the block runs."""
    shown: list[int] = []

    def show() -> None:
        try:
            counts = [_arrived(node)[0] for node in cluster.running]
        except RingpopError:
            return  # the job itself tells what is wrong
        if counts != shown:
            nodes = "  ".join(f"{count:>7,}" for count in counts)
            print(f"  arrived {sum(counts):>8,}: {nodes}", flush=True)
            shown[:] = counts

    return _meanwhile(show, PROGRESS_S)


@contextmanager
def _meanwhile(act: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call *act* every so often, in a thread, while the block runs."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(every_s):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


# What the nodes hold.


def _invoke(node: NodeProcess, endpoint: str, body: bytes = b"") -> Any:  # noqa: ANN401 - by endpoint
    with Client(node.address, timeout_s=ASK_TIMEOUT_S) as client:
        return decode_value("msgpack", client.invoke(Request(endpoint, body)))


def _arrived(node: NodeProcess) -> tuple[int, int]:
    rows, keys = a_list(_invoke(node, "/arrived"), "arrived")
    return rows, keys


def _compare(cluster: Cluster, expected: Totals, report: RouteReport) -> bool:
    """Whether the nodes' totals are Spark's, for all keys; prints what differs."""
    _title("The same totals as Spark's own groupBy?")
    held: Totals = {}
    twice = 0
    for node in cluster.running:
        for tailnum, totals in a_map(_invoke(node, "/totals"), "totals").items():
            twice += tailnum in held
            held[tailnum] = tuple(totals)
    keys = sorted(held.keys() | expected.keys())
    different = [key for key in keys if held.get(key) != expected.get(key)]
    flights, minutes, miles = (sum(row[i] for row in held.values()) for i in range(3))
    print(f"keys compared {len(keys):,}, different {len(different):,}, at two nodes {twice:,}")
    print(f"flights {flights:,}, minutes delayed {minutes:,}, miles {miles:,}")
    print(f"flights without a key, not sent: {report.null_keys:,}")
    for key in different[:DIFFERENCES_SHOWN]:
        print(f"  {key}: nodes {held.get(key)}, Spark {expected.get(key)}")
    equal = not different and not twice
    print("EQUAL" if equal else "DIFFERENT")
    return equal


def _show_load(cluster: Cluster) -> None:
    _title("Load")
    weights = cluster.running[0].ring().ring.weights()
    print("  node        rows   keys   share of the ring")
    for node in cluster.running:
        rows, keys = _arrived(node)
        print(f"  {node.name:<8} {rows:>7,} {keys:>6,}   {weights[node.name]:>6.1%}")


def _query(cluster: Cluster, tailnum: str) -> NodeProcess:
    """Ask every node for *tailnum*; its owner."""
    _title(f"Aircraft {tailnum}, asked of each node")
    answers = {}
    for node in cluster.running:
        answers[node.name] = owner, *totals = a_list(
            _invoke(node, "/aircraft", tailnum.encode()), "aircraft"
        )
        flights, minutes, miles = totals
        print(
            f"  {node.name}: {flights:,} flights, {minutes:,} minutes delayed, {miles:,} miles"
            f" (says {owner}, the owner)"
        )
    distinct = {tuple(answer) for answer in answers.values()}
    if len(distinct) != 1:
        message = f"the nodes give {len(distinct)} different answers"
        raise RingpopError(message)
    return cluster.named(str(owner))


# One node less.


def _kill(cluster: Cluster, victim: NodeProcess, expected: Totals) -> None:
    _title(f"kill -9 {victim.name}")
    before = victim.ring().ring
    killed_at = time.monotonic()
    cluster.kill(victim)

    def knows(*statuses: str) -> float:
        cluster.wait_all(
            lambda node: node.statuses().get(victim.name) in statuses,
            KNOWN_S_MAX,
            what=f"see {victim.name} as {statuses[0]}",
        )
        return time.monotonic() - killed_at

    suspect_s = knows("suspect", "faulty")
    print(f"  all others suspect it after {suspect_s:.2f} s", flush=True)
    faulty_s = knows("faulty")
    print(f"  all others know it is faulty after {faulty_s:.2f} s", flush=True)
    after = cluster.running[0].ring().ring
    keys = [key for key in expected if before.lookup(key) == victim.name]
    heirs = Counter(after.lookup_many(keys))
    shares = ", ".join(f"{name} {count:,}" for name, count in sorted(heirs.items()))
    print(f"  its {len(keys):,} keys have new owners: {shares}")
    strays = sum(before.lookup(key) != after.lookup(key) for key in expected) - len(keys)
    print(f"  keys of other nodes that changed owner: {strays:,}")
    print("  (its totals were in its memory only; they are not moved to the new owners)")


if __name__ == "__main__":
    sys.exit(main())
