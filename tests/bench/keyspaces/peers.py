"""Puts on one node, beside products that keep keys durably: Redis, SQLite and diskcache.

All on the same folder, in turns, each synced before it answers. Redis is a process of its own, and
is asked over a socket; the others live in the caller's process, as the keyspace does here.
"""

from __future__ import annotations

import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_demo.cluster import free_ports
from ringpop_py import Address
from tests.bench.keyspaces.nodes import a_keyspace, keys_of
from tests.bench.report import larger_is_better, without_peer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from tests.bench.report import Row

PARTITIONS: Final = 64
BATCHES: Final = (1, 100, 1_000)
ROUNDS: Final = 7
ROUND_S: Final = 0.4
START_S: Final = 10.0

Entries = list[tuple[str, str]]
Put = Callable[[Entries], object]
"""Puts all entries as one group, durably."""


def peers(folder: Path) -> Iterator[Row]:
    """One caller, who puts one key at a time, or 100, or 1,000 of one partition together."""
    yield from trio.run(_peers, folder)


async def _peers(folder: Path) -> list[Row]:
    rows: list[Row] = []
    with ExitStack() as stack:
        puts: dict[str, Put | None] = {}
        for name, peer in PEERS.items():
            here = folder / name.split(maxsplit=1)[0]
            here.mkdir()
            puts[name] = stack.enter_context(peer(here)) if _is_there(name) else None
        async with a_keyspace(folder / "ours", PARTITIONS) as keyspace:
            keys = keys_of(keyspace, 0, max(BATCHES))
            for size in BATCHES:
                rows += await _rows(keyspace, keys[:size], puts)
    return rows


def _is_there(name: str) -> bool:
    kind = name.split(maxsplit=1)[0]
    if kind == "redis" and shutil.which("redis-server") is None:
        return False
    return find_spec({"sqlite": "sqlite3"}.get(kind, kind)) is not None


async def _rows(keyspace: Keyspace, keys: Sequence[str], puts: dict[str, Put | None]) -> list[Row]:
    there = {name: put for name, put in puts.items() if put is not None}
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in there}
    for _ in range(ROUNDS):
        ours.append(await _rate_of_ours(keyspace, keys))
        for name, put in there.items():
            theirs[name].append(_rate_of(put, keys))
    title = f"state.puts.batches_of_{len(keys)}"
    rate = median(ours)
    return [
        larger_is_better(title, rate, "1/s", name, median(theirs[name]))
        if name in theirs
        else without_peer(title, rate, "1/s", name)
        for name in puts
    ]


async def _rate_of_ours(keyspace: Keyspace, keys: Sequence[str]) -> float:
    done, began_at = 0, perf_counter()
    while perf_counter() - began_at < ROUND_S:
        await keyspace.update_many([(key, "put", value) for key, value in _entries(keys, done)])
        done += len(keys)
    return done / (perf_counter() - began_at)


def _rate_of(put: Put, keys: Sequence[str]) -> float:
    done, began_at = 0, perf_counter()
    while perf_counter() - began_at < ROUND_S:
        put(_entries(keys, done))
        done += len(keys)
    return done / (perf_counter() - began_at)


def _entries(keys: Sequence[str], turn: int) -> Entries:
    """Other values each turn: who finds what is there already may write nothing."""
    value = f"{turn:064}"
    return [(key, value) for key in keys]


@contextmanager
def redis_server(folder: Path, *, durable: bool = True) -> Iterator[Address]:
    """Where a Redis answers; if *durable*, with ``appendfsync always`` and a file in *folder*."""
    address = Address("127.0.0.1", free_ports(1)[0])
    command = ["redis-server", "--port", str(address.port), "--bind", address.host]
    command += ["--dir", str(folder), "--save", ""]
    if durable:
        command += ["--appendonly", "yes", "--appendfsync", "always"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            _wait_for(address)
            yield address
        finally:
            server.kill()


@contextmanager
def _redis(folder: Path) -> Iterator[Put]:
    """A group is a pipeline."""
    redis = import_module("redis")
    with redis_server(folder) as address:
        client = redis.Redis(address.host, address.port)

        def put(entries: Entries) -> None:
            with client.pipeline(transaction=False) as pipeline:
                for key, value in entries:
                    pipeline.set(key, value)
                pipeline.execute()

        yield put


def _wait_for(address: Address) -> None:
    """Return once something listens at *address*."""
    until = perf_counter() + START_S
    while True:
        try:
            socket.create_connection(address).close()
        except OSError:
            if perf_counter() > until:
                raise
            time.sleep(0.01)
        else:
            return


@contextmanager
def _sqlite(folder: Path) -> Iterator[Put]:
    """A write-ahead log, and ``synchronous=FULL``; a group is a transaction."""
    connection = sqlite3.connect(folder / "keys.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
    command = "INSERT INTO entries VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"

    def put(entries: Entries) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(command, entries)
        connection.execute("COMMIT")

    try:
        yield put
    finally:
        connection.close()


@contextmanager
def _diskcache(folder: Path) -> Iterator[Put]:
    """``synchronous=FULL``; a group is a transaction."""
    diskcache = import_module("diskcache")
    with diskcache.Cache(str(folder), sqlite_synchronous=2) as cache:

        def put(entries: Entries) -> None:
            with cache.transact():
                for key, value in entries:
                    cache.set(key, value)

        yield put


PEERS: Final[dict[str, Callable[[Path], AbstractContextManager[Any]]]] = {
    "redis (appendfsync always)": _redis,
    "sqlite (WAL, synchronous FULL)": _sqlite,
    "diskcache (synchronous FULL)": _diskcache,
}
"""By name; the first word is what has to be installed."""
