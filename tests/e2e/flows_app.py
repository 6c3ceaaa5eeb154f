"""The application in `test_dataflows.py`: words into a keyspace, flights by hour."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ringpop_py.dataflow import FileSink, Tumbling, start_dataflow
from ringpop_py.streams import Files, start_stream

if TYPE_CHECKING:
    from ringpop_py import Ringpop

FOLDER = "FLOWS_FOLDER"


def one(_value: object) -> int:
    return 1


async def create(ringpop: Ringpop) -> None:
    folder = Path(os.environ[FOLDER])
    words = await ringpop.open_keyspace("words", partitions=16)
    start_stream(
        words,
        Files(f"{folder}/words/*.txt", key=str, lines="text"),
        "add",
        name="words",
        argument=one,
    )
    start_dataflow(
        ringpop,
        Files(f"{folder}/flights/*.jsonl", key="carrier"),
        Tumbling(60, lambda count, _: (count or 0) + 1),
        name="flights",
        sink=FileSink(folder / "hours"),
        time="at",
        lateness=0,
        idle_after_s=1e6,
        every_s=0.5,
    )
