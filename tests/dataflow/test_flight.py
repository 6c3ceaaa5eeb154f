"""Elements over Arrow Flight, with a process beside each node."""

from __future__ import annotations

import json
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
from ringpop_py.dataflow import start_dataflow
from ringpop_py.dataflow.batches import SCHEMA
from ringpop_py.dataflow.channels import Taken
from ringpop_py.dataflow.flight import FlightSide
from ringpop_py.dataflow.relay import MEMORY_BYTES_MAX
from ringpop_py.errors import CallError, ConfigError
from ringpop_py.exchange.elements import Barrier, Data, Hop, Watermark, head_of
from ringpop_py.transport.channel import Channel
from ringpop_py.values.arrow import table_in
from tests.dataflow.test_dataflow import EVERY_S, Clicks, Totals, count, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ringpop_py.exchange.elements import Element

flight = pytest.importorskip("pyarrow.flight")

HERE = "127.0.0.1"


def hop(number: int) -> Hop:
    return Hop("clicks", 0, "other", "life", number)


def a_batch(rows: int) -> pa.RecordBatch:
    columns = [[f"k{n}" for n in range(rows)], [None] * rows, [b"\x01"] * rows]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class Side:
    """One node's side, without the node: what comes, and what it is answered."""

    def __init__(self) -> None:
        self.taken: list[tuple[Hop, Element[bytes]]] = []
        self.answers = [Taken(taken=True)]

    async def take(self, hop: Hop, element: Element[bytes]) -> Taken:
        self.taken.append((hop, element))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@asynccontextmanager
async def a_side() -> AsyncIterator[tuple[FlightSide, Side, str]]:
    """A side that runs, and where its process listens."""
    side = Side()
    channel = Channel(process_name="n")
    flight_side = FlightSide(channel, HERE, lambda _: None, side.take)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flight_side.run)
        with trio.fail_after(60):
            while flight_side._said is None:
                await trio.sleep(0.02)
        yield flight_side, side, f"grpc://{HERE}:{flight_side._said.flight}"
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
    async with a_side() as (_, side, location):
        side.answers = [
            Taken(taken=True),
            Taken(taken=True),
            Taken(taken=False),
            Taken(taken=False, over=True),
        ]
        sent = [
            (head_of(Watermark(5), hop(0)), None),
            (head_of(Data(b""), hop(1)), a_batch(3)),
            (head_of(Data(b""), hop(2)), a_batch(2)),
            (head_of(Barrier(1), hop(3)), None),
        ]
        answers = await trio.to_thread.run_sync(exchanged, location, sent)

        assert answers == [1, 1, 0, 2]
        assert [hop.number for hop, _ in side.taken] == [0, 1, 2, 3]
        assert side.taken[0][1] == Watermark(5)
        assert side.taken[3][1] == Barrier(1)
        element = side.taken[1][1]
        assert isinstance(element, Data)
        assert table_in(element.batch).to_batches() == [a_batch(3)]


@pytest.mark.timeout(120)
async def test_what_is_no_element_ends_its_own_call_alone() -> None:
    good = [(head_of(Watermark(5), hop(0)), None)]
    bad = {
        "not a kind of element": [(b"\x09{}", None)],
        "barrier has a body": [(head_of(Barrier(1), hop(0)), a_batch(1))],
        "records have no body": [(head_of(Data(b""), hop(0)), None)],
        "not a json value": [(b"\x02{", None)],
    }
    async with a_side() as (_, side, location):
        for why, elements in bad.items():
            with pytest.raises(flight.FlightError, match=why):
                await trio.to_thread.run_sync(exchanged, location, elements)
        assert await trio.to_thread.run_sync(exchanged, location, good) == [1]
        assert len(side.taken) == 1


def bomb() -> pa.RecordBatch:
    """A batch that is short on its way, and larger than the memory of the process."""
    offsets = pa.py_buffer(array("i", [0, MEMORY_BYTES_MAX + (1 << 20)]))
    zeros = pa.py_buffer(mmap(-1, MEMORY_BYTES_MAX + (1 << 20)))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, zeros])
    return pa.RecordBatch.from_arrays(
        [pa.array(["k"]), pa.nulls(1, pa.int64()), value], schema=SCHEMA
    )


def with_bad_offsets() -> pa.RecordBatch:
    """A batch that is believed only by who does not look at its offsets."""
    offsets = pa.py_buffer(array("i", [0, 4_000, 2, 3]))
    keys = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    sound = a_batch(3)
    return pa.RecordBatch.from_arrays([keys, *sound.columns[1:]], schema=SCHEMA)


@pytest.mark.timeout(120)
async def test_a_batch_that_cannot_be_believed_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    good = [(head_of(Watermark(5), hop(0)), None)]
    async with a_side() as (_, side, location):
        with pytest.raises(flight.FlightError, match=r"not an element: .*offset"):
            await trio.to_thread.run_sync(
                exchanged, location, [(head_of(Data(b""), hop(0)), with_bad_offsets())]
            )
        assert await trio.to_thread.run_sync(exchanged, location, good) == [1]
        assert len(side.taken) == 1
    assert [r for r in caplog.records if r.exc_info] == []


MEASURED = """
import os, subprocess, sys
process = subprocess.Popen([sys.executable, "-P", "-m", "ringpop_py.dataflow.relay", *sys.argv[1:]])
print(os.wait4(process.pid, 0)[2].ru_maxrss, flush=True)
"""
"""Starts the process, and prints its memory: of a child of ours, the most would be ours."""


@pytest.mark.timeout(120)
def test_a_bomb_takes_no_more_than_the_memory_of_the_process() -> None:
    with socket.create_server((HERE, 0)) as server:
        process, said = a_process(server.getsockname()[1], "-c", MEASURED)
        options = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
        with pytest.raises((flight.FlightError, pa.ArrowException, OSError)):
            exchanged(
                f"grpc://{HERE}:{said['flight']}", [(head_of(Data(b""), hop(0)), bomb())], options
            )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        kibibytes = int(process.stdout.read())
    assert kibibytes * 1024 < MEMORY_BYTES_MAX + (256 << 20)  # with its code


@pytest.mark.timeout(120)
async def test_nobody_else_on_this_machine_passes_elements_on() -> None:
    async with a_side() as (flight_side, side, _):
        assert flight_side._said is not None
        stream = await trio.open_tcp_stream(HERE, flight_side._said.relay)
        async with stream:
            await stream.send_all(b"x" * 32 + b"\x00" * 12)
            with trio.fail_after(10):
                assert await stream.receive_some() == b""
        with pytest.raises(CallError):
            await flight_side.line("nobody").bring(b"", b"")
        assert side.taken == []


def a_process(node_port: int, *command: str) -> tuple[subprocess.Popen[bytes], dict[str, int]]:
    """The process without a node, and where it says that it listens."""
    command = command or ("-P", "-m", "ringpop_py.dataflow.relay")
    process = subprocess.Popen(
        [sys.executable, *command, HERE, str(node_port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"t" * 32)
    process.stdin.flush()
    return process, json.loads(process.stdout.readline())


def test_the_process_ends_with_its_node() -> None:
    process, said = a_process(1)
    with process:
        assert set(said) == {"flight", "relay"}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=20) == 0


@pytest.mark.timeout(180)
async def test_records_count_once_over_flight_though_its_processes_are_killed(
    tmp_path: Path,
) -> None:
    clicks, totals = Clicks(tmp_path / "in"), Totals()
    clicks.add(500)
    config: dict[str, Any] = {
        "store": str(tmp_path / "store"),
        "create_store": True,
        "gossip": PRESETS["local"],
    }
    with trio.fail_after(120):
        async with (
            open_ringpop(Config(name="a", **config)) as a,
            open_ringpop(Config(name="b", hosts=(Address(HERE, a.address.port),), **config)) as b,
        ):
            flows = [
                start_dataflow(
                    node,
                    clicks.source(),
                    count,
                    name="clicks",
                    sink=totals,
                    every_s=EVERY_S,
                    wire="flight",
                )
                for node in (a, b)
            ]
            await until(lambda: flows[0].status()["workers"] == ["a", "b"])
            clicks.add(500)
            await until(lambda: totals.totals == clicks.counts)
            assert min(flow.status()["rows"] for flow in flows) > 0
            for pid in _children_of(os.getpid()):
                os.kill(pid, signal.SIGKILL)
            clicks.add(500)
            await until(lambda: totals.totals == clicks.counts)


def _children_of(parent: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split(None, 1) for line in listed.stdout.splitlines()]
    found = [int(pid) for pid, command in rows if "ringpop_py.dataflow.relay" in command]
    assert len(found) == 2
    return found


async def test_flight_is_refused_with_keys_and_other_wires_always(tmp_path: Path) -> None:
    async with open_ringpop(Config(name="a", store="memory:")) as node:
        source = Clicks(tmp_path).source()
        with pytest.raises(ConfigError, match="wire"):
            start_dataflow(node, source, count, name="f", wire="pigeons")  # type: ignore[arg-type]
        node.credentials = object()  # type: ignore[assignment]
        with pytest.raises(ConfigError, match="the cluster's keys"):
            start_dataflow(node, source, count, name="f", wire="flight")
