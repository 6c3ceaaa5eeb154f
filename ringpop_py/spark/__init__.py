"""Spark on one side, a cluster on the other: owners as a column, rows to their owners.

This package is all that knows pyspark, and it knows nothing of the daemon: Spark's workers load
neither that nor trio.
"""

from __future__ import annotations

from ringpop_py.spark.owner import owner_index as owner_index
from ringpop_py.spark.owner import ring_owner as ring_owner
from ringpop_py.spark.route import RouteReport as RouteReport
from ringpop_py.spark.route import route as route
from ringpop_py.spark.snapshot import ring_snapshot as ring_snapshot

__all__ = ["RouteReport", "owner_index", "ring_owner", "ring_snapshot", "route"]
