"""Streams: records of sources come to the owners of their keys, and each counts once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.lazy import lazily

if TYPE_CHECKING:
    from ringpop_py.flow.streams.files import Files as Files
    from ringpop_py.flow.streams.kafka import Kafka as Kafka
    from ringpop_py.flow.streams.source import BadRecord as BadRecord
    from ringpop_py.flow.streams.source import Record as Record
    from ringpop_py.flow.streams.source import Source as Source
    from ringpop_py.flow.streams.stream import SplitStatus as SplitStatus
    from ringpop_py.flow.streams.stream import Stream as Stream
    from ringpop_py.flow.streams.stream import start_stream as start_stream
    from ringpop_py.flow.streams.tcp import TcpLines as TcpLines
    from ringpop_py.flow.streams.times import EventTime as EventTime
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "flow.streams.files": "Files",
            "flow.streams.kafka": "Kafka",
            "flow.streams.source": "BadRecord Record Source",
            "flow.streams.stream": "SplitStatus Stream start_stream",
            "flow.streams.tcp": "TcpLines",
            "flow.streams.times": "EventTime",
        },
    )
