"""One rule for keys: columns of Spark, the ring, partitions and daemons agree on each of them."""

from __future__ import annotations

import random
import unicodedata
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ringpop_py.base.errors import BadKey, ConfigError
from ringpop_py.client.sync.client import Client
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.spark import ring_owner, ring_partition, ring_snapshot
from ringpop_py.spark.keys import (
    key_text,
    key_texts,
    key_type,
    refuse_null_keys,
)
from ringpop_py.state.placement.keys import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(360)]

RING = HashRing([f"10.0.0.{index}:3000" for index in range(30)])
PARTITIONS_COUNT = 1_000
LONGS = [0, -1, 7, 127, -128, 32_767, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
TEXTS = [
    "",
    " ",
    "\x00",
    "7",
    "-1",
    "Ä",
    "A\u0308",
    "\ufb01",
    "fi",
    "😀",
    "\U0010ffff",
    "x" * 70_000,
]


def random_text(rng: random.Random) -> str:
    """Any text that UTF-8 can carry, of all planes."""
    highest = rng.choice([0x7F, 0xFF, 0xD7FF, 0x10FFFF])
    drawn = (rng.randrange(highest + 1) for _ in range(rng.randrange(12)))
    text = "".join(chr(point) for point in drawn if not 0xD800 <= point <= 0xDFFF)
    return unicodedata.normalize(rng.choice(["NFC", "NFD"]), text)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = random.Random(3)
    return [*TEXTS, *(random_text(rng) for _ in range(5_000))]


@pytest.fixture(scope="module")
def longs() -> list[int]:
    rng = random.Random(4)
    drawn = (rng.getrandbits(rng.randrange(1, 64)) for _ in range(2_000))
    return [*LONGS, *(number * rng.choice([1, -1]) for number in drawn)]


def placed(df: DataFrame) -> list[tuple[str | None, int | None]]:
    """Owner and partition of the column ``key``, in the order of *df*'s only partition."""
    places = df.select(ring_owner("key", RING), ring_partition("key", PARTITIONS_COUNT)).toArrow()
    return list(zip(*(column.to_pylist() for column in places.columns), strict=True))


def expected(texts: list[str]) -> list[tuple[str | None, int | None]]:
    return [(RING.lookup(text), partition_of(text, PARTITIONS_COUNT)) for text in texts]


def frame(spark: SparkSession, keys: pa.Array) -> DataFrame:
    return spark.createDataFrame(pa.table({"key": keys})).coalesce(1)


def test_each_text_is_placed_as_a_node_places_it(spark: SparkSession, texts: list[str]) -> None:
    assert placed(frame(spark, pa.array(texts))) == expected(texts)


def test_binary_is_placed_as_the_text_with_these_bytes(
    spark: SparkSession, texts: list[str]
) -> None:
    # Text that UTF-8 cannot carry has bytes all the same.
    strange = [*texts, "\ud800", "a\udfff"]
    keys = pa.array([text.encode("utf-8", "surrogatepass") for text in strange])

    assert placed(frame(spark, keys)) == expected(strange)


def test_binary_that_is_no_text_has_a_place_by_its_bytes(spark: SparkSession) -> None:
    keys = [b"\xff", b"\x80abc", b"\xc3"]

    places = placed(frame(spark, pa.array(keys)))

    owners = [RING.lookup_hash(RING.dialect.hash_bytes(key)) for key in keys]
    assert [owner for owner, _ in places] == owners


@pytest.mark.parametrize(
    ("kind", "bits"), [(pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32), (pa.int64(), 64)]
)
def test_an_integer_is_placed_as_its_decimal_text(
    spark: SparkSession, longs: list[int], kind: pa.DataType, bits: int
) -> None:
    fitting = [number for number in longs if -(1 << bits - 1) <= number < 1 << bits - 1]

    places = placed(frame(spark, pa.array(fitting, kind)))

    assert places == expected([str(number) for number in fitting])


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int64()])
def test_no_key_has_no_place(spark: SparkSession, kind: pa.DataType) -> None:
    assert placed(frame(spark, pa.array([None], kind))) == [(None, None)]


@pytest.mark.e2e
def test_a_daemon_places_keys_likewise(
    spark: SparkSession, cluster: Cluster, texts: list[str]
) -> None:
    some = texts[::50]
    ring = ring_snapshot(cluster.addresses)

    owners = frame(spark, pa.array(some)).select(ring_owner("key", ring)).toArrow().column(0)

    with Client(cluster.addresses[0]) as client:
        assert owners.to_pylist() == [client.lookup(text) for text in some]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("'a' COLLATE UTF8_LCASE", "string collate UTF8_LCASE"),
        ("1.5D", "double"),
        ("1.5", "decimal"),
        ("true", "boolean"),
        ("current_date()", "date"),
    ],
)
def test_a_column_whose_text_is_not_certain_is_refused_with_what_to_do(
    spark: SparkSession, column: str, kind: str
) -> None:
    df = spark.sql(f"SELECT {column} AS key")

    with pytest.raises(
        ConfigError, match=rf"'key': .* this one is {kind}.*; cast it first.*'string"
    ):
        key_type(df.schema, "key")
    with pytest.raises(Exception, match=rf"this one is {kind}.*; cast it first.*'string"):
        df.select(key_text("key")).collect()


def test_a_cast_key_is_accepted(spark: SparkSession) -> None:
    df = spark.sql("SELECT 'a' COLLATE UTF8_LCASE AS key, 1")
    cast = df.withColumn("key", df["key"].cast("string"))

    assert key_type(cast.schema, "key") == "string"
    assert placed(cast) == expected(["a"])


def test_the_test_of_a_type_is_no_part_of_the_plan(spark: SparkSession) -> None:
    df = spark.range(1).select(ring_partition("id", 7))

    plan = df._jdf.queryExecution().executedPlan().toString()

    assert "cast(id#" in plan
    assert "raise_error(" not in plan.replace("ELSE raise_error(", "")


def test_a_column_that_is_not_there_or_twice_is_refused(spark: SparkSession) -> None:
    df = spark.sql("SELECT 'a' AS key, 'b' AS key")

    with pytest.raises(ConfigError, match="2 columns are called 'key'"):
        key_type(df.schema, "key")
    with pytest.raises(ConfigError, match="no column 'kye'; there are 'key'"):
        key_type(df.schema, "kye")


@pytest.mark.parametrize("count", [0, -1, 16_385])
def test_a_number_of_partitions_that_no_keyspace_has_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match="1 to 16384 partitions"):
        ring_partition("key", count)


# In a task, without Spark.


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["7", None, "é"]),
        pa.array(["7", None, "é"], pa.large_string()),
        pa.array([b"7", None, "é".encode()]),
        pa.array([b"7", None, "é".encode()], pa.large_binary()),
    ],
)
def test_texts_of_arrow_keys_are_those_of_spark(keys: pa.Array) -> None:
    assert key_texts(keys).to_pylist() == ["7", None, "é"]


def test_texts_of_integers_are_decimal(longs: list[int]) -> None:
    assert key_texts(pa.array(longs)).to_pylist() == [str(number) for number in longs]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_binary()])
def test_bytes_that_are_no_text_are_no_key(kind: pa.DataType) -> None:
    keys = (
        pa.array([b"a", b"\xff"]).view(kind) if kind == pa.string() else pa.array([b"\xff"], kind)
    )

    with pytest.raises(BadKey, match="not text"):
        key_texts(keys)


def test_rows_without_a_key_are_refused_with_their_number_and_a_way_out() -> None:
    with pytest.raises(BadKey, match=r"1,234 rows have no key in column 'tailnum'.*onNullKey"):
        refuse_null_keys(1_234, "tailnum")
