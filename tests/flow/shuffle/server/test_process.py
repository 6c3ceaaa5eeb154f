"""The process for shuffles goes on, with the rows that it holds, whatever fails in it."""

from __future__ import annotations

import argparse
import ast
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

import ringpop_py.flow.shuffle.server
from ringpop_py.base.address import Address
from ringpop_py.base.errors import ConnectRefused, ShuffleUnavailable, ShuffleUnknown
from ringpop_py.base.supervision import keep_running
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.server import child, process
from ringpop_py.flow.shuffle.server.framestore import FrameStore
from ringpop_py.flow.shuffle.server.wire import Line, Peer
from ringpop_py.flow.shuffle.sorting.disk import Disk
from ringpop_py.node.sidecars import ShufflesBeside
from tests.flow.shuffle.server.test_child import started
from tests.flow.shuffle.server.world import Records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.flow.shuffle.server.world import World

NOBODY: Any = type("Nobody", (), {"__getattr__": lambda _self, _name: lambda *_: None})()
DUTIES = tuple(process.duties(NOBODY, NOBODY, Disk(0), NOBODY, NOBODY))
CALL_S = 1e5
"""Sockets are real, and time is virtual: it jumps while nothing but them is waited for."""


class NoNode:
    """A `Client` whose node does not answer."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        def refused(*_: object, **__: object) -> None:
            raise ConnectRefused("nobody listens")

        return refused


class Heard(process.Parent, list[str]):
    """What a node hears that never ends."""

    def hear(self, line: str) -> None:
        self.append(line)

    async def end(self, scope: trio.CancelScope) -> None:
        del scope
        await trio.sleep_forever()


async def assert_serves(port: int) -> None:
    """Ask the process at *port* about a shuffle that is not there."""
    async with trio.open_nursery() as nursery:
        peer = Peer("a", f"127.0.0.1:{port}", nursery, None)
        with pytest.raises(ShuffleUnknown):
            await peer.call(c.Count("mine"), timeout_s=CALL_S)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("what", DUTIES)
async def test_a_duty_that_fails_begins_again_and_the_process_goes_on(
    what: str,
    tmp_path: Path,
    virtual_time: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    del virtual_time
    caplog.set_level(logging.ERROR, "ringpop")
    began = 0
    all_of, again = process.duties, trio.Event()

    def with_a_bug(*them: Any) -> dict[str, Callable[[], Awaitable[None]]]:  # noqa: ANN401 - all
        found = all_of(*them)
        run = found[what]

        async def failing() -> None:
            nonlocal began
            began += 1
            if began == 1:
                message = "a bug"
                raise ZeroDivisionError(message)
            again.set()
            await run()

        return {**found, what: failing}

    monkeypatch.setattr(process, "duties", with_a_bug)
    monkeypatch.setattr(process, "Client", NoNode)
    monkeypatch.setattr(process, "Register", lambda _client: Records())
    (tmp_path / process.DATA).mkdir()
    options = argparse.Namespace(
        node=Address("127.0.0.1", 1),
        name="a",
        listen="127.0.0.1",
        folder=tmp_path,
        memory=1 << 28,
        disk=1 << 40,
        certificate=None,
        cluster="main",
    )
    parent = Heard()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.run, options, 1, FrameStore(None, "main"), parent)
        with trio.fail_after(600):
            await again.wait()
        port = int(parent[0].partition("/")[0])
        await assert_serves(port)
        nursery.cancel_scope.cancel()

    assert [each.getMessage() for each in caplog.records if what in each.getMessage()]


async def test_a_report_that_cannot_be_made_stops_no_beat(autojump_clock: object) -> None:
    del autojump_clock

    class Broken:
        held_bytes = 0

        def by_state(self) -> dict[str, int]:
            message = "a bug"
            raise ZeroDivisionError(message)

    broken = cast("Any", Broken())
    parent = Heard()
    report = process._Report(broken, broken, Disk(0), parent)
    with trio.move_on_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_running, "the report", report.make)
            nursery.start_soon(report.send)

    assert len(parent) >= 99


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), ExceptionGroup("", [KeyError()])])
async def test_a_connection_that_meets_a_bug_is_closed_and_the_next_is_served(
    worlds: Callable[..., AbstractAsyncContextManager[World]],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def bug(*_: object) -> None:
        raise error

    async with worlds("a") as world, trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, world.servers["a"].serve, listeners)
        port = listeners[0].socket.getsockname()[1]
        with monkeypatch.context() as broken:
            broken.setattr("ringpop_py.flow.shuffle.server.server._check_caller", bug)
            with trio.fail_after(CALL_S):
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                await Line(stream).send(1, c.Count("mine"))
                assert not await stream.receive_some(1)
                await stream.aclose()
        await assert_serves(port)
        nursery.cancel_scope.cancel()


async def test_a_bug_in_what_a_peer_answers_costs_that_connection_alone(
    worlds: Callable[..., AbstractAsyncContextManager[World]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(_head: bytes) -> c.Reply:
        message = "a bug"
        raise ZeroDivisionError(message)

    async with worlds("a") as world, trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, world.servers["a"].serve, listeners)
        port = listeners[0].socket.getsockname()[1]
        peer = Peer("a", f"127.0.0.1:{port}", nursery, None)
        with monkeypatch.context() as broken:
            broken.setattr(c, "reply_in", bug)
            with pytest.raises(ShuffleUnavailable, match="the connection was lost"):
                await peer.call(c.Count("mine"), timeout_s=CALL_S)
        with pytest.raises(ShuffleUnknown):
            await peer.call(c.Count("mine"), timeout_s=CALL_S)
        nursery.cancel_scope.cancel()


async def test_a_shuffle_whose_run_fails_goes_on_with_its_rows_beside_the_others(
    worlds: Callable[..., AbstractAsyncContextManager[World]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with worlds("a", "b") as world:
        other = await world.create("other")
        kept = await world.put(other, 0, range(100))
        shuffle = await world.create()
        winner = await world.put(shuffle, 0, range(100))
        with monkeypatch.context() as broken:
            message = "a bug"
            broken.setattr(
                shuffle.member, "failed", lambda _duty: (_ for _ in ()).throw(KeyError(message))
            )
            ending = partial(world.end, shuffle, {0: winner})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ending)
                await trio.sleep(1)
                broken.undo()
        await world.end(other, {0: kept})

        assert world.keys() == world.keys("other") == list(range(100))


def test_tasks_that_outlive_their_caller_are_supervised() -> None:
    """A task of the nursery of the whole process would end it with its error."""
    [folder] = ringpop_py.flow.shuffle.server.__path__
    trees = {file.name: ast.parse(file.read_text("utf-8")) for file in Path(folder).glob("*.py")}
    ends = "_nursery.start_soon", "process.nursery.start_soon"
    begun = [
        (name, ast.unparse(node.args[0]))
        for name, tree in sorted(trees.items())
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            ast.unparse(node.func).endswith(ends)
            or (name == "process.py" and ast.unparse(node.func) == "nursery.start_soon")
        )
    ]

    assert begun == [
        ("host.py", "self._run"),  # which keeps a shuffle running
        ("process.py", "parent.end"),
        ("process.py", "keep_running"),
        ("shuffle.py", "keep_running"),
        ("wire.py", "keep_running"),
    ]


async def test_a_report_that_the_node_cannot_read_does_not_end_the_process() -> None:
    running = await started("print('{\"disk_bytes\": -1}', flush=True)")

    await child._while_it_beats(running, ShufflesBeside())

    assert running.returncode == 0
