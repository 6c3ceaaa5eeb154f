"""Streams and dataflows: words from files, a stage against bare writes, the exchange, and gaps.

Each side is a process of its own on one core: ``python -m tests.bench.streams MODE FOLDER``. It
prints seconds, from when everything is started until the last record counts.
"""

from __future__ import annotations

import gc
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py import Address, Config, Outcome, open_ringpop
from ringpop_py.base.values.declared import encode
from ringpop_py.dataflow import start_dataflow
from ringpop_py.flow.dataflow.channels import ELEMENT, ElementReply, bring_to
from ringpop_py.flow.exchange.elements import Data, Hop, head_of
from ringpop_py.net.transport.channel import Channel, IncomingCall
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer
from ringpop_py.streams import Files, start_stream
from tests.bench import gaps
from tests.bench.report import (
    NOT_INSTALLED,
    Row,
    larger_is_better,
    smaller_is_better,
    without_peer,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from ringpop_py.dataflow import Context
    from ringpop_py.dataflow import Row as StageRow
    from ringpop_py.flow.dataflow.channels import Bring

WORDS: Final = 1_000_000
DISTINCT: Final = 20_000
FILES: Final = 4
TURNS: Final = 3
PARTITIONS: Final = 16
BATCH: Final = 1_000
LIMIT_S: Final = 300.0
EXCHANGED: Final = {"1_mib": 1 << 20, "4_mib": 4 << 20}
"""The sizes of batches; a call of a node has at most 8 MiB."""
EXCHANGE_BYTES: Final = 256 << 20
TARGETS: Final = {"1_mib": 0.5, "4_mib": 0.6}
GAP_TARGET: Final = 50.0
PARTS: Final = ("words", "stage", "exchange", "gap")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--parts", default=",".join(PARTS), help="of: " + ", ".join(PARTS))
    parser.add_argument("--turns", type=int, default=TURNS, metavar="N")
    parser.add_argument("--words", type=int, default=WORDS, metavar="N")
    text = "of our sides, as ringpopd has it (10000); Python's own is 700"
    parser.add_argument("--gc-threshold", type=int, default=10_000, metavar="N", help=text)


def run(options: argparse.Namespace) -> Iterator[Row]:
    """The rows of `streams`."""
    parts = options.parts.split(",")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        if {"words", "stage"} & set(parts):
            _write_words(folder, options.words)
        if "words" in parts:
            yield from _words(folder, options)
        if "stage" in parts:
            took = _in_turns(("stream", "update_many"), folder, options)
            rates = {mode: options.words / seconds for mode, seconds in took.items()}
            stream, many = rates["stream"], rates["update_many"]
            yield larger_is_better(
                "streams.stage", stream, "records/s", "update_many", many, target=0.9
            )
        if "exchange" in parts:
            yield from _exchange(folder, options.turns)
    if "gap" in parts:
        yield _gap(options.turns)


def _words(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    peer = "bytewax" if find_spec("bytewax") else None
    modes = ("dataflow", "stream", *([peer] if peer else []))
    took = _in_turns(modes, folder, options)
    rates = {mode: options.words / seconds for mode, seconds in took.items()}
    for mode in ("dataflow", "stream"):
        name = f"streams.words.{mode}"
        if peer is None:
            yield Row(name, rates[mode], "words/s", f"bytewax: {NOT_INSTALLED}", target=1.0)
        else:
            yield larger_is_better(name, rates[mode], "words/s", peer, rates[peer], target=1.0)


def _gap(turns: int) -> Row:
    sides = [gaps.ours, *([gaps.bytewax] if find_spec("bytewax") else [])]
    found: dict[str, list[float]] = {side.__name__: [] for side in sides}
    for _ in range(turns):
        for side in sides:
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                found[side.__name__].append(side(Path(folder)))
    ours_s, *peer_s = map(median, found.values())
    name = "streams.gap"
    if not peer_s:
        return without_peer(name, ours_s, "s", "bytewax", GAP_TARGET)
    return smaller_is_better(name, ours_s, "s", "bytewax", peer_s[0], GAP_TARGET)


def _exchange(folder: Path, turns: int) -> Iterator[Row]:
    for size, number in EXCHANGED.items():
        rates: dict[str, list[float]] = {"calls": [], "tcp": []}
        for _ in range(turns):
            for mode, found in rates.items():
                seconds = _seconds(f"exchange-{mode}", folder, str(number))
                found.append(EXCHANGE_BYTES / seconds / 1e6)
        raw = median(rates["tcp"])
        name, ours = f"streams.exchange.calls.{size}", median(rates["calls"])
        yield larger_is_better(name, ours, "MB/s", "raw TCP", raw, TARGETS[size])


def _in_turns(modes: Sequence[str], folder: Path, options: argparse.Namespace) -> dict[str, float]:
    took: dict[str, list[float]] = {mode: [] for mode in modes}
    for _ in range(options.turns):
        for mode, found in took.items():
            found.append(_seconds(mode, folder, str(options.gc_threshold)))
    return {mode: median(found) for mode, found in took.items()}


def _seconds(mode: str, folder: Path, *rest: str) -> float:
    command = [sys.executable, "-m", "tests.bench.streams", mode, str(folder), *rest]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=2 * LIMIT_S
    )
    return float(done.stdout.splitlines()[-1])


def _write_words(folder: Path, count: int) -> None:
    rng = random.Random(1)
    words = [f"word-{rng.randrange(10**9)}" for _ in range(DISTINCT)]
    (folder / "words").mkdir()
    for number in range(FILES):
        chosen = rng.choices(words, k=count // FILES)
        text = "".join(json.dumps({"word": word}) + "\n" for word in chosen)
        (folder / "words" / f"{number}.jsonl").write_text(text, "utf-8")


def _lines(folder: Path) -> int:
    return sum(1 for path in (folder / "words").iterdir() for _ in path.open("rb"))


# The sides. ------------------------------------------------------------------------------


def _one(_value: object) -> int:
    return 1


def _count(state: int | None, rows: Sequence[StageRow], _context: Context) -> int:
    return (state or 0) + len(rows)


def _config(store: str) -> Config:
    return Config(name="bench", store=store, create_store=True)


async def _dataflow(folder: Path, store: str) -> float:
    total = _lines(folder)
    size = sum(path.stat().st_size for path in (folder / "words").iterdir())
    async with open_ringpop(_config(store)) as node:
        began = perf_counter()
        source = Files(f"{folder}/words/*.jsonl", key="word")
        flow = start_dataflow(node, source, _count, name="words")
        with trio.fail_after(LIMIT_S):
            while flow.record is None or sum(flow.record.offsets.values()) < size:
                await trio.sleep(0.01)
        assert sum(flow.state().values()) == total  # type: ignore[arg-type]
        return perf_counter() - began


async def _stream(folder: Path, store: str) -> float:
    total = _lines(folder)
    async with open_ringpop(_config(store)) as node:
        keyspace = await node.open_keyspace("words", partitions=PARTITIONS)
        await _all_here(keyspace)
        began = perf_counter()
        source = Files(f"{folder}/words/*.jsonl", key="word")
        stream = start_stream(keyspace, source, "add", name="words", argument=_one)
        with trio.fail_after(LIMIT_S):
            while stream.records_count < total:
                await trio.sleep(0.01)
        return perf_counter() - began


async def _update_many(folder: Path, store: str) -> float:
    """The program that one would write instead: it reads the files, and calls `update_many`."""
    async with open_ringpop(_config(store)) as node:
        keyspace = await node.open_keyspace("words", partitions=PARTITIONS)
        await _all_here(keyspace)
        began = perf_counter()

        async def write(path: Path) -> None:
            with path.open() as file:
                while lines := list(islice(file, BATCH)):
                    batch = [(json.loads(line)["word"], "add", 1) for line in lines]
                    for outcome in await keyspace.update_many(batch):
                        assert isinstance(outcome, Outcome)

        async with trio.open_nursery() as nursery:
            for path in (folder / "words").iterdir():
                nursery.start_soon(write, path)
        return perf_counter() - began


async def _all_here(keyspace: Any) -> None:  # noqa: ANN401 - a keyspace
    while keyspace.table.counts().total() < PARTITIONS or keyspace.table.moving:
        await trio.sleep(0.01)


def _bytewax(folder: Path, store: str) -> float:
    op, files, dataflow, saving, testing = (
        import_module(f"bytewax.{name}")
        for name in ("operators", "connectors.files", "dataflow", "recovery", "testing")
    )
    recovery = Path(store) / "recovery"
    recovery.mkdir(parents=True)
    saving.init_db_dir(recovery, 1)
    flow = dataflow.Dataflow("words")
    inputs = [
        op.input(f"in{number}", flow, files.FileSource(path))
        for number, path in enumerate(sorted((folder / "words").iterdir()))
    ]
    lines = op.merge("lines", *inputs)
    words = op.map("word", lines, lambda line: (json.loads(line)["word"], 1))
    counts = op.stateful_map("count", words, lambda state, one: ((state or 0) + one,) * 2)
    last = op.filter("none", counts, lambda _: False)
    found: list[Any] = []
    op.output("out", last, testing.TestingSink(found))
    began = perf_counter()
    testing.cluster_main(
        flow,
        [],
        0,
        epoch_interval=timedelta(seconds=1),
        recovery_config=saving.RecoveryConfig(str(recovery)),
    )
    return perf_counter() - began


# One channel of the exchange. ------------------------------------------------------------


def _payload(size: int) -> bytes:
    return random.Random(1).randbytes(size)


async def _exchange_calls(size: int) -> float:
    async with trio.open_nursery() as nursery:
        there = Channel(process_name="there")
        got = [0]

        def take(call: IncomingCall) -> Answer:
            got[0] += len(call.arg3)
            return Answer(ok=True, arg3=encode(ElementReply(taken=True)))

        there.serve(NODE_SERVICE, ELEMENT, take)
        address = await _listening(there, nursery)
        here = Channel(process_name="here")
        await _listening(here, nursery)
        seconds = await _bring_all(bring_to("there", here, lambda _: address), _payload(size))
        assert got[0] >= EXCHANGE_BYTES
        nursery.cancel_scope.cancel()
    return seconds


async def _listening(channel: Channel, nursery: trio.Nursery) -> Address:
    address = await channel.listen(Address("127.0.0.1", 0))
    await nursery.start(channel.run)
    return address


async def _bring_all(bring: Bring, body: bytes) -> float:
    head = head_of(Data(b""), Hop("flow", 0, "here", "life", 0))
    await bring(head, body)
    began = perf_counter()
    for _ in range(-(-EXCHANGE_BYTES // len(body))):
        assert (await bring(head, body)).taken
    return perf_counter() - began


def _exchange_tcp(size: int) -> float:
    """Blocking sockets: as much as there is to be had, each message answered with a byte."""
    payload = _payload(size)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            buffer = bytearray(size)
            with peer:
                while True:
                    view = memoryview(buffer)
                    while view:
                        count = peer.recv_into(view)
                        if not count:
                            return
                        view = view[count:]
                    peer.sendall(b"k")

        threading.Thread(target=serve, daemon=True).start()
        with socket.create_connection(server.getsockname()) as connection:
            began = perf_counter()
            for _ in range(-(-EXCHANGE_BYTES // size)):
                connection.sendall(payload)
                connection.recv(1)
            return perf_counter() - began


def _main(mode: str, folder: str, *rest: str) -> None:
    if not mode.startswith("exchange"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    path = Path(folder)
    with tempfile.TemporaryDirectory(prefix="store-", dir=path) as store:
        if mode in ("dataflow", "stream", "update_many"):
            gc.set_threshold(int(rest[0]))
        match mode:
            case "dataflow":
                seconds = trio.run(_dataflow, path, store)
            case "stream":
                seconds = trio.run(_stream, path, store)
            case "update_many":
                seconds = trio.run(_update_many, path, store)
            case "bytewax":
                seconds = _bytewax(path, store)
            case "exchange-calls":
                seconds = trio.run(_exchange_calls, int(rest[0]))
            case "exchange-tcp":
                seconds = _exchange_tcp(int(rest[0]))
            case _:
                sys.exit(f"there is no mode {mode}")
    print(seconds)


if __name__ == "__main__":
    _main(*sys.argv[1:])
