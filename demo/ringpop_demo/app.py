"""The example application: totals of each aircraft, at the node that owns its tail number.

Run it with ``ringpopd --app ringpop_demo.app:create``. Its endpoints:

- ``/flights`` takes Arrow batches of flights, routed by ``tailnum``.
- ``/aircraft`` returns one aircraft's totals, from whichever node is asked; the body is its key.
- ``/totals`` returns all totals that this node holds, ``/arrived`` how many rows and keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.base.values.packed import encode_value
from ringpop_py.errors import ApplicationError
from ringpop_py.route.proxy.request import Reply, Request

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall

KEY: Final = "tailnum"


class Totals(NamedTuple):
    """The totals of one aircraft; an unknown delay counts as 0."""

    flights: int = 0
    minutes_delayed: int = 0
    miles: int = 0


class Fleet:
    """The totals that one node holds, in memory only."""

    def __init__(self) -> None:
        self.totals: dict[str, Totals] = {}
        self.rows_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count all flights in *batch*, or none if a column is wrong.

        Raises:
            ApplicationError: if a column is missing, or is not of numbers.
        """
        # First, because it raises for a wrong column, and then nothing may have been counted.
        grouped = _grouped(batch)
        for tailnum, *added in zip(*(column.to_pylist() for column in grouped), strict=True):
            before = self.totals.get(tailnum, Totals())
            self.totals[tailnum] = Totals(*(b + a for b, a in zip(before, added, strict=True)))
        self.rows_count += batch.num_rows


def create(ringpop: Ringpop) -> None:
    """Register the application's handlers."""
    fleet = Fleet()
    ringpop.batch_handler("/flights", key=KEY)(fleet.add)

    @ringpop.handler("/totals")
    def totals(_call: AppCall) -> bytes:
        return encode_value("msgpack", fleet.totals)

    @ringpop.handler("/arrived")
    def arrived(_call: AppCall) -> bytes:
        return encode_value("msgpack", [fleet.rows_count, len(fleet.totals)])

    @ringpop.handler("/aircraft")
    async def aircraft(call: AppCall) -> bytes:
        # A call that another node forwarded is ours; one from a client may be for any node.
        reply = None
        if not call.keys:
            reply = await ringpop.handle_or_proxy(
                call.body.decode(errors="replace"),
                Request("/aircraft", call.body),
                idempotent=True,  # it only reads
            )
        if isinstance(reply, Reply):
            return reply.body
        tailnum = call.body.decode(errors="replace")
        found = fleet.totals.get(tailnum)
        return encode_value("msgpack", [ringpop.name, *(found or Totals())])


def _grouped(batch: pa.RecordBatch) -> list[pa.ChunkedArray]:
    """Return the columns of `Totals` by tail number, which is the first column."""
    try:
        delays = pc.fill_null(pc.cast(batch.column("arr_delay"), pa.int64()), 0)
        miles = pc.fill_null(pc.cast(batch.column("distance"), pa.int64()), 0)
    except (KeyError, pa.ArrowException) as error:
        raise ApplicationError("not-flights", str(error)) from None
    table = pa.table({KEY: batch.column(KEY), "delay": delays, "miles": miles})
    grouped = table.group_by(KEY, use_threads=False).aggregate(
        [([], "count_all"), ("delay", "sum"), ("miles", "sum")]
    )
    return [grouped.column(name) for name in (KEY, "count_all", "delay_sum", "miles_sum")]
