"""Elements from clients of Arrow Flight, which a process beside a node brings to it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from array import array
from contextlib import asynccontextmanager
from mmap import mmap
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import trio

from ringpop_py import PRESETS, Address, Config, open_ringpop
from ringpop_py.base.errors import BadElement, ConfigError
from ringpop_py.base.values.arrow import table_in
from ringpop_py.base.values.declared import encode
from ringpop_py.dataflow import start_dataflow
from ringpop_py.flow.dataflow.batches import SCHEMA
from ringpop_py.flow.dataflow.channels import ELEMENT, ElementReply, element_of
from ringpop_py.flow.dataflow.relay import MEMORY_BYTES_MAX
from ringpop_py.flow.exchange.elements import Barrier, Data, Hop, Watermark, head_of
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer
from tests.flow.dataflow.test_dataflow import EVERY_S, Clicks, Totals, count, until
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ringpop_py.flow.exchange.elements import Element
    from ringpop_py.net.transport.channel import IncomingCall

flight = pytest.importorskip("pyarrow.flight")

HERE = "127.0.0.1"


def hop(number: int) -> Hop:
    return Hop("clicks", 0, "other", "life", number)


def a_batch(rows: int) -> pa.RecordBatch:
    columns = [[f"k{n}" for n in range(rows)], [None] * rows, [b"\x01"] * rows]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class Node:
    """What a node does with elements: what comes, and what it is answered."""

    def __init__(self) -> None:
        self.taken: list[tuple[Hop, Element[bytes]]] = []
        self.answers: list[ElementReply | BadElement] = [ElementReply(taken=True)]

    def take(self, call: IncomingCall) -> Answer:
        self.taken.append(element_of(call.arg2, call.arg3))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BadElement):
            raise answer
        return Answer(ok=True, arg3=encode(answer))


@asynccontextmanager
async def a_node() -> AsyncIterator[tuple[Node, str]]:
    """A node, and where the process beside it listens."""
    node, channel = Node(), Channel(process_name="n")
    channel.serve(NODE_SERVICE, ELEMENT, node.take)
    address = await channel.listen(Address(HERE, 0))
    async with trio.open_nursery() as nursery:
        await nursery.start(channel.run)
        process, location = await trio.to_thread.run_sync(a_process, address.port)
        try:
            yield node, location
        finally:
            process.kill()
            with process:
                pass
        nursery.cancel_scope.cancel()


def exchanged(
    location: str,
    elements: list[tuple[bytes, pa.RecordBatch | None]],
    options: Any = None,  # noqa: ANN401 - pyarrow has no types
) -> list[int]:
    """Send elements as any client of Flight would, and return the answers."""
    answers = []
    with flight.connect(location) as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("exchange"), options)
        with writer:
            has_begun = False
            for head, batch in elements:
                if batch is not None:
                    if not has_begun:
                        writer.begin(batch.schema)
                    has_begun = True
                    writer.write_with_metadata(batch, head)
                else:
                    writer.write_metadata(head)
                answers.append(reader.read_chunk().app_metadata.to_pybytes()[0])
            writer.done_writing()
    return answers


@pytest.mark.timeout(120)
async def test_elements_come_from_any_client_of_flight() -> None:
    async with a_node() as (node, location):
        node.answers = [
            ElementReply(taken=True),
            ElementReply(taken=True),
            ElementReply(taken=False),
            ElementReply(taken=False, over=True),
        ]
        sent = [
            (head_of(Watermark(5), hop(0)), None),
            (head_of(Data(b""), hop(1)), a_batch(3)),
            (head_of(Data(b""), hop(2)), a_batch(2)),
            (head_of(Barrier(1), hop(3)), None),
        ]
        answers = await trio.to_thread.run_sync(exchanged, location, sent)

        assert answers == [1, 1, 0, 2]
        assert [hop.number for hop, _ in node.taken] == [0, 1, 2, 3]
        assert node.taken[0][1] == Watermark(5)
        assert node.taken[3][1] == Barrier(1)
        element = node.taken[1][1]
        assert isinstance(element, Data)
        assert table_in(element.batch).to_batches() == [a_batch(3)]


@pytest.mark.timeout(120)
async def test_a_client_is_told_when_the_node_does_not_accept_an_element() -> None:
    sent = [(head_of(Watermark(5), hop(0)), None)]
    async with a_node() as (node, location):
        node.answers = [BadElement("element 7 of other, and not 0"), ElementReply(taken=True)]
        with pytest.raises(flight.FlightError, match=r"not an element: .*element 7 of other"):
            await trio.to_thread.run_sync(exchanged, location, sent)
        assert await trio.to_thread.run_sync(exchanged, location, sent) == [1]
    with socket.create_server((HERE, 0)) as server:
        port = server.getsockname()[1]
    process, location = await trio.to_thread.run_sync(a_process, port)
    with process:
        with pytest.raises(flight.FlightUnavailableError, match="the node did not take it"):
            await trio.to_thread.run_sync(exchanged, location, sent)
        process.kill()


@pytest.mark.timeout(120)
async def test_a_malformed_element_ends_its_own_call_alone() -> None:
    good = [(head_of(Watermark(5), hop(0)), None)]
    bad = {
        "not a kind of element": [(b"\x09{}", None)],
        "barrier has a body": [(head_of(Barrier(1), hop(0)), a_batch(1))],
        "records have no body": [(head_of(Data(b""), hop(0)), None)],
        "not a json value": [(b"\x02{", None)],
    }
    async with a_node() as (node, location):
        for why, elements in bad.items():
            with pytest.raises(flight.FlightError, match=why):
                await trio.to_thread.run_sync(exchanged, location, elements)
        assert await trio.to_thread.run_sync(exchanged, location, good) == [1]
        assert len(node.taken) == 1


def bomb() -> pa.RecordBatch:
    """A batch that is short on its way, and larger than the memory of the process."""
    offsets = pa.py_buffer(array("i", [0, MEMORY_BYTES_MAX + (1 << 20)]))
    zeros = pa.py_buffer(mmap(-1, MEMORY_BYTES_MAX + (1 << 20)))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, zeros])
    return pa.RecordBatch.from_arrays(
        [pa.array(["k"]), pa.nulls(1, pa.int64()), value], schema=SCHEMA
    )


def with_bad_offsets() -> pa.RecordBatch:
    """A batch that only a reader that does not check offsets would believe."""
    offsets = pa.py_buffer(array("i", [0, 4_000, 2, 3]))
    keys = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    sound = a_batch(3)
    return pa.RecordBatch.from_arrays([keys, *sound.columns[1:]], schema=SCHEMA)


@pytest.mark.timeout(120)
async def test_a_batch_that_cannot_be_believed_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    good = [(head_of(Watermark(5), hop(0)), None)]
    async with a_node() as (node, location):
        with pytest.raises(flight.FlightError, match=r"not an element: .*offset"):
            await trio.to_thread.run_sync(
                exchanged, location, [(head_of(Data(b""), hop(0)), with_bad_offsets())]
            )
        assert await trio.to_thread.run_sync(exchanged, location, good) == [1]
        assert len(node.taken) == 1
    assert [r for r in caplog.records if r.exc_info] == []


MEASURED = """
import os, subprocess, sys
command = [sys.executable, "-P", "-m", "ringpop_py.flow.dataflow.relay", *sys.argv[1:]]
process = subprocess.Popen(command)
print(os.wait4(process.pid, 0)[2].ru_maxrss, flush=True)
"""
"""Starts the process, and prints its memory: of a child of ours, the most would be ours."""


@pytest.mark.timeout(120)
def test_a_bomb_takes_no_more_than_the_memory_of_the_process() -> None:
    with socket.create_server((HERE, 0)) as server:
        process, location = a_process(server.getsockname()[1], "-c", MEASURED)
        options = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
        with pytest.raises((flight.FlightError, pa.ArrowException, OSError)):
            exchanged(location, [(head_of(Data(b""), hop(0)), bomb())], options)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        kibibytes = int(process.stdout.read())
    assert kibibytes * 1024 < MEMORY_BYTES_MAX + (256 << 20)  # with its code


def a_process(node_port: int, *command: str) -> tuple[subprocess.Popen[bytes], str]:
    """The process without a node, and where it says that it listens."""
    command = command or ("-P", "-m", "ringpop_py.flow.dataflow.relay")
    process = subprocess.Popen(
        [sys.executable, *command, f"{HERE}:{node_port}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().decode().strip()


def test_the_process_ends_with_its_node() -> None:
    process, location = a_process(1)
    with process:
        assert location.startswith(f"grpc://{HERE}:")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=20) == 0


@pytest.mark.timeout(180)
async def test_records_count_once_though_flight_brings_them_again_and_its_processes_are_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ringpop")
    clicks, totals = Clicks(tmp_path / "in"), Totals()
    clicks.add(500)
    config: dict[str, Any] = {
        "store": str(tmp_path / "store"),
        "create_store": True,
        "gossip": PRESETS["local"],
    }
    options: dict[str, Any] = {"name": "clicks", "sink": totals, "every_s": EVERY_S}
    with trio.fail_after(120):
        async with (
            open_ringpop(Config(name="a", **config)) as a,
            open_ringpop(Config(name="b", hosts=(Address(HERE, a.address.port),), **config)) as b,
        ):
            at_a, at_b = (
                start_dataflow(a, clicks.source(), count, wire="flight", **options),
                start_dataflow(b, clicks.source(), count, **options),
            )
            await until(lambda: at_a.status()["workers"] == ["a", "b"])
            await until(lambda: totals.totals == clicks.counts)
            await until(lambda: len(_served(caplog)) == 1)
            assert at_a.record is not None
            run, life = at_a.record.run, at_b.status()["worker"].removeprefix("b/")
            again = [
                (head_of(Data(b""), Hop(flow, run, "b", by, 0)), a_batch(3))
                for flow, by in [("clicks", life), ("clicks", "other"), ("other", life)]
            ]
            answers = await trio.to_thread.run_sync(exchanged, _served(caplog)[0], again)
            assert answers == [1, 2, 0]
            assert (at_a.record.run, totals.totals) == (run, clicks.counts)
            os.kill(_child_of(os.getpid()), signal.SIGKILL)
            await until(lambda: len(_served(caplog)) == 2)
            clicks.add(500)
            await until(lambda: totals.totals == clicks.counts)
            answers = await trio.to_thread.run_sync(exchanged, _served(caplog)[1], again)
            assert answers == [1, 2, 0]


def _served(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return where the process has listened, each time."""
    return [str(event.fields["where"]) for event in events_in(caplog, "flight-served")]


def _child_of(parent: int) -> int:
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split(None, 1) for line in listed.stdout.splitlines()]
    found = [int(pid) for pid, command in rows if "ringpop_py.flow.dataflow.relay" in command]
    assert len(found) == 1
    return found[0]


async def test_flight_is_refused_with_keys_and_other_wires_always(tmp_path: Path) -> None:
    async with open_ringpop(Config(name="a", store="memory:")) as node:
        source = Clicks(tmp_path).source()
        with pytest.raises(ConfigError, match="wire"):
            start_dataflow(node, source, count, name="f", wire="pigeons")  # type: ignore[arg-type]
        node.credentials = object()  # type: ignore[assignment]
        with pytest.raises(ConfigError, match="the cluster's keys"):
            start_dataflow(node, source, count, name="f", wire="flight")
