"""Spark on one side, a cluster on the other: owners as a column, rows to their owners.

This package is all that knows pyspark, and it knows nothing of the daemon: Spark's workers load
neither that nor trio. A task loads the modules that it needs and no others, hence names are
imported when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ringpop_py.spark.describe import describe_keyspace as describe_keyspace
    from ringpop_py.spark.describe import describe_ring as describe_ring
    from ringpop_py.spark.owner import owner_index as owner_index
    from ringpop_py.spark.owner import ring_owner as ring_owner
    from ringpop_py.spark.partition import partition_owner as partition_owner
    from ringpop_py.spark.partition import ring_partition as ring_partition
    from ringpop_py.spark.repartition import repartition_by_owner as repartition_by_owner
    from ringpop_py.spark.routes import RouteReport as RouteReport
    from ringpop_py.spark.routes import route as route
    from ringpop_py.spark.routes import route_answers as route_answers
    from ringpop_py.spark.snapshot import keyspace_snapshot as keyspace_snapshot
    from ringpop_py.spark.snapshot import ring_snapshot as ring_snapshot
    from ringpop_py.spark.source.lookups import lookup as lookup
    from ringpop_py.spark.source.reports import WriteReport as WriteReport
    from ringpop_py.spark.source.reports import stream_job as stream_job
    from ringpop_py.spark.source.reports import write_report as write_report
    from ringpop_py.spark.source.source import RingpopDataSource as RingpopDataSource

_HOMES: Final = {
    "RingpopDataSource": "source.source",
    "RouteReport": "routes",
    "WriteReport": "source.reports",
    "describe_keyspace": "describe",
    "describe_ring": "describe",
    "keyspace_snapshot": "snapshot",
    "lookup": "source.lookups",
    "owner_index": "owner",
    "partition_owner": "partition",
    "repartition_by_owner": "repartition",
    "ring_owner": "owner",
    "ring_partition": "partition",
    "ring_snapshot": "snapshot",
    "route": "routes",
    "route_answers": "routes",
    "stream_job": "source.reports",
    "write_report": "source.reports",
}
"""The module of each name. None is called like its module, which would hide it once loaded."""

__all__ = [  # noqa: PLE0604 - they are texts
    *_HOMES,
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever that name is
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
