"""Dataflows: sources, an exchange between workers, a keyed stage, and a sink, in epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.lazy import lazily

if TYPE_CHECKING:
    from ringpop_py.flow.dataflow.dataflow import Dataflow as Dataflow
    from ringpop_py.flow.dataflow.dataflow import start_dataflow as start_dataflow
    from ringpop_py.flow.dataflow.local import run_alone as run_alone
    from ringpop_py.flow.dataflow.sinks import FileSink as FileSink
    from ringpop_py.flow.dataflow.sinks import KeyspaceSink as KeyspaceSink
    from ringpop_py.flow.dataflow.sinks import Sent as Sent
    from ringpop_py.flow.dataflow.stage import Context as Context
    from ringpop_py.flow.dataflow.stage import Row as Row
    from ringpop_py.flow.dataflow.stage import Stage as Stage
    from ringpop_py.flow.dataflow.stage import Tumbling as Tumbling
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "flow.dataflow.local": "run_alone",
            "flow.dataflow.dataflow": "Dataflow start_dataflow",
            "flow.dataflow.sinks": "FileSink KeyspaceSink Sent",
            "flow.dataflow.stage": "Context Row Stage Tumbling",
        },
    )
