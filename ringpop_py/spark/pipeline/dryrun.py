"""Dry runs: a pipeline's schema, its plan, and the owners of its rows. Nothing is written."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.base.errors import ConfigError, PipelineFailed
from ringpop_py.spark.keys import key_text
from ringpop_py.spark.options import quoted
from ringpop_py.spark.owner import ring_partition
from ringpop_py.spark.pipeline.frames import combined_rows, rows_of
from ringpop_py.spark.pipeline.session import reason_of
from ringpop_py.spark.pipeline.target import PipelineTarget, TargetOwnership

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ringpop_py.spark.pipeline.settings import Pipeline


class Field(NamedTuple):
    """A column that would be written; *role* is "key", or its operation."""

    name: str
    type: str
    role: str


class MemberShare(NamedTuple):
    """The part of the sample that one owner would get."""

    rows: int
    keys: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The first rows of the source, by their owners.

    Attributes:
        keys: the number of different keys.
        busiest: the key with the most rows, and their number; None if no row has a key.
    """

    rows: int
    null_keys: int
    keys: int
    busiest: tuple[str, int] | None
    shares: dict[str, MemberShare]


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run.

    Attributes:
        combining: which rows Spark combines before they are written.
        sample: None if a stream's source cannot be read as a batch; *no_sample* says why.
    """

    pipeline: Pipeline
    fields: tuple[Field, ...]
    plan: str
    combining: str
    ownership: TargetOwnership
    sample: Sample | None
    no_sample: str = ""


def dry_run(spark: SparkSession, pipeline: Pipeline) -> DryRun:
    """Find out what *pipeline* would do.

    Raises:
        ConfigError: if it names something that does not exist.
        ConnectFailed: if no daemon answers.
        PipelineFailed: if Spark cannot read the sample of a batch.
    """
    rows = rows_of(spark, pipeline, stream=pipeline.stream is not None)
    ownership = PipelineTarget(pipeline.target, pipeline.keyspace).ownership()
    plan = io.StringIO()
    written, combining = combined_rows(rows, pipeline)
    with redirect_stdout(plan):  # Spark only prints it
        written.explain("formatted")
    sample, why = None, ""
    try:
        if pipeline.stream is not None:
            rows = rows_of(spark, pipeline, stream=False)
        sample = _sample(rows, pipeline, ownership)
    except (ConfigError, PySparkException) as error:
        why = reason_of(error)
        if pipeline.stream is None:
            raise PipelineFailed(why) from None
    fields = _fields(rows, pipeline)
    return DryRun(pipeline, fields, plan.getvalue().strip(), combining, ownership, sample, why)


def _fields(rows: DataFrame, pipeline: Pipeline) -> tuple[Field, ...]:
    aggregations = {column.name: column.aggregation for column in pipeline.columns}
    single = pipeline.value is not None or pipeline.operation == "count"
    fields = []
    for field in rows.schema:
        role = aggregations.get(field.name, pipeline.operation)
        if field.name == pipeline.key:
            role = "key"
        elif not single:
            role += ", an entry of the map"
        fields.append(Field(field.name, field.dataType.simpleString(), role))
    return tuple(fields)


def _sample(rows: DataFrame, pipeline: Pipeline, ownership: TargetOwnership) -> Sample:
    key = key_text(quoted(pipeline.key))
    by_key = rows.select(key.alias("key")).limit(pipeline.sample_rows).groupBy("key").count()
    partition = ring_partition("key", len(ownership.owners))
    found = (
        by_key.groupBy(partition.alias("partition"))
        .agg(
            F.sum("count").alias("rows"),
            F.count("key").alias("keys"),  # not the null key, which has no partition either
            F.max(F.when(F.col("key").isNotNull(), F.struct("count", "key"))).alias("busiest"),
        )
        .collect()
    )
    keyed = [row for row in found if row.partition is not None]
    busiest = max(((row.busiest["count"], row.busiest.key) for row in keyed), default=None)
    shares = dict.fromkeys(sorted(set(ownership.owners)), MemberShare(0, 0))
    for row in keyed:
        owner = ownership.owners[row.partition]
        before = shares[owner]
        shares[owner] = MemberShare(before.rows + row.rows, before.keys + row.keys)
    return Sample(
        rows=sum(row.rows for row in found),
        null_keys=sum(row.rows for row in found if row.partition is None),
        keys=sum(row.keys for row in keyed),
        busiest=None if busiest is None else (busiest[1], busiest[0]),
        shares=shares,
    )
