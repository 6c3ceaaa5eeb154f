"""A dataflow in one process, over its source's present records: for tests and small inputs.

It has no node, store, socket, task or thread, and nothing of the exchange but the state of a stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ConfigError, RecordRefused
from ringpop_py.flow.dataflow.stage import StageRunner, checked_stage, row_of
from ringpop_py.flow.exchange.state import StageState
from ringpop_py.flow.streams.source import label_of
from ringpop_py.flow.streams.times import time_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.flow.dataflow.stage import Process, Row, Stage
    from ringpop_py.flow.streams.source import BadRecord, Record, Source
    from ringpop_py.flow.streams.times import EventTime

READ_RECORDS: Final = 4_000
FOREVER: Final = (1 << 63) - 1


def run_alone(
    source: Source,
    stage: Stage | Process,
    *,
    time: str | Callable[[Any], int] | EventTime | None = None,
    refused: Callable[[Record | BadRecord, str], object] | None = None,
) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """Process all that *source* has now, one split after the other; see `start_dataflow`.

    No record is late here, or too far ahead: the watermark waits for all splits. At the end it is
    after all times, so all windows end.

    Returns:
        The state by key, and the results that the stage has sent on.

    Raises:
        ConfigError: the source has no end, such as a topic of Kafka.
        RecordRefused: a record cannot be used, and *refused* is None.
        SourceFailed: the source cannot be read.
    """
    if not getattr(source, "is_bounded", True):
        raise ConfigError(f"{type(source).__name__} has no end at which to stop")
    time_of = time_function(time)
    runner = StageRunner(checked_stage(stage), StageState(), None)
    bounded = getattr(source, "bounded", None)
    source = source if bounded is None else bounded()
    for split in source.splits():
        at = 0
        while records := source.read(split, at, READ_RECORDS):
            rows: list[Row] = []
            for record in records:
                row, why = row_of(record, time_of)
                if row is not None:
                    rows.append(row)
                elif refused is None:
                    raise RecordRefused(f"{label_of(split)} at position {record.position}: {why}")
                else:
                    refused(record, why)
            at = records[-1].position
            runner.process(rows)
    runner.advance(FOREVER)
    return runner.state.values, runner.take_emitted()
