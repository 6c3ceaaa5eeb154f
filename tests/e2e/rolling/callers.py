"""Who calls while daemons are restarted: each way in, as an application would use it.

What certainly did not run is sent again, elsewhere. Anything else that goes wrong is an error.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx
import pyarrow as pa
import trio

from ringpop_py import Client, JobClient, KeyspaceClient, Request
from ringpop_py.base.errors import CallError, RingpopError
from ringpop_py.base.values.packed import encode_value
from ringpop_py.state.placement.keys import partition_of
from ringpop_py.state.rows.stagefile import Chunk, encode_stage
from tests.e2e.rolling.app import KEYSPACE, PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py import Address
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.actors.actors import Actors
    from ringpop_py.state.keyspaces.keyspace import Keyspace

CALL_S = 30.0
PAUSE_S = 0.03
"""Between the calls of those whose calls are quick."""
UNAVAILABLE = 503


@dataclass
class Tally:
    """What callers of one way in were told.

    Attributes:
        moved: how often a call was sent to another daemon, because it had not run.
        answered: how often each key, or each id, was answered; what took effect must agree.
    """

    calls: int = 0
    moved: int = 0
    slowest_s: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)

    def note(self, what: str, began: float, error: Exception | None = None) -> None:
        self.calls += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        if error is None:
            self.answered[what] += 1
        else:
            self.errors[f"{type(error).__name__}: {error}"] += 1


class Callers:
    """*each* callers of each kind, of daemons at *peers* and their HTTP sides at *urls*."""

    def __init__(self, peers: Sequence[Address], urls: Sequence[str], each: int) -> None:
        self.stop = threading.Event()
        self.tallies: dict[str, Tally] = {}
        self._peers = peers
        self._urls = urls
        self._each = each
        self._ids = itertools.count()

    def tally(self, way: str) -> Tally:
        return self.tallies.setdefault(way, Tally())

    def new_id(self) -> str:
        return f"id-{next(self._ids)}"

    # Programs without trio, each in a thread.

    def threads(self) -> list[threading.Thread]:
        """The callers that are no members, not started."""
        ways: dict[str, Callable[[Tally, int], None]] = {
            "Client.proxy": self._call_by_client,
            "KeyspaceClient.update": self._update_by_client,
            "HTTP": self._update_by_http,
        }
        threads = [
            threading.Thread(target=caller, args=(self.tally(way), number), name=f"{way} {number}")
            for way, caller in ways.items()
            for number in range(self._each)
        ]
        threads.append(threading.Thread(target=self._commit_jobs, args=(self.tally("JobClient"),)))
        return threads

    def _call_by_client(self, tally: Tally, number: int) -> None:
        clients = [Client(peer, timeout_s=CALL_S) for peer in self._peers]
        at = number
        while not self.stop.is_set():
            call_id, began = self.new_id(), time.monotonic()
            while True:
                try:
                    client = clients[at % len(clients)]
                    client.proxy(f"key-{call_id}", Request("/slow", call_id.encode()))
                except RingpopError as error:
                    if isinstance(error, CallError) and error.took_effect == "no":
                        at, tally.moved = at + 1, tally.moved + 1
                        time.sleep(0.02)
                        continue
                    tally.note(call_id, began, error)
                else:
                    tally.note(call_id, began)
                break
        for client in clients:
            client.close()

    def _update_by_client(self, tally: Tally, number: int) -> None:
        peer = self._peers[number % len(self._peers)]
        with Client(peer, timeout_s=CALL_S) as client, KeyspaceClient(client, KEYSPACE) as keyspace:
            for turn in itertools.count():
                if self.stop.wait(PAUSE_S):
                    return
                key, began = f"client-{number}-{turn % 50}", time.monotonic()
                try:
                    keyspace.update(key, "count")
                except RingpopError as error:
                    tally.note(key, began, error)
                else:
                    tally.note(key, began)

    def _update_by_http(self, tally: Tally, number: int) -> None:
        at = number
        with httpx.Client(timeout=CALL_S) as http:
            for turn in itertools.count():
                if self.stop.wait(PAUSE_S):
                    return
                key, began = f"http-{number}-{turn % 50}", time.monotonic()
                headers = {"operation-id": self.new_id()}
                while True:
                    url = (
                        f"{self._urls[at % len(self._urls)]}/keyspaces/{KEYSPACE}/keys/{key}/count"
                    )
                    try:
                        response = http.post(url, headers=headers)
                    except httpx.ConnectError:
                        at, tally.moved = at + 1, tally.moved + 1
                        continue
                    except httpx.HTTPError as error:
                        tally.note(key, began, error)
                        break
                    if response.status_code == UNAVAILABLE:
                        at, tally.moved = at + 1, tally.moved + 1
                        continue
                    failed = None if response.is_success else RuntimeError(response.text)
                    tally.note(key, began, failed)
                    break

    def _commit_jobs(self, tally: Tally) -> None:
        """Jobs that add 1 to each of some keys."""
        keys = [f"job-{number}" for number in range(100)]
        file = _adding_file(keys)
        for turn in itertools.count():
            if self.stop.wait(PAUSE_S):
                return
            began = time.monotonic()
            try:
                with (
                    Client(self._peers[turn % len(self._peers)], timeout_s=CALL_S) as client,
                    JobClient(client, KEYSPACE, f"job-{turn}", peers=self._peers) as job,
                ):
                    attempt = job.attempt("one")
                    attempt.stage(file)
                    attempt.finish()
                    job.commit(["one"])
                    job.apply(timeout_s=CALL_S)
            except RingpopError as error:
                tally.note("jobs", began, error)
            else:
                tally.note("jobs", began)

    # A member of the cluster that owns nothing itself.

    async def call_from_a_member(self, ringpop: Ringpop, actors: Actors[int, int]) -> None:
        """Call until cancelled, each way in that a member has."""
        keyspace = await ringpop.open_keyspace(KEYSPACE)
        async with trio.open_nursery() as nursery:
            for number in range(self._each):
                tally = self.tally("keyspace.update")
                nursery.start_soon(self._update, keyspace, f"member-{number}", tally)
            for number in range(2 * self._each):
                nursery.start_soon(self._forward, ringpop, self.tally("handle_or_proxy"))
                nursery.start_soon(self._ask, actors, f"actor-{number}", self.tally("actors.ask"))

    async def _forward(self, ringpop: Ringpop, tally: Tally) -> None:
        while not self.stop.is_set():
            call_id, began = self.new_id(), time.monotonic()
            try:
                await ringpop.handle_or_proxy(call_id, Request("/slow", call_id.encode()))
            except RingpopError as error:
                tally.note(call_id, began, error)
            else:
                tally.note(call_id, began)

    async def _ask(self, actors: Actors[int, int], key: str, tally: Tally) -> None:
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                await actors.ask(key, 1, timeout_s=CALL_S)
            except RingpopError as error:
                tally.note(key, began, error)
            else:
                tally.note(key, began)

    async def _update(self, keyspace: Keyspace, prefix: str, tally: Tally) -> None:
        for turn in itertools.count():
            if self.stop.is_set():
                return
            key, began = f"{prefix}-{turn % 50}", time.monotonic()
            try:
                await keyspace.update(key, "count", timeout_s=CALL_S)
            except RingpopError as error:
                tally.note(key, began, error)
            else:
                tally.note(key, began)
            await trio.sleep(PAUSE_S)


def _adding_file(keys: Sequence[str]) -> bytes:
    """A stage file that adds 1 to each of *keys*."""
    parts: dict[int, list[str]] = {}
    for key in keys:
        parts.setdefault(partition_of(key, PARTITIONS), []).append(key)
    one = encode_value("msgpack", 1)
    chunks = [
        Chunk(number, pa.array(some), pa.array([one] * len(some))) for number, some in parts.items()
    ]
    return encode_stage("add", chunks)
