"""The changes of keys as server-sent events: what comes, from where, and how it ends."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest
import trio

from ringpop_py import Address, Config, WatchGap, open_ringpop
from ringpop_py.edge.web import changes, pages, server
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.watch import recent
from ringpop_py.state.watch.watch import AsyncChanges
from tests.edge.web.test_metrics import value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.watch.course import KeyChange

CHANGES = "/keyspaces/k/changes"


class Event(NamedTuple):
    """One event, or what stands between empty lines without one."""

    name: str
    id: str
    data: dict[str, Any]


class Node(NamedTuple):
    ringpop: Ringpop
    keyspace: Keyspace
    http: httpx.AsyncClient


@asynccontextmanager
async def a_node() -> AsyncIterator[Node]:
    """A node with a keyspace "k", and a caller of its port."""
    config = Config(http=Address("127.0.0.1", 0), store="memory:")
    async with open_ringpop(config, store=MemoryStore()) as node:
        keyspace = await node.open_keyspace("k", partitions=4)
        async with httpx.AsyncClient(base_url=f"http://{node.http_address}") as http:
            yield Node(node, keyspace, http)


@asynccontextmanager
async def events_of(
    http: httpx.AsyncClient, path: str = CHANGES, after: str = "", **params: str
) -> AsyncIterator[trio.MemoryReceiveChannel[Event]]:
    """The events of a stream, while it lasts."""
    send, receive = trio.open_memory_channel[Event](1_000)
    headers = {"Last-Event-ID": after} if after else {}

    async def read() -> None:
        found: dict[str, str] = {}
        with send:
            async with http.stream("GET", path, params=params or None, headers=headers) as stream:
                assert stream.is_success, await stream.aread()
                assert stream.headers["content-type"].startswith("text/event-stream")
                async for line in stream.aiter_lines():
                    name, _, text = line.partition(": ")
                    if line:
                        found[name] = text
                        continue
                    if "id" in found or "event" in found:
                        data = json.loads(found.get("data", "{}"))
                        send.send_nowait(Event(found.get("event", ""), found.get("id", ""), data))
                    found = {}

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            yield receive
            nursery.cancel_scope.cancel()


async def test_each_change_is_an_event_and_its_id_is_a_position() -> None:
    async with a_node() as (_, keyspace, http):
        await keyspace.put("u/0", {"a": [1, None]})
        async with events_of(http, prefix="u/", existing="") as events:
            put = await events.receive()
            await keyspace.put("other", 1)
            await keyspace.put("u/0", b"\0")
            of_bytes = await events.receive()
            await keyspace.delete("u/0")
            deleted = await events.receive()
        assert (put.name, put.data) == ("put", {"key": "u/0", "value": {"a": [1, None]}})
        assert of_bytes.data.pop("message").startswith("the value contains bytes")
        assert of_bytes.data == {"key": "u/0", "error": "NotAcceptable", "status": 406}
        assert (deleted.name, deleted.data) == ("delete", {"key": "u/0"})

        # A browser that connects again repeats the query.
        async with events_of(http, f"{CHANGES}?after={put.id}&key=u/0", of_bytes.id) as events:
            assert (await events.receive()).data == deleted.data
        async with events_of(http, f"{CHANGES}?after={of_bytes.id}&key=u/0") as events:
            assert (await events.receive()).data == deleted.data


async def test_what_is_refused_is_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "KEPT_MAX", 2)
    async with a_node() as (node, keyspace, http):
        await node.open_keyspace("m", partitions=4, mode="memory")
        async with events_of(http, key="k") as events:
            first = await events.receive()
        for number in range(5):
            await keyspace.put("k", number)

        answers = {
            "gone": await http.get(CHANGES, params={"key": "k", "after": first.id}),
            "memory": await http.get("/keyspaces/m/changes"),
            "unknown": await http.get("/keyspaces/none/changes"),
            "position": await http.get(CHANGES, headers={"Last-Event-ID": "x"}),
            "both": await http.get(CHANGES, params={"key": "k", "prefix": "k"}),
            "misnamed": await http.get(CHANGES, params={"since": "1"}),
        }
        monkeypatch.setattr(changes, "STREAMS_MAX", 0)
        answers["many"] = await http.get(CHANGES)

        assert {name: (a.status_code, a.json()["error"]) for name, a in answers.items()} == {
            "gone": (410, "WatchGap"),
            "memory": (400, "BadOperation"),
            "unknown": (404, "KeyspaceUnknown"),
            "position": (400, "BadRequest"),
            "both": (400, "BadRequest"),
            "misnamed": (400, "BadRequest"),
            "many": (503, "Busy"),
        }
        assert value(node, "ringpop_watch_gaps_total", keyspace="k") == 1


async def test_the_id_of_a_quiet_stream_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "KEEP_ALIVE_S", 0.05)
    async with a_node() as (node, keyspace, http):
        async with events_of(http, prefix="u/") as events:
            first = await events.receive()
            await keyspace.put("other", 1)
            while (quiet := await events.receive()).id == first.id:
                pass
        assert (quiet.name, quiet.data) == ("", {})
        async with events_of(http, after=quiet.id) as events:
            await events.receive()
            await keyspace.put("u/1", 2)
            while not (event := await events.receive()).name:
                pass
            assert event.data == {"key": "u/1", "value": 2}
        assert value(node, "ringpop_changes_sent_total", keyspace="k") == 1


async def test_watchers_that_wait_are_counted() -> None:
    async with a_node() as (node, _, http):
        assert value(node, "ringpop_watches", keyspace="k") == 0
        async with events_of(http), events_of(http, key="k"):
            while value(node, "ringpop_watches", keyspace="k") < 2:
                await trio.sleep(0.01)


@pytest.mark.parametrize("how", ["gap", "drop", "drain", "end"])
async def test_a_stream_says_why_it_ends(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LOOK_S", 0.01)
    some = AsyncChanges.some

    async def gone(self: AsyncChanges, wait_s: float) -> list[KeyChange]:
        if wait_s:
            raise WatchGap("read again")
        return await some(self, wait_s)

    async with a_node() as (node, _, http):
        if how == "gap":
            monkeypatch.setattr(AsyncChanges, "some", gone)
        async with events_of(http) as events:
            await events.receive()
            if how == "drop":
                await node.keyspaces.drop("k")
            elif how == "drain":
                node.drain()
            elif how == "end":
                await node.end()  # which waits for requests, and not for streams
            found = [event async for event in events]
        said = [(event.name, event.data["error"], event.data["status"]) for event in found]
        expected = {"gap": ("gap", "WatchGap", 410), "drop": ("end", "KeyspaceUnknown", 404)}
        assert said == ([expected[how]] if how in expected else [])


async def test_a_reader_that_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNREAD_MS_MAX", 500)
    async with a_node() as (node, keyspace, http):
        address = node.http_address
        assert address is not None
        stream = await trio.open_tcp_stream(*address)
        async with stream:
            await stream.send_all(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % CHANGES.encode())
            assert b"200" in await stream.receive_some()
            with trio.fail_after(20):
                while node.ending.http[0].under_way:
                    await keyspace.put("k", "x" * 200_000)
                    await trio.sleep(0.01)
        assert (await http.get("/keyspaces/k/keys/k")).is_success


class _Limits:
    """Limits that note what counts."""

    def __init__(self) -> None:
        self.noted: list[int] = []

    def why_over(self, _identity: object, _now: float, *_parts: bytes) -> str:
        return ""

    def note_bytes(self, _identity: object, count: int, _now: float) -> None:
        self.noted.append(count)


async def test_the_bytes_of_a_stream_count_for_its_reader() -> None:
    async with a_node() as (node, keyspace, http):
        limits: Any = _Limits()
        node.channel.handlers.limits = limits
        async with events_of(http) as events:
            await events.receive()
            before = sum(limits.noted)
            await keyspace.put("k", "x" * 10_000)
            await events.receive()
            assert sum(limits.noted) - before > 10_000
