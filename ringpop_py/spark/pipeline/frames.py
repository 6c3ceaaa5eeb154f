"""The DataFrames of a pipeline: what it reads, and what it writes. No row is read here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.base.errors import ConfigError
from ringpop_py.spark.arrow.packing import fitted
from ringpop_py.spark.combining import COMBINED, combined
from ringpop_py.spark.keys import column_named, key_type
from ringpop_py.spark.options import quoted, write_options
from ringpop_py.spark.pipeline.session import reason_of
from ringpop_py.spark.pipeline.settings import VALUE_COLUMN
from ringpop_py.spark.source.kept import check_operations, check_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ringpop_py.spark.pipeline.settings import Pipeline, Source

VIEW: Final = "source"
"""The name of the source's rows in the SQL of a pipeline."""
_INFERENCE: Final = "spark.sql.streaming.schemaInference"


def rows_of(spark: SparkSession, pipeline: Pipeline, *, stream: bool) -> DataFrame:
    """Return the rows to write: the key, and the columns that are stored under it.

    Args:
        stream: False to read as a batch what a stream would read now.

    Raises:
        ConfigError: if the source cannot be read, lacks a column that the file names, or has values
            that cannot be stored; if no member knows an operation; or if the keyspace has values of
            other types.
        ConnectFailed: if no daemon answers.
    """
    try:
        found = read_source(spark, pipeline.source, stream=stream)
        key_type(found.schema, pipeline.key)
        chosen = _chosen(found, pipeline)
    except (AnalysisException, ParseException, Py4JJavaError) as error:
        raise ConfigError(f"Spark cannot read the source: {reason_of(error)}") from None
    options = write_options(pipeline.sink_options(), streaming=pipeline.stream is not None)
    options = fitted(options, chosen.schema)
    check_operations(options)
    check_types(options, chosen.schema)
    return chosen


def combined_rows(rows: DataFrame, pipeline: Pipeline) -> tuple[DataFrame, str]:
    """Return *rows*, a result of `rows_of`, combined if Spark can do that; and a text about it."""
    key = column_named(pipeline.key, rows.columns)
    by_column = {column.name: column.aggregation for column in pipeline.columns}
    if not by_column:
        # A count has no column yet; this name is not that of the key.
        names = [name for name in rows.columns if name != key] or [f"{key} count"]
        by_column = dict.fromkeys(names, pipeline.operation)
    others = sorted({*by_column.values()}.difference(COMBINED))
    if pipeline.stream is not None:
        why = "it is a stream"
    elif not pipeline.combine:
        why = "combine is false"
    elif others:
        why = f"Spark cannot combine for {', '.join(others)}"
    else:
        try:
            return combined(rows, key, by_column), "Spark combines all rows of a key first"
        except ConfigError as error:
            why = str(error)
    return rows, f"each task combines its own rows: {why}"


def read_source(spark: SparkSession, source: Source, *, stream: bool) -> DataFrame:
    """Return the rows of *source*, after its SQL. Raises Spark's own errors."""
    found = _read(spark, source, stream=stream)
    if source.sql is None:
        return found
    found.createOrReplaceTempView(VIEW)
    return spark.sql(source.sql)


def _read(spark: SparkSession, source: Source, *, stream: bool) -> DataFrame:
    reader: Any = spark.readStream if stream else spark.read
    if source.table is not None:
        named: DataFrame = reader.options(**source.options).table(source.table)
        return named
    assert source.format is not None
    reader = reader.format(source.format).options(**source.options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    elif stream:
        # Spark infers a stream's schema from the files that exist, but only with this setting.
        spark.conf.set(_INFERENCE, "true")
    # Not every format takes a list, and a stream never does.
    path = source.path[0] if len(source.path) == 1 else list(source.path) or None
    found: DataFrame = reader.load(path)
    return found


def _chosen(found: DataFrame, pipeline: Pipeline) -> DataFrame:
    key = found[quoted(pipeline.key)]
    if pipeline.columns:
        columns = [F.expr(column.value).alias(column.name) for column in pipeline.columns]
        return found.select(key, *columns)
    if pipeline.operation == "count":
        return found.select(key)
    if pipeline.value is not None:
        return found.select(key, F.expr(pipeline.value).alias(VALUE_COLUMN))
    if len(found.columns) == 1:
        raise ConfigError(f"the source has only the key {pipeline.key!r}: give columns, or a value")
    return found
