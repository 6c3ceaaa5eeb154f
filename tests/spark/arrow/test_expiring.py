"""Rows of jobs whose keys expire: the instant stands before the packed value."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.types import (
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ringpop_py.base.errors import BadOperation, ConfigError
from ringpop_py.base.values.packed import encode_value
from ringpop_py.spark.arrow.packing import fitted, packed
from ringpop_py.spark.options import write_options
from ringpop_py.spark.source.writer import operation_text
from ringpop_py.spark.typed import kept_schema
from ringpop_py.state.table.due import at_ms_of, plain, stamped

AT = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
AT_MS = 4_102_444_800_000
SCHEMA = StructType(
    [
        StructField("key", StringType()),
        *(StructField(name, LongType()) for name in ("n", "seconds")),
        StructField("until", TimestampType()),
        StructField("wall", TimestampNTZType()),
    ]
)


def written(until: list[Any], **options: str) -> dict[str, bytes]:
    count = len(until)
    rows = {
        "key": pa.array([f"k{n}" for n in range(count)], pa.string()),
        "n": pa.array(range(count), pa.int64()),
        "until": pa.array(until, pa.timestamp("us", "UTC")) if not _are_whole(until) else until,
    }
    given = {"keyspace": "k", **options}
    changes = packed(write_options(given), pa.table(rows))
    return dict(zip(changes.keys.to_pylist(), changes.values.to_pylist(), strict=True))


def _are_whole(until: list[Any]) -> bool:
    return any(isinstance(each, int) for each in until)


def test_a_column_says_when_each_key_expires_and_is_not_part_of_the_value() -> None:
    later = AT + dt.timedelta(microseconds=1)

    stored = written(
        [AT, None, later, dt.datetime(1960, 1, 1, tzinfo=dt.UTC)], expiresAtField="until"
    )

    values = [encode_value("msgpack", {"n": n}) for n in range(4)]
    instants = [AT_MS, None, AT_MS + 1, 1]
    assert list(stored.values()) == list(map(stamped, values, instants))


def test_a_column_of_whole_seconds_says_it_as_well() -> None:
    stored = written([AT_MS // 1_000, None, -5], expiresAtField="until", value="n")

    values = [encode_value("msgpack", n) for n in range(3)]
    assert list(stored.values()) == list(map(stamped, values, [AT_MS, None, 1_000]))


def test_seconds_are_counted_from_when_the_row_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.0)

    stored = written([AT, AT], expiresIn="1.5")

    assert set(map(at_ms_of, stored.values())) == {1_800_000_001_500}
    assert all(plain(each) == each[9:] for each in stored.values())


def test_the_last_row_of_a_key_says_when_it_expires() -> None:
    rows = {"key": ["a", "b", "a"], "n": [1, 2, 3], "at": [10, 20, 30]}

    changes = packed(write_options({"keyspace": "k", "expiresAtField": "at"}), pa.table(rows))

    instants = map(at_ms_of, changes.values.to_pylist())
    assert dict(zip(changes.keys.to_pylist(), instants, strict=True)) == {"b": 20_000, "a": 30_000}


def test_no_rows_and_rows_that_never_expire_are_packed() -> None:
    assert written([], expiresAtField="until") == {}
    assert written([None], expiresAtField="until", value="n") == {"k0": b"\x00"}


def test_milliseconds_in_place_of_seconds_are_refused() -> None:
    with pytest.raises(BadOperation, match="'until': 4102444800000 is too large for seconds since"):
        written([AT_MS], expiresAtField="until")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"expiresIn": "5", "operation": "add"}, "are for operation put"),
        ({"expiresAtField": "until", "operation": "n=add"}, "are for operation put"),
        ({"expiresAtField": "until", "expiresIn": "5"}, "exclude each other"),
        ({"expiresIn": "0"}, "expiresIn is a number of seconds above 0"),
        ({"expiresAtField": "unknown"}, "option expiresAtField: "),
        ({"expiresAtField": "key"}, "is the key, or the value"),
        ({"expiresAtField": "n", "value": "n"}, "is the key, or the value"),
        ({"expiresAtField": "wall"}, r"column 'wall' is a timestamp with a zone.*not timestamp"),
    ],
)
def test_what_cannot_be_is_refused_before_a_task_starts(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        fitted(write_options({"keyspace": "k", **given}), SCHEMA)


def test_the_column_is_found_whatever_its_case_and_no_type_of_it_is_kept() -> None:
    options = fitted(write_options({"keyspace": "k", "expiresAtField": "UNTIL"}), SCHEMA)

    assert options.expires_at == "until"
    assert '"seconds"' in kept_schema(options, SCHEMA)
    assert '"until"' not in kept_schema(options, SCHEMA)


def test_a_job_under_the_same_name_that_expires_otherwise_is_another_operation() -> None:
    given: tuple[dict[str, str], ...]
    given = ({}, {"expiresIn": "5"}, {"expiresIn": "6"}, {"expiresAtField": "until"})

    texts = {operation_text(write_options({"keyspace": "k", **each})) for each in given}

    assert texts == {"put", "put,expiresIn=5", "put,expiresIn=6", "put,expiresAtField=until"}
