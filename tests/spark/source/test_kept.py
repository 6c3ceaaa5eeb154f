"""Types that are kept with a keyspace, as the driver asks for them and keeps its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructType

from ringpop_py.base.errors import ConfigError, StateDamaged, StoreUnavailable
from ringpop_py.spark.options import WriteOptions, write_options
from ringpop_py.spark.source.kept import keep_types
from ringpop_py.spark.source.patience import Patience
from ringpop_py.spark.typed import kept_schema


class Jobs:
    """The schemas of a keyspace, in memory; *quicker* comes between our question and our own."""

    def __init__(self, *kept: str, quicker: str = "") -> None:
        self.kept = list(kept)
        self.quicker = quicker
        self.error: Exception | None = None

    def schemas(self, keep: str = "") -> list[str]:
        if self.error is not None:
            raise self.error
        for each in (self.quicker, keep) if keep else ():
            if each and each not in self.kept:
                self.kept.append(each)
        return self.kept


def of(kind: DataType) -> WriteOptions:
    options = write_options({"keyspace": "k", "key": "id", "maxRetries": "0"})
    schema = StructType().add("id", StringType()).add("n", kind)
    return replace(options, schema=kept_schema(options, schema))


INT, BIGINT, TEXT = of(IntegerType()), of(LongType()), of(StringType())


def keep(options: WriteOptions, jobs: Jobs) -> None:
    keep_types(options, cast(Any, jobs), Patience(options.target))


def test_only_wider_types_are_added_to_those_that_are_kept() -> None:
    jobs = Jobs()

    for each in (INT, BIGINT, INT, BIGINT):
        keep(each, jobs)
    with pytest.raises(ConfigError, match="column 'n'"):
        keep(TEXT, jobs)
    keep(replace(TEXT, schema=""), jobs)

    assert jobs.kept == [INT.schema, BIGINT.schema]


def test_of_two_jobs_that_begin_together_the_first_that_keeps_its_types_decides() -> None:
    with pytest.raises(ConfigError, match="would leave string, and keyspace 'k' has it as int"):
        keep(TEXT, Jobs(quicker=INT.schema))
    later = Jobs(TEXT.schema, quicker="")
    later.kept.append(INT.schema)  # of the other, which was refused

    keep(TEXT, later)


def test_types_that_cannot_be_read_fail_no_job_but_a_store_that_is_away_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = Jobs()
    jobs.error = StateDamaged("a bit was flipped")
    keep(INT, jobs)
    assert "the types of columns are not known: a bit was flipped" in caplog.text

    jobs.error = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        keep(INT, jobs)
