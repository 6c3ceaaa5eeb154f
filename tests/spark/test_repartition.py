"""Each Spark partition holds the keys of one owner, or of none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.base.errors import ConfigError, NoOwner
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.spark import repartition_by_owner
from ringpop_py.spark.snapshot import KeyspaceSnapshot
from ringpop_py.state.placement.keys import NOBODY, partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(360)]

RING = HashRing(["a", "b", "c"])
KEYSPACE = KeyspaceSnapshot("k", 1, ("b", "a", NOBODY, "b", "a", "b"))


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    """2,000 rows of 500 keys; each 50th row has none."""
    number = F.col("id")
    key = F.when(number % 50 > 0, (number % 500).cast("string"))
    return spark.range(2_000, numPartitions=3).select(key.alias("a key"), number.alias("row"))


def keys_by_place(df: DataFrame) -> dict[int, set[str | None]]:
    found: dict[int, set[str | None]] = {}
    for place, key in df.select(F.spark_partition_id(), "a key").distinct().collect():
        found.setdefault(place, set()).add(key)
    return found


def test_each_spark_partition_has_the_keys_of_one_member(df: DataFrame) -> None:
    result = repartition_by_owner(df, "a key", RING)

    found = keys_by_place(result)
    assert found.pop(3) == {None}
    for place, keys in found.items():
        assert {RING.lookup(str(key)) for key in keys} == {RING.owners[place]}
    assert result.rdd.getNumPartitions() == 4
    assert result.orderBy("row").collect() == df.orderBy("row").collect()


def test_an_owner_may_have_several_that_share_its_keys(df: DataFrame) -> None:
    found = keys_by_place(repartition_by_owner(df, "a key", RING, partitions_per_owner=3))

    assert found.pop(9) == {None}
    assert sorted(found) == list(range(9))
    keys = [str(key) for keys in found.values() for key in keys]
    assert len(keys) == len(set(keys)) == 490
    for place, part in found.items():
        assert {RING.lookup(str(key)) for key in part} == {RING.owners[place // 3]}


@pytest.mark.parametrize(
    ("per_owner", "places"),
    [(1, [1, 0, 2, 1, 0, 1]), (2, [2, 0, 4, 3, 1, 2])],
)
def test_partitions_of_a_keyspace_stay_whole(
    df: DataFrame, per_owner: int, places: list[int]
) -> None:
    result = repartition_by_owner(df, "a key", KEYSPACE, partitions_per_owner=per_owner)

    for place, keys in keys_by_place(result).items():
        expected = {places[partition_of(key, 6)] if key else max(places) for key in keys}
        assert expected == {place}


def test_without_owners_there_is_nothing_to_partition_by(df: DataFrame) -> None:
    with pytest.raises(NoOwner):
        repartition_by_owner(df, "a key", HashRing())
    with pytest.raises(NoOwner):
        repartition_by_owner(df, "a key", KeyspaceSnapshot("k", 1, (NOBODY,)))


@pytest.mark.parametrize("per_owner", [0, -1, 1 << 20])
def test_a_number_of_partitions_that_cannot_be_is_refused(df: DataFrame, per_owner: int) -> None:
    with pytest.raises(ConfigError, match="partitions_per_owner"):
        repartition_by_owner(df, "a key", RING, partitions_per_owner=per_owner)


def test_a_column_that_holds_no_keys_is_refused(df: DataFrame) -> None:
    with pytest.raises(ConfigError, match="this one is double"):
        repartition_by_owner(df.withColumn("a key", F.rand()), "a key", RING)
