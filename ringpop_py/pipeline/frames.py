"""What is read and what of it is written, as Spark's own DataFrames. No row is looked at here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.errors import ConfigError
from ringpop_py.pipeline.reasons import reason_of
from ringpop_py.pipeline.settings import VALUE_COLUMN
from ringpop_py.spark.arrow.packing import fitted
from ringpop_py.spark.keys import key_type
from ringpop_py.spark.options import quoted, write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ringpop_py.pipeline.settings import Pipeline, Source

VIEW: Final = "source"
"""What is read, as the SQL of a pipeline calls it."""
_INFERENCE: Final = "spark.sql.streaming.schemaInference"


def rows_of(spark: SparkSession, pipeline: Pipeline, *, stream: bool) -> DataFrame:
    """The rows that are written: the key, and what goes with it.

    Args:
        stream: False to have what a stream would read now, as a batch.

    Raises:
        ConfigError: the source cannot be read, or the file asks for what it does not have, or
            for what cannot be stored.
    """
    try:
        found = read_source(spark, pipeline.source, stream=stream)
        key_type(found.schema, pipeline.key)
        chosen = _chosen(found, pipeline)
    except (AnalysisException, ParseException, Py4JJavaError) as error:
        raise ConfigError(f"Spark cannot read it: {reason_of(error)}") from None
    options = write_options(pipeline.sink_options(), streaming=pipeline.stream is not None)
    fitted(options, chosen.schema)  # whether it can be stored
    return chosen


def read_source(spark: SparkSession, source: Source, *, stream: bool) -> DataFrame:
    """What is read, by way of its SQL. Raises Spark's own errors."""
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
        # Files that are there already tell it; Spark does not look unless it is told to.
        spark.conf.set(_INFERENCE, "true")
    paths = source.path
    found: DataFrame = reader.load(
        *([paths[0] if len(paths) == 1 else list(paths)] if paths else [])
    )
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
        raise ConfigError(f"there is nothing but the key {pipeline.key!r}: say columns, or a value")
    return found
