"""Spans of calls that belong to a trace, from a client through members to the owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from ringpop_py import Address, Client, Config, Reply, Request, open_ringpop
from ringpop_py.base.errors import ApplicationError
from ringpop_py.client.aio.client import AsyncClient
from ringpop_py.net.wire.frames import TRACING_BYTES
from ringpop_py.net.wire.traces import Traced, current, packed, unpacked
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from ringpop_py.testing import MemoryNetwork
from tests.state.durable.benches import until

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from ringpop_py.net.transport.network import Network
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
TRACER = PROVIDER.get_tracer("test")


@pytest.fixture(autouse=True)
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans that have ended; the provider of this process is ours for the test."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", PROVIDER)
    EXPORTER.clear()
    return EXPORTER


def by_name(exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(f"{span.name} {span.kind.name}", []).append(span)
    return found


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


async def members(
    nursery: trio.Nursery, count: int, network: Network | None, store: MemoryStore | None = None
) -> list[Ringpop]:
    nodes: list[Ringpop] = []
    hosts: list[Address] = []

    async def run(task_status: trio.TaskStatus[Ringpop]) -> None:
        listen = Address("127.0.0.1", 0 if network is None else 1 + len(nodes))
        config = Config(listen=listen, hosts=tuple(hosts), tracing=True)
        async with open_ringpop(config, network=network, store=store) as node:
            task_status.started(node)
            await trio.sleep_forever()

    for _ in range(count):
        nodes.append(await nursery.start(run))
        hosts.append(nodes[0].address)
    for node in nodes:
        await node.wait_until(lambda node: len(node.ring) == count)
    return nodes


def key_of(node: Ringpop) -> str:
    return next(str(n) for n in range(1_000) if node.lookup(str(n)) == node.name)


@pytest.mark.virtual_time
async def test_a_request_is_one_trace_from_here_to_its_owner(spans: InMemorySpanExporter) -> None:
    async with trio.open_nursery() as nursery:
        a, b = await members(nursery, 2, MemoryNetwork())

        @b.handler("/slow")
        async def slow(call: AppCall) -> bytes:
            with TRACER.start_as_current_span("work"):
                await trio.sleep(0.1)
            if call.body == b"fail":
                raise ApplicationError("Refused", "no")
            return b"done"

        key = key_of(b)
        with TRACER.start_as_current_span("root") as root:
            assert isinstance(await a.handle_or_proxy(key, Request("/slow", b"x")), Reply)
            with pytest.raises(ApplicationError):
                await a.handle_or_proxy(key, Request("/slow", b"fail"))
        await trio.sleep(5)  # gossip goes on, and has no spans

        found = by_name(spans)
        assert set(found) == {
            "root INTERNAL",
            "app /slow CLIENT",
            "app /slow SERVER",
            "work INTERNAL",
        }
        traces = {span.get_span_context().trace_id for span in spans.get_finished_spans()}  # type: ignore[union-attr]
        assert traces == {root.get_span_context().trace_id}
        assert max(traces) >> 64  # all 16 bytes of it
        for number in range(2):
            client, server = found["app /slow CLIENT"][number], found["app /slow SERVER"][number]
            assert parent_of(client) == root.get_span_context().span_id
            assert parent_of(server) == id_of(client)
            assert parent_of(found["work INTERNAL"][number]) == id_of(server)
        assert found["app /slow CLIENT"][0].attributes["server.address"] == str(b.address)  # type: ignore[index]
        statuses = [span.status.status_code.name for span in found["app /slow CLIENT"]]
        assert statuses == ["UNSET", "ERROR"]
        nursery.cancel_scope.cancel()


@pytest.mark.virtual_time
async def test_keyspaces_belong_to_it_and_what_has_no_trace_has_no_spans(
    spans: InMemorySpanExporter,
) -> None:
    async with trio.open_nursery() as nursery:
        a, b = await members(nursery, 2, MemoryNetwork(), MemoryStore())
        keyspace = await a.open_keyspace("k", partitions=8)
        await b.open_keyspace("k", partitions=8)
        await a.wait_until(lambda _: len(keyspace.table.counts()) == 2)
        for number in range(20):
            await keyspace.put(str(number), number)
        assert spans.get_finished_spans() == ()
        with TRACER.start_as_current_span("root") as root:
            for number in range(20):
                await keyspace.put(str(number), number)
        found = by_name(spans)
        servers = [span for name, some in found.items() if name.endswith("SERVER") for span in some]
        assert servers
        assert all(
            span.get_span_context().trace_id == root.get_span_context().trace_id  # type: ignore[union-attr]
            for span in servers
        )
        nursery.cancel_scope.cancel()


@pytest.mark.virtual_time
async def test_the_span_of_a_write_lasts_until_it_is_committed(spans: InMemorySpanExporter) -> None:
    store, served = MemoryStore(), "ringpop /keyspace/apply SERVER"
    async with trio.open_nursery() as nursery:
        a, b = await members(nursery, 2, MemoryNetwork(), store)
        keyspace = await a.open_keyspace("k", partitions=8)
        await b.open_keyspace("k", partitions=8)
        await a.wait_until(lambda _: len(keyspace.table.counts()) == 2)
        key = next(key for key in map(str, range(1_000)) if keyspace.owner_of(key) == b.name)
        await keyspace.put(key, 0)
        store.inject(StoreFault.FAILS, count=1_000)

        with TRACER.start_as_current_span("root"):
            nursery.start_soon(keyspace.put, key, 1)
            await trio.sleep(0.01)
            assert served not in by_name(spans)
            store.heal()
            await until(lambda: served in by_name(spans))
        nursery.cancel_scope.cancel()


@pytest.mark.virtual_time
async def test_a_caller_that_is_cancelled_ends_its_span(spans: InMemorySpanExporter) -> None:
    async with trio.open_nursery() as nursery:
        a, b = await members(nursery, 2, MemoryNetwork())

        @b.handler("/never")
        async def never(_call: AppCall) -> bytes:
            await trio.sleep_forever()
            return b""

        with TRACER.start_as_current_span("root"), trio.move_on_after(1):
            await a.handle_or_proxy(key_of(b), Request("/never"))
        await trio.sleep(1)
        found = by_name(spans)
        [client] = found["app /never CLIENT"]
        assert client.status.status_code.name == "ERROR"
        assert len(found["app /never SERVER"]) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_clients_pass_their_span_on(spans: InMemorySpanExporter, kind: str) -> None:
    async with trio.open_nursery() as nursery:
        [node] = await members(nursery, 1, None)
        node.handler("/echo")(lambda call: call.body)
        with TRACER.start_as_current_span("root") as root:
            if kind == "sync":
                with Client(node.address) as client:
                    request = Request("/echo", b"x" * 200_000)  # in several frames
                    await trio.to_thread.run_sync(client.proxy, "k", request)
            else:
                async with AsyncClient(node.address) as asynchronous:
                    await asynchronous.proxy("k", Request("/echo", b"x"))
        [server] = by_name(spans)["app /echo SERVER"]
        assert parent_of(server) == root.get_span_context().span_id
        nursery.cancel_scope.cancel()


def test_a_trace_that_is_not_sampled_is_not_carried() -> None:
    with TracerProvider(sampler=ParentBased(ALWAYS_OFF)).get_tracer("x").start_as_current_span("r"):
        assert current() == b""
    assert current() == b""
    with TRACER.start_as_current_span("root") as root:
        context = root.get_span_context()
        assert current() == packed(context)
        assert unpacked(current()) == Traced(context.trace_id, context.span_id)
        assert len(current()) == TRACING_BYTES
