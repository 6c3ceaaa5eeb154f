"""Dataflows: sources, an exchange between workers, a keyed stage, and a sink, in epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.lazy import lazily

if TYPE_CHECKING:
    from ringpop_py.dataflow.alone import run_alone as run_alone
    from ringpop_py.dataflow.dataflow import Dataflow as Dataflow
    from ringpop_py.dataflow.dataflow import start_dataflow as start_dataflow
    from ringpop_py.dataflow.sinks import FileSink as FileSink
    from ringpop_py.dataflow.sinks import KeyspaceSink as KeyspaceSink
    from ringpop_py.dataflow.sinks import Sent as Sent
    from ringpop_py.dataflow.stage import Context as Context
    from ringpop_py.dataflow.stage import Row as Row
    from ringpop_py.dataflow.stage import Stage as Stage
    from ringpop_py.dataflow.stage import Tumbling as Tumbling
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "alone": "run_alone",
            "dataflow": "Dataflow start_dataflow",
            "sinks": "FileSink KeyspaceSink Sent",
            "stage": "Context Row Stage Tumbling",
        },
    )
