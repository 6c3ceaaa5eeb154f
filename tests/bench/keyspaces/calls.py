"""What a keyspace asks of its store while many callers put random keys, and what a bucket charges.

A folder that answers late shows how the number of calls follows from the latency; S3's interface
and etcd, each a server on this machine, show what calls really take.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.state.stores import open_store
from ringpop_py.state.stores.folder import FolderStore
from tests.bench.keyspaces.counted import LIST_PRICE, VERBS, CountedStore, counts_of
from tests.bench.keyspaces.nodes import a_keyspace
from tests.bench.keyspaces.puts import rate
from tests.bench.keyspaces.random_keys import putting, random_order
from tests.bench.report import NOT_INSTALLED, Row, against_goal
from tests.state.stores.servers import etcd_server, program_named, s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.keyspaces.counted import StoreCall

KEYS: Final = 10_000
MILLION: Final = 1_000_000
CALLS_IN_FLIGHT_MAX: Final = 2
"""So many calls of a node may be under way on average while it only commits. With a latency of
20 ms these are 100 calls a second."""
SELDOM_S: Final = 3_600.0
COMMITTING: Final = "committing"
CHECKPOINTING: Final = "with_checkpoints"
WHAT: Final = (COMMITTING, CHECKPOINTING)
"""What the node does: it only commits, or it writes checkpoints, too."""
PERCENTILES: Final = (50, 99)
ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_REGION": "us-east-1",
}


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        checkpoints_s: the interval of checkpoints where there are some. Before the measurement they
            run for so long, and during it again.
    """

    partitions: int = 256
    callers_count: int = 64
    latency_s: float = 0.02
    committing_s: float = 5.0
    checkpoints_s: float = 10.0


class Asked:
    """What was asked of a store in one measurement.

    Attributes:
        puts_rate: writes a second.
        seconds: how long it took.
    """

    def __init__(self, puts_rate: float, seconds: float, calls: Sequence[StoreCall]) -> None:
        self.puts_rate = puts_rate
        self.seconds = seconds
        self.calls = calls

    @property
    def puts_count(self) -> float:
        """How many writes were acknowledged."""
        return self.puts_rate * self.seconds

    def rows(self, title: str, goal: float | None = None) -> Iterator[Row]:
        """Yield the figures; *goal* is the most calls a second."""
        count = len(self.calls)
        yield Row(f"{title}.puts", self.puts_rate, "1/s")
        yield against_goal(f"{title}.store_calls", count / self.seconds, "1/s", goal)
        used = [(verb, some) for verb, some in counts_of(self.calls).items() if some]
        for verb, some in used:
            yield Row(f"{title}.store_calls.{verb}", some / self.seconds, "1/s")
        yield Row(f"{title}.store_calls_a_put", count / self.puts_count, "calls")
        stored = sum(call.bytes_count for call in self.calls if call.verb == "put")
        yield Row(f"{title}.stored_bytes_a_put", stored / self.puts_count, "bytes")
        usd = sum(call.usd for call in self.calls) / self.puts_count * MILLION
        yield Row(f"{title}.bucket.million_puts", usd, f"USD ({LIST_PRICE})")

    def rows_of_latencies(self, title: str) -> Iterator[Row]:
        """Yield percentiles of the calls of each verb that was used at least twice."""
        for verb in VERBS:
            seconds = [call.seconds for call in self.calls if call.verb == verb]
            if len(seconds) < 2:  # of one there are no percentiles
                continue
            cuts = quantiles(seconds, n=100, method="inclusive")
            for percent in PERCENTILES:
                yield Row(f"{title}.{verb}.p{percent}", cuts[percent - 1] * 1000, "ms")


def calls(folder: Path) -> Iterator[Row]:
    """A folder with a latency, S3's interface at moto's server, and etcd."""
    extent = Extent()
    yield from of_a_folder(folder, extent)
    yield from of_a_bucket(extent)
    yield from of_etcd(folder, extent)


def of_a_folder(folder: Path, extent: Extent) -> Iterator[Row]:
    """The rows of a folder whose calls take longer by a latency."""
    ms = round(extent.latency_s * 1000)
    goal = CALLS_IN_FLIGHT_MAX / extent.latency_s
    for what in WHAT:
        store = FolderStore(folder / what)
        asked = trio.run(_measure, CountedStore(store, latency_s=extent.latency_s), what, extent)
        limit = goal if what == COMMITTING else None
        yield from asked.rows(f"state.calls.folder_{ms}ms.{what}", limit)


def of_a_bucket(extent: Extent) -> Iterator[Row]:
    """The rows of the interface of S3."""
    title = "state.calls.s3_moto"
    if find_spec("moto") is None or find_spec("obstore") is None:
        yield _missing(title, "moto and obstore")
        return
    with environment(ENVIRONMENT), s3_server() as endpoint:
        for what in WHAT:
            url = f"s3://bucket/{what}?endpoint={endpoint}&allow_http=true"
            yield from _rows_of_url(title, url, what, extent)


def of_etcd(folder: Path, extent: Extent) -> Iterator[Row]:
    """The rows of an etcd that is alone."""
    title = "state.calls.etcd"
    if program_named("etcd") is None:
        yield _missing(title, "etcd")
        return
    with etcd_server(folder / "etcd") as at:
        for what in WHAT:
            yield from _rows_of_url(title, f"etcd://{at}/{what}", what, extent)


def _missing(title: str, peer: str) -> Row:
    return Row(f"{title}.{COMMITTING}.puts", 0.0, "1/s", peer=f"{peer}: {NOT_INSTALLED}")


def _rows_of_url(title: str, url: str, what: str, extent: Extent) -> Iterator[Row]:
    with closing(open_store(url)) as store:
        asked = trio.run(_measure, CountedStore(store), what, extent)
    yield from asked.rows(f"{title}.{what}")
    yield from asked.rows_of_latencies(f"{title}.{what}")


async def _measure(store: CountedStore, what: str, extent: Extent) -> Asked:
    """Have the callers put random keys for a while; count what is asked of *store*."""
    is_calm = what == COMMITTING
    interval_s = SELDOM_S if is_calm else extent.checkpoints_s
    warm_up_s = 0.0 if is_calm else interval_s
    for_s = extent.committing_s if is_calm else interval_s
    keys = random_order([f"key-{index}" for index in range(KEYS)])
    async with a_keyspace(
        Path(), extent.partitions, store=store, checkpoint_interval_s=interval_s
    ) as keyspace:
        put = putting(keyspace, keys)
        await rate([put] * extent.callers_count, warm_up_s)
        store.calls.clear()
        began_at = perf_counter()
        puts_rate = await rate([put] * extent.callers_count, for_s)
        seconds = perf_counter() - began_at
        return Asked(puts_rate, seconds, list(store.calls))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have *variables* in the environment within the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
