"""A connection that the calls of an event loop share."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from ringpop_py import AsyncClient
from ringpop_py.base.errors import (
    CallError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    PeerDeclined,
    TooManyInFlight,
)
from ringpop_py.client.lines import anyio_line, asyncio_line, concurrent
from tests.client.lines.daemon import (
    ECHO,
    WAIT,
    Asked,
    End,
    a_daemon,
    call_of,
    in_each_loop,
    is_at_rest,
    line_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ABC = (b"a", b"b", b"c")


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (anyio_line, asyncio_line):
        monkeypatch.setattr(module, "GRACE_S", 0.0)


@pytest.mark.parametrize("is_unix", [True, False])
@in_each_loop
async def test_calls_at_the_same_time_share_a_connection(tmp_path: Path, *, is_unix: bool) -> None:
    bodies = [b"%d" % number for number in range(100)]
    async with a_daemon(tmp_path / "sock" if is_unix else None) as (daemon, client):
        async with anyio.create_task_group() as tasks:
            asked = Asked(client, tasks)
            for body in bodies:
                asked.ask(body)
            await daemon.until(lambda: len(daemon.waiting) == 100)
            large = b"x" * 300_000
            assert (await client.call(call_of(large))).arg3 == large
            for body in reversed(bodies):
                await daemon.waiting[body]()
        assert asked.ends == {body: body for body in bodies}
        assert len(daemon.ends) == 1
        assert is_at_rest(client)


@pytest.mark.parametrize("cancelled", ABC)  # under trio, one of them reads for all
@in_each_loop
async def test_a_call_that_is_cancelled_ends_at_the_daemon_and_leaves_the_others_alone(
    cancelled: bytes,
) -> None:
    async with a_daemon() as (daemon, client):
        async with anyio.create_task_group() as tasks:
            asked = Asked(client, tasks)
            for body in ABC:
                asked.ask(body)
                await daemon.until(partial(daemon.waiting.__contains__, body))
            asked.scopes[cancelled].cancel()
            await daemon.until(lambda: daemon.cancelled)
            for answer in daemon.waiting.values():  # that of the cancelled one comes too late
                await answer()
        assert asked.ends == {body: body for body in ABC if body != cancelled}
        assert daemon.cancelled == [cancelled]
        assert is_at_rest(client)
        assert (await client.call(call_of(b"d"))).arg3 == b"d"
        assert len(daemon.ends) == 1


@in_each_loop
async def test_when_all_are_cancelled_nothing_is_left() -> None:
    async with a_daemon() as (daemon, client):
        async with anyio.create_task_group() as tasks:
            asked = Asked(client, tasks)
            for body in ABC:
                asked.ask(body)
            await daemon.until(lambda: len(daemon.waiting) == 3)
            tasks.cancel_scope.cancel()
        await daemon.until(lambda: len(daemon.cancelled) == 3)
        assert is_at_rest(client)


@in_each_loop
async def test_a_call_that_is_begun_and_closed_ends_at_the_daemon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_daemon() as (daemon, client):
        wanted = await client.begin(call_of(b"a", WAIT))
        other = await client.begin(call_of(b"b", WAIT), more=True)
        await daemon.until(lambda: len(daemon.waiting) == 2)
        await wanted.aclose()
        await wanted.aclose()
        await daemon.until(lambda: daemon.cancelled)
        await daemon.waiting[b"b"]()
        assert (await other.result()).arg3 == b"b"
        assert daemon.cancelled == [b"a"]
        assert is_at_rest(client)
    assert [record for record in caplog.records if record.name == "asyncio"] == []


@in_each_loop
async def test_a_call_cancelled_while_it_connects_does_not_hinder_the_others() -> None:
    async with a_daemon() as (daemon, client):
        async with anyio.create_task_group() as tasks:
            asked = Asked(client, tasks)
            asked.ask(b"a", ECHO)
            await daemon.until(lambda: daemon.ends)
            for body in (b"b", b"c"):
                asked.ask(body, ECHO)
            asked.scopes[b"a"].cancel()
        assert {asked.ends.get(body) for body in (b"b", b"c")} == {b"b", b"c"}


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("slow", [b"a", b"b"])
@in_each_loop
async def test_an_answer_that_does_not_come_is_a_time_out_of_its_call(slow: bytes) -> None:
    async with a_daemon() as (daemon, client):
        async with anyio.create_task_group() as tasks:
            asked = Asked(client, tasks)
            for body in ABC:
                asked.ask(body, ttl_s=0.3 if body == slow else 20.0)
                await daemon.until(partial(daemon.waiting.__contains__, body))
            while slow not in asked.ends:
                await anyio.sleep(0.01)
            assert len(line_of(client)._connection.calls) == 2  # it is forgotten
            for answer in daemon.waiting.values():
                await answer()
        assert asked.ends == {body: body for body in ABC} | {slow: CallTimeout}
        assert len(daemon.ends) == 1
        assert is_at_rest(client)


async def _abort(end: End) -> None:
    await end.stream.aclose()


async def _nonsense(end: End) -> None:
    await end.stream.send(bytes(64))


async def _goodbye(end: End) -> None:
    end.connection.send_goodbye("it ends")
    await end.flush()


@pytest.mark.parametrize(
    ("end", "kind"),
    [(_abort, ConnectionLost), (_nonsense, ConnectionLost), (_goodbye, PeerDeclined)],
)
@in_each_loop
async def test_when_a_connection_ends_its_calls_know_and_the_next_one_begins_another(
    end: Callable[[End], Any], kind: type[CallError]
) -> None:
    async with a_daemon() as (daemon, client):
        async with anyio.create_task_group() as tasks:
            asked = Asked(client, tasks)
            for body in (b"a", b"b"):
                asked.ask(body)
            await daemon.until(lambda: len(daemon.waiting) == 2)
            await end(daemon.ends[0])
        assert asked.ends == {b"a": kind, b"b": kind}
        assert (await client.call(call_of(b"c"))).arg3 == b"c"
        assert len(daemon.ends) == 2


@in_each_loop
async def test_a_daemon_that_was_restarted_is_found_again() -> None:
    async with a_daemon() as (daemon, client):
        assert (await client.call(call_of(b"a"))).arg3 == b"a"
        await daemon.ends[0].stream.aclose()
        while line_of(client).is_open:  # the end of it is on its way
            await anyio.lowlevel.checkpoint()
        assert (await client.call(call_of(b"b"))).arg3 == b"b"
        assert len(daemon.ends) == 2


@pytest.mark.parametrize("is_unix", [True, False])
@in_each_loop
async def test_nobody_who_listens_has_not_run_it(tmp_path: Path, *, is_unix: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    peer = f"unix:{tmp_path / 'sock'}" if is_unix else f"localhost:{port}"
    async with AsyncClient(peer, cluster_key="") as client:
        async with anyio.create_task_group() as tasks:
            asked = Asked(client, tasks)
            for body in ABC:
                asked.ask(body)
        assert asked.ends == dict.fromkeys(ABC, ConnectRefused)
        assert client._mine().slots.value == 256


@in_each_loop
async def test_what_says_nothing_is_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (anyio_line, asyncio_line):
        monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", 0.1)
    async with a_daemon(is_silent=True) as (daemon, client):
        for ttl_s in (20, 0.01):
            with pytest.raises(ConnectFailed, match="no answer in time"):
                await client.call(call_of(b"a", ttl_s=ttl_s))
        with suppress(ConnectFailed), anyio.move_on_after(0.01):  # whichever comes first
            await client.call(call_of(b"a"))
        await daemon.until(lambda: all(end.is_lost for end in daemon.ends))


@in_each_loop
async def test_what_says_nonsense_is_no_daemon() -> None:
    async with a_daemon(is_silent=True) as (daemon, client), anyio.create_task_group() as tasks:

        async def babble() -> None:
            await daemon.until(lambda: daemon.ends)
            await daemon.ends[0].stream.send(bytes(64))

        tasks.start_soon(babble)
        with pytest.raises(ConnectFailed, match="does not speak TChannel"):
            await client.call(call_of(b"a"))


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("end", ["answer", "cancellation", "time-out"])
@in_each_loop
async def test_a_client_closes_its_connection_after_the_last_call_under_way(end: str) -> None:
    async with a_daemon() as (daemon, client):
        async with anyio.create_task_group() as tasks:
            asked = Asked(client, tasks)
            asked.ask(b"a", ttl_s=0.2 if end == "time-out" else 20)
            await daemon.until(lambda: daemon.waiting)
            await client.aclose()
            assert (await client.call(call_of(b"b"))).arg3 == b"b"  # over another one
            if end == "answer":
                await daemon.waiting[b"a"]()
            elif end == "cancellation":
                asked.scopes[b"a"].cancel()
            await daemon.until(lambda: daemon.ends[0].is_lost)
            assert not daemon.ends[1].is_lost
        expected = {"answer": {b"a": b"a"}, "cancellation": {}, "time-out": {b"a": CallTimeout}}
        assert asked.ends == expected[end]


@in_each_loop
async def test_only_the_first_call_of_a_caller_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(concurrent, "CALLS_MAX", 1)
    async with a_daemon() as (daemon, client):
        first = await client.begin(call_of(b"a", WAIT))
        second = await client.begin(call_of(b"b", WAIT), more=True)
        with pytest.raises(TooManyInFlight):
            await client.call(call_of(b"c", ttl_s=0.05))
        await daemon.until(lambda: len(daemon.waiting) == 2)
        for answer in daemon.waiting.values():
            await answer()
        assert [(await each.result()).arg3 for each in (second, first)] == [b"b", b"a"]
        assert (await client.call(call_of(b"d"))).arg3 == b"d"


# In one of the loops alone.


def test_a_call_that_is_cancelled_when_its_answer_is_here_is_not_cancelled_there() -> None:
    async def main() -> None:
        async with a_daemon() as (daemon, client):
            asked = asyncio.ensure_future(client.call(call_of(b"a", WAIT)))
            await daemon.until(lambda: daemon.waiting)
            line = line_of(client)
            receive = line.data_received

            def data_received(data: bytes) -> None:
                receive(data)
                asked.cancel()

            line.data_received = data_received
            await daemon.waiting[b"a"]()
            with pytest.raises(asyncio.CancelledError):
                await asked
            line.data_received = receive
            assert (await client.call(call_of(b"b"))).arg3 == b"b"
            assert daemon.cancelled == []
            assert is_at_rest(client)

    asyncio.run(main())


async def test_a_connection_that_is_closed_while_it_is_made_is_not_left_behind() -> None:
    async with a_daemon() as (daemon, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_is_not_reached, client)
            while line_of(client) is None:
                await anyio.lowlevel.checkpoint()
            line = line_of(client)
            await client.aclose()
        assert line._pending == {}
        await daemon.until(lambda: daemon.ends and all(end.is_lost for end in daemon.ends))


async def _is_not_reached(client: AsyncClient) -> None:
    with pytest.raises(ConnectFailed):
        await client.call(call_of(b"a"))


async def test_a_caller_cancelled_when_it_is_next_to_read_passes_the_reading_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_daemon() as (daemon, client):
        async with anyio.create_task_group() as tasks:
            asked = Asked(client, tasks)
            for body in ABC:  # the first one reads
                asked.ask(body)
                await daemon.until(partial(daemon.waiting.__contains__, body))
            line = line_of(client)
            hand_on = line._hand_on

            def hand_on_and_cancel() -> None:
                hand_on()
                asked.scopes[b"b"].cancel()

            monkeypatch.setattr(line, "_hand_on", hand_on_and_cancel)
            await daemon.waiting[b"a"]()
            await daemon.until(lambda: daemon.cancelled)
            await daemon.waiting[b"c"]()
        assert asked.ends == {b"a": b"a", b"c": b"c"}
        assert is_at_rest(client)


async def test_an_answer_that_nobody_wants_any_more_is_not_kept() -> None:
    async with a_daemon() as (daemon, client):
        unwanted = await client.begin(call_of(b"a"))
        other = await client.begin(call_of(b"b", WAIT), more=True)
        await daemon.until(lambda: daemon.waiting)
        await daemon.waiting[b"b"]()
        assert (await other.result()).arg3 == b"b"
        assert line_of(client)._outcomes
        await unwanted.aclose()
        assert daemon.cancelled == []
        assert is_at_rest(client)
