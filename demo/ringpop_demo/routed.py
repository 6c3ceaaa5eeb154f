"""Rows routed to the application, which keeps totals in the memory of the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringpop_demo.app import KEY
from ringpop_demo.cluster import ASK_TIMEOUT_S
from ringpop_demo.flights import totals_by_spark
from ringpop_demo.texts import show_equality, title
from ringpop_py.base.values.packed import a_list, a_map, decode_value
from ringpop_py.client.sync.client import Client
from ringpop_py.errors import RingpopError
from ringpop_py.route.proxy.request import Request
from ringpop_py.spark.pipeline.progress import meanwhile

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from ringpop_demo.cluster import Cluster, NodeProcess
    from ringpop_demo.texts import Totals
    from ringpop_py.spark.sender import Through

PROGRESS_S: Final = 0.5


def route_flights(flights: DataFrame, cluster: Cluster, through: Through) -> tuple[Totals, bool]:
    """Send *flights* to their owners; return Spark's totals, and whether the nodes' are equal."""
    from ringpop_py.spark import route  # noqa: PLC0415 - pyspark takes a while

    with _progress(cluster):
        report = route(
            flights, key=KEY, endpoint="/flights", peers=cluster.addresses, through=through
        )
    print(report, flush=True)
    cluster.check()
    expected = totals_by_spark(flights, KEY)
    title("The same totals as Spark's own groupBy?")
    held: Totals = {}
    twice = 0
    for node in cluster.running:
        for tailnum, totals in a_map(_invoke(node, "/totals"), "totals").items():
            # Totals are in memory at the owner only: a key at two nodes was routed wrongly.
            twice += tailnum in held
            held[tailnum] = tuple(totals)
    print(f"flights without a key, not sent: {report.null_keys:,}")
    return expected, show_equality(held, expected, twice)


def show_load(cluster: Cluster) -> None:
    """Print how many rows and keys each node has."""
    title("Load")
    weights = cluster.running[0].ring().ring.weights()
    print("  node        rows   keys   share of the ring")
    for node in cluster.running:
        rows, keys = _arrived(node)
        print(f"  {node.name:<8} {rows:>7,} {keys:>6,}   {weights[node.name]:>6.1%}")


def query(cluster: Cluster, tailnum: str) -> NodeProcess:
    """Ask every node for *tailnum*; return the node that owns it.

    Raises:
        RingpopError: if the nodes disagree.
    """
    title(f"Aircraft {tailnum}, asked of each node")
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
        raise RingpopError(f"the nodes give {len(distinct)} different answers")
    return cluster.named(str(owner))


def _progress(cluster: Cluster) -> AbstractContextManager[None]:
    """Print every now and then how many rows each node has, while the block runs."""
    shown: list[int] = []

    def show() -> None:
        try:
            counts = [_arrived(node)[0] for node in cluster.running]
        except RingpopError:
            return  # the job itself reports what is wrong
        if counts != shown:
            nodes = "  ".join(f"{count:>7,}" for count in counts)
            print(f"  arrived {sum(counts):>8,}: {nodes}", flush=True)
            shown[:] = counts

    return meanwhile(show, PROGRESS_S)


def _invoke(node: NodeProcess, endpoint: str, body: bytes = b"") -> Any:  # noqa: ANN401 - by endpoint
    with Client(node.address, timeout_s=ASK_TIMEOUT_S) as client:
        return decode_value("msgpack", client.invoke(Request(endpoint, body)))


def _arrived(node: NodeProcess) -> tuple[int, int]:
    rows, keys = a_list(_invoke(node, "/arrived"), "arrived")
    return rows, keys
