"""The memory of a node under adds, by hand: ``python -m tests.soak.memory``.

One daemon with a store, and processes of clients that add to random keys as fast as they can. Each
minute it prints what the daemon holds. The command fails if that still grows after `SETTLED_S`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from tests.e2e.local_cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.synchronize import Event

    from ringpop_py.base.address import Address

KEYSPACE: Final = "soak"
PARTITIONS: Final = 256
PARTITIONS_NAMED: Final = 2
"""So few that each knows as many operation ids as it can (`SOURCES_MAX`) before `SETTLED_S`, if the
store is in memory, as with ``--folder /dev/shm``."""
KEYS: Final = 50_000
GROUP: Final = 100
CLIENTS: Final = 2
SETTLED_S: Final = 180.0
LOOKS: Final = 10
"""The looks, a second apart, of which the least counts: making a checkpoint takes memory."""
GROWTH_MAX: Final = 1.05
"""How much larger the node may be at the end than at `SETTLED_S`."""
WAYS: Final = {
    "groups": f"{GROUP} adds a call, with ids of the client",
    "single": "one add a call",
    "named": "one add a call, each under a new operation id, and checkpoints each second",
}


def memory_mb(pid: int) -> float:
    """Return what the process *pid* holds in memory."""
    fields = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    (kilobytes,) = (line.split()[1] for line in fields if line.startswith("VmRSS:"))
    return int(kilobytes) / 1024


def add(peer: Address, way: str, seed: int, stop: Event, done: Sequence[int]) -> None:
    """Add to random keys until *stop*; count in ``done[seed]``."""
    rng = random.Random(seed)
    with Client(peer) as client, KeyspaceClient(client, KEYSPACE) as keyspace:
        for number in count():
            if stop.is_set():
                return
            size = GROUP if way == "groups" else 1
            changes = [(f"key-{rng.randrange(KEYS)}", "add", 1) for _ in range(size)]
            operation_id = f"{seed}-{number}" if way == "named" else None
            keyspace.update_many(changes, operation_id=operation_id)
            done[seed] += size  # type: ignore[index] # an array that the processes share


def main(argv: Sequence[str] | None = None) -> int:
    """Run the soak; see ``--help``."""
    parser = argparse.ArgumentParser(description="Print the memory of a node under adds.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    text = "; ".join(f"{way}: {what}" for way, what in WAYS.items())
    parser.add_argument("--way", choices=WAYS, default="groups", help=f"{text} (groups)")
    parser.add_argument("--folder", help="where the store is made (the system's for such files)")
    options = parser.parse_args(argv)
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        flags = ("--preset", "local", "--store", f"{folder}/store")
        with LocalCluster(Path(folder), 1, *flags) as cluster:
            cluster.wait_converged()
            (node,) = cluster.nodes
            assert node.process is not None
            definition = {"name": KEYSPACE, "partitions": PARTITIONS}
            if options.way == "named":
                definition |= {"partitions": PARTITIONS_NAMED, "checkpoint_interval_s": 1.0}
            node.admin("/admin/keyspaces/create", definition)
            stop, done = spawn.Event(), spawn.Array("q", CLIENTS, lock=False)
            clients = [
                spawn.Process(target=add, args=(node.address, options.way, seed, stop, done))
                for seed in range(CLIENTS)
            ]
            for client in clients:
                client.start()
            try:
                held = _watch(node.process.pid, options.minutes * 60, done)
            finally:
                stop.set()
                for client in clients:
                    client.join(30)
    grown = held[-1][1] / next(mb for at_s, mb in held if at_s >= min(SETTLED_S, held[-1][0]))
    print(f"after {SETTLED_S / 60:.0f} minutes: times {grown:.3f} (at most {GROWTH_MAX})")
    return int(grown > GROWTH_MAX)


def _watch(pid: int, seconds: float, done: Sequence[int]) -> list[tuple[float, float]]:
    began_at, before = time.monotonic(), 0
    held: list[tuple[float, float]] = []
    while not held or held[-1][0] < seconds:
        time.sleep(min(60.0, seconds) - LOOKS)
        least_mb = memory_mb(pid)
        for _ in range(LOOKS):
            time.sleep(1.0)
            least_mb = min(least_mb, memory_mb(pid))
        at_s, total = time.monotonic() - began_at, sum(done)
        held.append((at_s, least_mb))
        print(
            f"{at_s / 60:5.1f} min  {held[-1][1]:7.1f} MB  {total:>12,} adds"
            f"  {(total - before) / min(60.0, seconds):>8,.0f}/s",
            flush=True,
        )
        before = total
    return held


if __name__ == "__main__":
    sys.exit(main())
