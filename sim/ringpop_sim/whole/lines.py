"""The dataflow of whole daemons: it brings each line of a file to another key of the keyspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.flow.dataflow.dataflow import start_dataflow
from ringpop_py.flow.dataflow.sinks import KeyspaceSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.flow.dataflow.stage import Context, Row
    from ringpop_py.flow.streams.files import Files
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace

NAME: Final = "lines"
EVERY_S: Final = 0.5


def start_lines(ringpop: Ringpop, files: Files, keyspace: Keyspace, prefix: str) -> None:
    """Take part in it: append the number of each line to the key *prefix* and its own.

    With it goes how many lines of that key the stage has seen, which is its state.
    """

    def stage(count: int | None, rows: Sequence[Row], context: Context) -> int:
        for number, row in enumerate(rows, 1 + (count or 0)):
            context.emit(prefix + context.key, [number, row.value["number"]])
        return (count or 0) + len(rows)

    sink = KeyspaceSink(keyspace, "append")
    start_dataflow(ringpop, files, stage, name=NAME, sink=sink, every_s=EVERY_S)
