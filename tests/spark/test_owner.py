"""ring_owner and owner_index agree with HashRing for every key."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.base.dialect import RINGPOP
from ringpop_py.base.errors import ConfigError, NoOwner
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.spark import owner, owner_index, ring_owner, tables

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
    import pyarrow as pa
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
