"""A program whose clients come to exist several times; prints what each way has led to, as JSON.

Each way has a key of its own, which every copy counts up `TIMES` times. The total must be that of
all copies, and no reply may be that to another request.
"""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from ringpop_py import Client, KeyspaceClient
from ringpop_py.route.proxy.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

COPIES: Final = 3
TIMES: Final = 40


def work(client: Client, keyspace: KeyspaceClient, way: str) -> int:
    """Count *way* up, and return how many replies were wrong."""
    me = f"{os.getpid()}-{threading.get_ident()}"
    wrong = 0
    for number in range(TIMES):
        mine = f"{way}-{me}-{number}"
        keyspace.update(way, "add", 1)
        keyspace.put(mine, number)
        wrong += keyspace.get(mine) != number
        reply = client.proxy(mine, Request("/who", mine.encode()))
        wrong += reply.body.split()[1:] != [mine.encode(), mine.encode()]
    return wrong


def forked(client: Client, keyspace: KeyspaceClient, way: str) -> int:
    """Work in forks of this process, and here at the same time; return how many were wrong."""
    children = []
    for _ in range(COPIES - 1):
        pid = os.fork()
        if not pid:
            code = 99
            try:
                code = min(work(client, keyspace, way), 98)
            finally:
                os._exit(code)
        children.append(pid)
    wrong = work(client, keyspace, way)
    return wrong + sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)


def unpickled(packed: bytes, way: str) -> int:
    """Work with what *packed* has."""
    client, keyspace = pickle.loads(packed)  # noqa: S301 - our own
    return work(client, keyspace, way)


def spawned(client: Client, keyspace: KeyspaceClient, way: str) -> int:
    """Work in processes that were spawned with pickled copies."""
    packed = pickle.dumps((client, keyspace))
    with multiprocessing.get_context("spawn").Pool(COPIES) as pool:
        return sum(pool.starmap(unpickled, [(packed, way)] * COPIES))


def copied(client: Client, keyspace: KeyspaceClient, way: str) -> int:
    """Work with copies in this process."""
    pairs = [
        (client, keyspace),
        (copy.copy(client), copy.copy(keyspace)),
        copy.deepcopy((client, keyspace)),
    ]
    return sum(work(*pair, way) for pair in pairs)


def threaded(client: Client, keyspace: KeyspaceClient, way: str) -> int:
    """Work in threads that share both."""
    with ThreadPoolExecutor(COPIES) as pool:
        return sum(pool.map(lambda _: work(client, keyspace, way), range(COPIES)))


WAYS: Final[dict[str, Callable[[Client, KeyspaceClient, str], int]]] = {
    "forked": forked,
    "spawned": spawned,
    "copied": copied,
    "threaded": threaded,
}


def main(peer: str) -> None:
    """Go all ways, with clients that are connected and with some that are not."""
    found = {}
    for connected in (True, False):
        for name, way in WAYS.items():
            key = f"{name}-{connected}"
            with Client(peer) as client, KeyspaceClient(client, "k") as keyspace:
                if connected:
                    keyspace.put(f"before {key}", 1)
                wrong = way(client, keyspace, key)
                found[key] = [keyspace.get(key), wrong]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
