"""ring_owner and owner_index agree with HashRing for every key."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.base.dialect import RINGPOP
from ringpop_py.base.errors import ConfigError, NoOwner
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.spark import owner, owner_index, partition_owner, ring_owner, ring_partition, tables
from ringpop_py.spark.snapshot import KeyspaceSnapshot
from ringpop_py.state.placement.keys import Placing

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(360)]

ODD_KEYS = ["", " ", "\x00", "ключ", "鍵", "😀", "e\u0301", "\uffff", "\U0010ffff", "x" * 100_000]


def ring_of(count: int) -> HashRing:
    return HashRing([f"10.0.0.{index}:3000" for index in range(count)])


@pytest.fixture(scope="module")
def keys() -> list[str]:
    rng = random.Random(7)
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789-_:äß漢😀"
    drawn = ("".join(rng.choices(alphabet, k=rng.randrange(1, 40))) for _ in range(20_000))
    return [*ODD_KEYS, *drawn]


@pytest.fixture(scope="module")
def frame(
    spark: SparkSession, keys: list[str], tmp_path_factory: pytest.TempPathFactory
) -> DataFrame:
    import pyarrow.parquet as pq

    path: Path = tmp_path_factory.mktemp("keys") / "keys.parquet"
    pq.write_table(pa.table({"key": pa.array(keys)}), path)
    return spark.read.parquet(str(path))


@pytest.mark.parametrize("members_count", [1, 5, 1_000])
def test_ring_owner_is_lookup_for_every_key(
    frame: DataFrame, keys: list[str], members_count: int
) -> None:
    ring = ring_of(members_count)

    rows = frame.select("key", ring_owner("key", ring), owner_index(F.col("key"), ring)).toArrow()

    assert sorted(rows.column(0).to_pylist()) == sorted(keys)
    found = rows.column(0).to_pylist()
    assert rows.column(1).to_pylist() == ring.lookup_many(found)
    assert rows.column(2).to_pylist() == ring.owner_indexes(found).tolist()


def test_partitions_with_hash_tags_are_those_of_the_keyspace_for_every_key(
    spark: SparkSession, keys: list[str]
) -> None:
    rng = random.Random(11)
    alphabet = "{}{}{}a:é漢😀\n\x00"
    drawn = ["".join(rng.choices(alphabet, k=rng.randrange(1, 12))) for _ in range(20_000)]
    short = ["".join(some) for size in range(6) for some in product("{}aé", repeat=size)]
    texts = [*keys, *drawn, *short, "{" * 100_000, "{" + "x" * 100_000 + "}"]
    placing = Placing(251, hash_tags=True)
    served = KeyspaceSnapshot("k", 1, tuple(f"m{n % 5}" for n in range(251)), hash_tags=True)
    rows = spark.createDataFrame(pa.table({"key": texts}))

    found = rows.select(
        "key", ring_partition("key", 251, hash_tags=True), partition_owner("key", served)
    ).toArrow()

    expected = placing.partitions_of(found.column(0).to_pylist())
    assert sorted(found.column(0).to_pylist()) == sorted(texts)
    assert found.column(1).to_pylist() == expected
    assert found.column(2).to_pylist() == [served.owners[number] for number in expected]


@pytest.mark.parametrize("members_count", [1, 40])
def test_a_session_without_a_jvm_at_hand_has_the_same_owners(
    frame: DataFrame, monkeypatch: pytest.MonkeyPatch, members_count: int
) -> None:
    ring = ring_of(members_count)
    for module in (owner, tables):
        monkeypatch.setattr(module, "driver", lambda: None)

    rows = frame.limit(5_000).select("key", ring_owner("key", ring)).toArrow()

    assert rows.column(1).to_pylist() == ring.lookup_many(rows.column(0).to_pylist())


def test_columns_have_short_names_and_of_the_tables_a_plan_prints_the_names_of_owners_alone(
    frame: DataFrame,
) -> None:
    ring = ring_of(100)

    placed = frame.select(ring_owner("key", ring), owner_index("key", ring))

    assert placed.columns == ["owner", "owner_index"]
    names = sum(len(name) + 1 for name in ring.owners)
    plans = placed._jdf.queryExecution().toString()
    assert len(plans) < 20_000 + plans.count(ring.owners[0]) * names
    alone = frame.select(ring_owner("key", ring))
    assert len(alone._jdf.queryExecution().executedPlan().toString()) < 3_000 + names


def test_a_table_that_is_too_small_for_its_points_changes_no_owner(
    frame: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "SLOTS_MAX", 16)
    ring = ring_of(5)

    rows = frame.limit(5_000).select("key", ring_owner("key", ring)).toArrow()

    assert rows.column(1).to_pylist() == ring.lookup_many(rows.column(0).to_pylist())


def test_a_key_that_is_null_has_no_owner(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(None,), ("a",)], "key string")

    rows = frame.select(ring_owner("key", ring_of(3)), owner_index("key", ring_of(3))).collect()

    assert tuple(rows[0]) == (None, None)
    assert rows[1][0] == ring_of(3).lookup("a")


def test_the_ringpop_dialect_is_refused() -> None:
    with pytest.raises(ConfigError, match="32-bit"):
        ring_owner("key", HashRing(["a", "b"], dialect=RINGPOP))


def test_an_empty_ring_is_refused(spark: SparkSession) -> None:
    del spark  # a column needs a session
    with pytest.raises(NoOwner):
        ring_owner("key", HashRing())


def test_too_many_points_are_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    del spark
    monkeypatch.setattr(owner, "POINTS_MAX", 99)
    with pytest.raises(ConfigError, match="at most 99 points"):
        ring_owner("key", ring_of(1))
