"""The example application's totals."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ringpop_demo.app import Fleet, Totals
from ringpop_py.base.errors import ApplicationError


def test_flights_add_up_and_an_unknown_delay_counts_as_none() -> None:
    fleet = Fleet()
    first = pa.record_batch(
        {"tailnum": ["N1", "N2", "N1"], "arr_delay": [5, None, -2], "distance": [100, 200, 300]}
    )
    second = pa.record_batch({"tailnum": ["N1"], "arr_delay": [1.0], "distance": [50]})

    fleet.add(first)
    fleet.add(second)

    assert fleet.totals == {"N1": Totals(3, 4, 450), "N2": Totals(1, 0, 200)}
    assert fleet.rows_count == 4


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"tailnum": ["N1"], "arr_delay": [5]}),
        pa.record_batch({"tailnum": ["N1"], "arr_delay": ["late"], "distance": [1]}),
    ],
)
def test_a_batch_that_holds_no_flights_changes_nothing(batch: pa.RecordBatch) -> None:
    fleet = Fleet()

    with pytest.raises(ApplicationError, match="not-flights"):
        fleet.add(batch)

    assert (fleet.totals, fleet.rows_count) == ({}, 0)
