"""Readers of a shuffle: epochs that go on where they were, other orders, other libraries."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from ringpop_py.flow.shuffle.client.client import ShuffleClient
from tests.e2e.shuffle.test_rows import ROWS, SCHEMA, keys_of, put, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tests.e2e.shuffle.cluster import ShuffleCluster


@pytest.fixture(scope="module")
def client(cluster: ShuffleCluster) -> Iterator[ShuffleClient]:
    with ShuffleClient(cluster.addresses, "read") as client:
        client.create(SCHEMA, ["key"], intervals=12)
        client.end([put(client, rows(1))])
        yield client


def keys(batches: list[pa.RecordBatch]) -> list[int]:
    return [key for batch in batches for key in batch.column("key").to_pylist()]


def test_an_epoch_in_the_order_of_the_shuffle_is_all_rows(client: ShuffleClient) -> None:
    parts = [keys(list(client.epoch(rank, 3, batch_rows=500))) for rank in range(3)]

    assert parts[0] + parts[1] + parts[2] == keys_of(rows(1))


def test_epochs_with_numbers_have_other_orders_and_the_same_rows(client: ShuffleClient) -> None:
    one, again, two = (
        keys([batch for rank in range(2) for batch in client.epoch(rank, 2, number=number)])
        for number in (1, 1, 2)
    )

    assert one == again
    assert one != two
    assert sorted(one) == sorted(two) == keys_of(rows(1))


def test_rows_go_into_another_order_from_node_to_node(
    client: ShuffleClient, cluster: ShuffleCluster
) -> None:
    orders = []
    for name, seed in (("epoch 1", 1), ("epoch 1 again", 1), ("epoch 2", 2)):
        with client.reorder(seed, name) as target:
            table = target.reader().read_all()
            assert table.schema == SCHEMA
            orders.append(table.column("text").to_pylist())
            target.delete()

    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    texts = sorted(rows(1).column("text").to_pylist())
    assert sorted(orders[0]) == sorted(orders[2]) == texts
    # Also while a node is away.
    cluster[2].kill()
    with client.reorder(1, "epoch 1 without a node") as target:
        assert target.reader().read_all().column("text").to_pylist() == orders[0]
        target.delete()
    cluster[2].start()
    cluster.wait_ready(3)


def test_polars_reads_it_lazily(client: ShuffleClient) -> None:
    pl = pytest.importorskip("polars")

    found = client.lazy().filter(pl.col("key") < 100).select("key").collect()

    assert found["key"].to_list() == [key for key in keys_of(rows(1)) if key < 100]
    assert client.lazy().head(10).collect().height == 10
    # The first rows are counted before they are filtered.
    smallest = keys_of(rows(1))[0]
    assert client.lazy().head(12).filter(pl.col("key") > smallest).collect().height < 12
    assert pl.from_arrow(client.reader()).height == ROWS


def test_torch_reads_it_and_goes_on_where_it_was(client: ShuffleClient) -> None:
    torch = pytest.importorskip("torch")
    dataset = client.torch(epoch=1, batch_rows=1000)
    begun = list(islice(iter(dataset), 10))
    state = dataset.state_dict()
    dataset.load_state_dict(state)
    rest = list(dataset)

    found = torch.cat([batch["key"] for batch in [*begun, *rest]]).tolist()
    assert found == keys(list(client.epoch(number=1)))
    assert isinstance(begun[0]["text"], list)
