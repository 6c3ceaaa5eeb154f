"""What keys cost: requests and answers with TLS against those without, and handshakes.

Each server and each client is a process of its own: ``python -m tests.bench.security MODE …``.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.address import Address
from ringpop_py.client.lines.trust import KEY_VARIABLE
from ringpop_py.net.security.credentials import KeyCredentials, member_credentials
from ringpop_py.net.security.keys import new_key, write_keys
from ringpop_py.net.transport.tcp import TcpNetwork
from ringpop_py.net.transport.tls import TlsNetwork
from tests.bench import rpc
from tests.bench.report import Row, larger_is_better, smaller_is_better
from tests.bench.sides import python_side
from tests.e2e.local_cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGETS: Final = {1: 0.5, 16: 0.7, 64: 0.8}
"""The least ratio to calls without keys, by callers."""
KEY_FILE: Final = "BENCH_CLUSTER_KEY"
HANDSHAKES: Final = 200
NODES: Final = 5
KILLS: Final = 5
SEEN_FACTOR: Final = 1.2
"""How much longer a kill may go unseen with keys."""
PLAIN: Final = "without keys"


def run() -> Iterator[Row]:
    """The rows of `security`."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = str(Path(folder) / "key")
        write_keys(path, (new_key(),), replace=False)
        plain = python_side("tests.bench.rpc", "server", "client")
        secured = python_side("tests.bench.security", "server", "client")
        secured = secured._replace(environment={KEY_FILE: path})
        for callers, target in TARGETS.items():
            ours, theirs = rpc.measured_in_turns([secured, plain], callers)
            name = f"security.round_trips.{callers}_callers"
            yield larger_is_better(name, ours.rate, "1/s", PLAIN, theirs.rate, target)
        rate = _handshakes(member_credentials(path, "bench", "bench"))
        yield Row("security.handshakes", rate, "1/s")
        seen: dict[str, list[float]] = {path: [], "": []}
        for turn in range(KILLS):
            for key, times in seen.items():
                times.append(_seen_s(Path(folder) / f"{turn}{len(key)}", key))
        with_key, without = (1_000 * median(times) for times in seen.values())
        name = f"security.kill_seen.{NODES}_nodes"
        yield smaller_is_better(name, with_key, "ms", PLAIN, without, 1 / SEEN_FACTOR)


def _seen_s(folder: Path, key: str) -> float:
    """Seconds from kill -9 of one of `NODES` nodes until all others know."""
    flags = ["--cluster-key", key] if key else []
    os.environ[KEY_VARIABLE] = key  # for the clients that ask
    with LocalCluster(folder, NODES, *flags) as cluster:
        cluster.wait_converged()
        *others, killed = cluster.nodes
        for node in others:
            node.statuses()  # connects
        began = perf_counter()
        killed.kill()
        cluster.wait_status(killed, {"faulty"}, *others)
        return perf_counter() - began


def _handshakes(credentials: KeyCredentials) -> float:
    """How many handshakes a second one process makes, both ends together."""
    began = perf_counter()
    for _ in range(HANDSHAKES):
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [
            credentials.context(server=False).wrap_bio(back, there, server_side=False),
            credentials.context(server=True).wrap_bio(there, back, server_side=True),
        ]
        while ends:
            for end in list(ends):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                ends.remove(end)
    return HANDSHAKES / (perf_counter() - began)


def _network() -> TlsNetwork:
    return TlsNetwork(TcpNetwork(), member_credentials(os.environ[KEY_FILE], "bench", "bench"))


def _main(mode: str, *rest: str) -> None:
    match mode:
        case "server":
            trio.run(rpc.serve, _network())
        case "client":
            to, callers, seconds = rest
            trio.run(rpc.call, Address.parse(to), int(callers), float(seconds), _network())
        case _:
            sys.exit(f"there is no mode {mode}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
