"""A cluster from Spark: owners as a column, rows to their owners, keyspaces read and written.

It promises that Spark and the ring name the same owner for each key, and that each row of a job
takes effect once or, if the job fails, never. Spark's workers load neither the daemon nor trio.

Begin with `routes.py` (rows to their owners), `source/source.py` (the data source) and `owner.py`
(owners as a column). `options.py` has the options of the source, `arrow` packs rows, and `pipeline`
is a job described by a TOML file.

Only this room knows pyspark. It imports all rooms below except `node`. A task loads only the
modules that it needs, so names are imported lazily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.lazy import lazily

if TYPE_CHECKING:
    from ringpop_py.spark.combining import combined as combined
    from ringpop_py.spark.owner import owner_index as owner_index
    from ringpop_py.spark.owner import partition_owner as partition_owner
    from ringpop_py.spark.owner import repartition_by_owner as repartition_by_owner
    from ringpop_py.spark.owner import ring_owner as ring_owner
    from ringpop_py.spark.owner import ring_partition as ring_partition
    from ringpop_py.spark.routes import RouteReport as RouteReport
    from ringpop_py.spark.routes import route as route
    from ringpop_py.spark.routes import route_answers as route_answers
    from ringpop_py.spark.shuffles import ShuffleReport as ShuffleReport
    from ringpop_py.spark.shuffles import shuffle as shuffle
    from ringpop_py.spark.snapshot import describe_keyspace as describe_keyspace
    from ringpop_py.spark.snapshot import describe_ring as describe_ring
    from ringpop_py.spark.snapshot import keyspace_snapshot as keyspace_snapshot
    from ringpop_py.spark.snapshot import ring_snapshot as ring_snapshot
    from ringpop_py.spark.source.reports import WriteReport as WriteReport
    from ringpop_py.spark.source.reports import stream_job as stream_job
    from ringpop_py.spark.source.reports import write_report as write_report
    from ringpop_py.spark.source.scan import lookup as lookup
    from ringpop_py.spark.source.source import RingpopDataSource as RingpopDataSource
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "spark.combining": "combined",
            "spark.owner": (
                "owner_index partition_owner repartition_by_owner ring_owner ring_partition"
            ),
            "spark.routes": "RouteReport route route_answers",
            "spark.shuffles": "ShuffleReport shuffle",
            "spark.snapshot": "describe_keyspace describe_ring keyspace_snapshot ring_snapshot",
            "spark.source.reports": "WriteReport stream_job write_report",
            "spark.source.scan": "lookup",
            "spark.source.source": "RingpopDataSource",
        },
    )
