"""What totals by key would be kept in otherwise: Redis, and databases through JDBC.

Each gets the rows in the way that its users have. Redis adds up, a command a field, in pipelines;
or Spark adds up first, and Redis gets totals. Into databases, JDBC appends rows, and a query adds
them up (which is not timed). None of that is exactly once: a task that is repeated counts twice.
What this machine lacks is left out, and the row says so.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from ringpop_demo.cluster import free_addresses
from tests.bench.dataframes.functions import MILLIONS
from tests.bench.dataframes.inputs import TOTALS, check, flights, ordered
from tests.bench.dataframes.ours import register
from tests.bench.dataframes.turns import Way, rates, tell
from tests.bench.dataframes.writes import ours
from tests.bench.keyspaces.peers import redis_server
from tests.bench.report import NOT_INSTALLED, Row, larger_is_better, without_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame
    from pyspark.sql import Row as SparkRow

    from tests.bench.dataframes.bench import Bench

JARS: Final = Path("/usr/share/java")
"""Where distributions put them."""
DRIVERS: Final = {
    "sqlite": ("sqlite-jdbc.jar", "org.sqlite.JDBC"),
    "postgres": ("postgresql.jar", "org.postgresql.Driver"),
}
SERVERS: Final = Path("/usr/lib/postgresql")
UNPRIVILEGED: Final = ("postgres", "nobody")
"""Postgres does not run as root."""
PIPELINE_ROWS: Final = 5_000
BATCH_ROWS: Final = "10000"
START_S: Final = 20.0
TABLE: Final = "flights"
ADD_UP: Final = (
    f"SELECT key, SUM(minutes) AS minutes, SUM(miles) AS miles FROM {TABLE} GROUP BY key"  # noqa: S608 - a name of ours
)
COPIES: Final = 1
"""Of the flights: at a command a row, others would take minutes."""


class Place(NamedTuple):
    """Somewhere to keep totals.

    Attributes:
        add: adds rows to what is there.
        totals: what is there.
        warm: see `Way`.
    """

    add: Callable[[DataFrame], object]
    totals: Callable[[], pa.Table]
    warm: bool = True


def instead(bench: Bench) -> Iterator[Row]:
    """Ours beside each of `PLACES`, in turns."""
    register(bench.spark)
    rows = flights(bench.spark, bench.folder, COPIES)
    tell(f" {rows.rows:,} rows, kept elsewhere")
    ways = {"ours": ours(bench, rows, bench.target("ours"))}
    with ExitStack() as stack:
        for name, opened in PLACES.items():
            place = stack.enter_context(opened(bench))
            if place is not None:
                ways[name] = _way(bench, rows, place, name)
            else:
                tell(f" {name}: {NOT_INSTALLED}")
        found = {name: rate / 1e6 for name, rate in rates(ways, bench.options.turns).items()}
    for name in PLACES:
        title = f"spark.write.{rows.name}"
        if name in found:
            yield larger_is_better(title, found["ours"], MILLIONS, name, found[name])
        else:
            yield without_peer(title, found["ours"], MILLIONS, name)


def _way(bench: Bench, rows: Any, place: Place, name: str) -> Way:  # noqa: ANN401 - an Input
    times = 0

    def right() -> None:
        nonlocal times
        times += 1
        check(place.totals(), rows.totals, times, name)

    return Way(lambda: place.add(rows.read(bench.spark)), rows.rows, right, place.warm)


def jars() -> list[Path]:
    """The drivers of databases that are here."""
    return [JARS / jar for jar, _ in DRIVERS.values() if (JARS / jar).exists()]


# Redis.


def _add_each(host: str, port: int) -> Callable[[Iterable[SparkRow]], None]:
    """For `foreachPartition`: each row is added to the totals of its key."""

    def add(rows: Iterable[SparkRow]) -> None:
        import redis

        with redis.Redis(host, port) as client, client.pipeline(transaction=False) as pipeline:
            for row in rows:
                pipeline.hincrby(row.key, "minutes", row.minutes)
                pipeline.hincrby(row.key, "miles", row.miles)
                if len(pipeline) >= 2 * PIPELINE_ROWS:
                    pipeline.execute()
            pipeline.execute()

    return add


def _redis_totals(host: str, port: int) -> pa.Table:
    import redis

    with redis.Redis(host, port) as client:
        keys = list(client.scan_iter(count=PIPELINE_ROWS))
        with client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hmget(key, "minutes", "miles")
            values = pipeline.execute()
    rows = [(key.decode(), *map(int, pair)) for key, pair in zip(keys, values, strict=True)]
    columns = zip(*rows, strict=True)
    return ordered(pa.table(list(map(pa.array, columns)), names=TOTALS.names))


@contextmanager
def _redis(*, durable: bool, by_spark: bool = False) -> Iterator[Place | None]:
    if shutil.which("redis-server") is None or find_spec("redis") is None:
        yield None
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        redis_server(Path(folder), durable=durable) as at,
    ):
        send = _add_each(*at)
        yield Place(
            lambda rows: (_added_up(rows) if by_spark else rows).foreachPartition(send),
            lambda: _redis_totals(*at),
            warm=by_spark,
        )


def _added_up(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(F.sum("minutes").alias("minutes"), F.sum("miles").alias("miles"))


# Databases, through JDBC.


def _appended(url: str, kind: str, **properties: str) -> Callable[[DataFrame], None]:
    given = {"driver": DRIVERS[kind][1], "batchsize": BATCH_ROWS, **properties}

    def append(rows: DataFrame) -> None:
        rows.write.jdbc(url, TABLE, mode="append", properties=given)

    return append


@contextmanager
def _sqlite(_bench: Bench) -> Iterator[Place | None]:
    """One task writes: SQLite has one writer."""
    if not (JARS / DRIVERS["sqlite"][0]).exists():
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flights.db"
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"CREATE TABLE {TABLE} (key TEXT, minutes INTEGER, miles INTEGER)")
        connection.close()
        append = _appended(f"jdbc:sqlite:{file}", "sqlite")

        def totals() -> pa.Table:
            with sqlite3.connect(file) as connection:
                found = connection.execute(ADD_UP).fetchall()
            connection.close()
            columns = map(pa.array, zip(*found, strict=True))
            return ordered(pa.table(list(columns), names=TOTALS.names))

        yield Place(lambda rows: append(rows.coalesce(1)), totals)


@contextmanager
def _postgres(bench: Bench) -> Iterator[Place | None]:
    binaries = sorted(SERVERS.glob("*/bin/initdb"))
    user = _unprivileged()
    if not (JARS / DRIVERS["postgres"][0]).exists() or not binaries or user is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        shutil.chown(folder, user)
        with _postgres_server(binaries[-1].parent, Path(folder), user) as port:
            url = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
            properties = {"user": user, "reWriteBatchedInserts": "true"}

            def totals() -> pa.Table:
                given = {"driver": DRIVERS["postgres"][1], **properties}
                found = bench.spark.read.jdbc(url, f"({ADD_UP}) AS t", properties=given)
                return ordered(found.toArrow())

            yield Place(_appended(url, "postgres", **properties), totals)


@contextmanager
def _postgres_server(binaries: Path, folder: Path, user: str) -> Iterator[str]:
    """A server that keeps to its defaults, fsync among them. Gives its port."""
    data = folder / "data"
    how: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL}
    if os.geteuid() == 0:
        how |= {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    make = [str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", user]
    subprocess.run(make, check=True, **how)
    port = free_addresses(1)[0].split(":")[1]
    command = [str(binaries / "postgres"), "-D", str(data), "-p", port, "-k", str(folder)]
    command += ["-c", "listen_addresses=127.0.0.1"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **how) as server:
        try:
            ready = [str(binaries / "pg_isready"), "-h", "127.0.0.1", "-p", port]
            until = time.monotonic() + START_S
            while subprocess.run(ready, stdout=subprocess.DEVNULL, check=False).returncode:
                assert server.poll() is None, "postgres has ended"
                assert time.monotonic() < until, "postgres does not answer"
                time.sleep(0.1)
            yield port
        finally:
            server.terminate()


def _unprivileged() -> str | None:
    """Who may run a database here."""
    if os.geteuid():
        return pwd.getpwuid(os.geteuid()).pw_name
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in UNPRIVILEGED if name in known), None)


PLACES: Final[dict[str, Callable[[Bench], AbstractContextManager[Place | None]]]] = {
    "redis, in memory": lambda _: _redis(durable=False),
    "redis, appendfsync always": lambda _: _redis(durable=True),
    "groupBy, then redis, appendfsync always": lambda _: _redis(durable=True, by_spark=True),
    "sqlite (WAL), JDBC append": _sqlite,
    "postgres, JDBC append": _postgres,
}
"""By what they are called; None if this machine lacks them."""
