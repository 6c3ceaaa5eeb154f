"""A daemon that answers as a test wants, under trio and under asyncio."""

from __future__ import annotations

import asyncio
import gc
import inspect
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.abc import SocketAttribute

from ringpop_py import AsyncClient
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import CallError
from ringpop_py.net.wire.calls import Answer, Call, CallReceived, CancelReceived
from ringpop_py.net.wire.connection import Connection
from tests.client.loops import BACKENDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from anyio.abc import ByteStream, TaskGroup

ECHO, WAIT = "/echo", "/wait"
LOST = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


def in_each_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run *test* under trio, and under asyncio, where it leaves neither a task nor a socket."""
    signature = inspect.signature(test)
    backend = inspect.Parameter("backend", inspect.Parameter.KEYWORD_ONLY)

    @wraps(test)
    def run(*, backend: str, **fixtures: object) -> None:
        async def checked() -> None:
            with anyio.fail_after(30):
                await test(**fixtures)
            if backend == "asyncio":
                await asyncio.sleep(0)
                assert asyncio.all_tasks() == {asyncio.current_task()}

        anyio.run(checked, backend=backend)
        gc.collect()  # which would warn of an open transport

    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), backend]
    )
    made: Callable[..., None] = pytest.mark.parametrize("backend", BACKENDS)(run)
    return made


class End:
    """The daemon's end of a connection: it answers `ECHO` immediately, and `WAIT` when told to."""

    def __init__(self, daemon: Daemon, stream: ByteStream) -> None:
        self.daemon = daemon
        self.stream = stream
        self.bodies: dict[int, bytes] = {}
        self.is_lost = False
        self.sending = anyio.Lock()
        self.connection = Connection(
            host_port="127.0.0.1:1", process_name="x", initiates=False, limits=WireLimits()
        )

    async def run(self) -> None:
        try:
            while True:
                data = await self.stream.receive()
                if not self.daemon.is_silent:
                    await self._take(data)
        except LOST:
            self.is_lost = True
            self.daemon.notify()

    async def _take(self, data: bytes) -> None:
        for event in self.connection.receive(data):
            match event:
                case CallReceived(id=number, head=head, arg3=body):
                    self.bodies[number] = body
                    if head.endpoint == ECHO:
                        self.connection.send_answer(number, Answer(ok=True, arg3=body))
                    else:
                        self.daemon.waiting[body] = partial(self._answer, number)
                case CancelReceived(number):
                    self.daemon.cancelled.append(self.bodies[number])
                case _:
                    pass
        await self.flush()
        self.daemon.notify()

    async def _answer(self, number: int) -> None:
        self.connection.send_answer(number, Answer(ok=True, arg3=self.bodies[number]))
        await self.flush()

    async def flush(self) -> None:
        async with self.sending:
            await self.stream.send(self.connection.take_outgoing())


class Daemon:
    """Its connections, the calls that wait, and what was in those that were cancelled."""

    def __init__(self, *, is_silent: bool) -> None:
        self.is_silent = is_silent
        self.ends: list[End] = []
        self.waiting: dict[bytes, Callable[[], Awaitable[None]]] = {}
        self.cancelled: list[bytes] = []
        self.changed = anyio.Event()

    def notify(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await self.changed.wait()

    async def serve(self, stream: ByteStream) -> None:
        end = End(self, stream)
        self.ends.append(end)
        self.notify()
        async with stream:
            await end.run()


@asynccontextmanager
async def a_daemon(
    path: Path | None = None, *, is_silent: bool = False
) -> AsyncIterator[tuple[Daemon, AsyncClient]]:
    daemon = Daemon(is_silent=is_silent)
    if path is None:
        listener: Any = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
        address = f"127.0.0.1:{port}"
    else:
        listener, address = await anyio.create_unix_listener(path), f"unix:{path}"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, daemon.serve)
        async with AsyncClient(address, cluster_key="") as client:
            yield daemon, client
        tasks.cancel_scope.cancel()


def call_of(body: bytes, endpoint: str = ECHO, ttl_s: float = 20.0) -> Call:
    return Call("ringpop", endpoint, b"", body, ttl_s=ttl_s)


class Asked:
    """Calls in tasks of their own, with what became of each."""

    def __init__(self, client: AsyncClient, tasks: TaskGroup) -> None:
        self.client = client
        self.ends: dict[bytes, object] = {}
        self.scopes: dict[bytes, anyio.CancelScope] = {}
        self._tasks = tasks

    def ask(self, body: bytes, endpoint: str = WAIT, ttl_s: float = 20.0) -> None:
        self._tasks.start_soon(self._ask, body, endpoint, ttl_s)

    async def _ask(self, body: bytes, endpoint: str, ttl_s: float) -> None:
        with anyio.CancelScope() as self.scopes[body]:
            try:
                self.ends[body] = (await self.client.call(call_of(body, endpoint, ttl_s))).arg3
            except CallError as error:
                self.ends[body] = type(error)


def line_of(client: AsyncClient) -> Any:  # noqa: ANN401 - its private parts are looked at
    return client._mine().line


def is_at_rest(client: AsyncClient) -> bool:
    """Whether nothing is kept of any call."""
    kept = ("_pending", "_woken", "_outcomes", "_is_read")
    assert client._mine().slots.value == 256
    return not any(getattr(line_of(client), name, None) for name in kept)
