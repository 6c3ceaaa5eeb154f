"""Shuffles come and go beside one that stands: no process ends, and its rows are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.flow.shuffle.client.client import ShuffleClient
from tests.e2e.shuffle.cluster import child_of
from tests.e2e.shuffle.test_rows import ROWS, SCHEMA, keys_of, put, rows

if TYPE_CHECKING:
    from tests.e2e.shuffle.cluster import ShuffleCluster

ROUNDS = 40


@pytest.mark.timeout(240)
def test_a_standing_shuffle_outlives_forty_that_are_created_and_deleted(
    cluster: ShuffleCluster,
) -> None:
    children = [child_of(node) for node in cluster.nodes]
    table = rows(1)
    with ShuffleClient(cluster.addresses, "standing") as standing:
        standing.create(SCHEMA, ["key"], intervals=8)
        receipt = put(standing, table)
        for number in range(ROUNDS):
            with ShuffleClient(cluster.addresses, f"passing {number % 3}") as client:
                client.create(SCHEMA, ["key"], intervals=64)
                passing = put(client, table.slice(0, ROWS // 6))
                if number % 4 == 0:
                    client.end([passing])
                client.delete()
        standing.end([receipt])

        assert standing.reader().read_all().column("key").to_pylist() == keys_of(table)
        standing.delete()
    assert [child_of(node) for node in cluster.nodes] == children
    assert "failed, and is started again" not in cluster.logs()
