"""The data source ``ringpop``: write DataFrames and streams into a keyspace, and read one.

```python
spark.dataSource.register(RingpopDataSource)
flights = {"keyspace": "flights", "key": "tailnum"}
df.write.format("ringpop").options(**flights).mode("append").save()
spark.read.format("ringpop").options(**flights).load()
```

Spark makes one for each read, write and batch, in a process of Python next to the driver; errors
raised here reach the user in an `AnalysisException`. Options, columns and the keyspace are checked
before a task starts.

Filters are not pushed down: some versions of Spark that can push them into sources in Python return
wrong results if one loaded DataFrame is used with two filters. The option ``keys`` selects keys.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSource

from ringpop_py.base.errors import ApplicationError, ConfigError, KeyspaceConflict, KeyspaceUnknown
from ringpop_py.spark.arrow.packing import fitted
from ringpop_py.spark.options import read_options, write_options
from ringpop_py.spark.source.kept import check_operations, kept_schemas
from ringpop_py.spark.source.patience import Patience, job_client, reached
from ringpop_py.spark.source.scan import inferred_schema, scan_of
from ringpop_py.spark.source.shuffled import (
    ShuffleBatchWriter,
    ShuffleStreamWriter,
    is_shuffle,
    shuffle_options,
)
from ringpop_py.spark.source.writer import BatchWriter, StreamWriter
from ringpop_py.spark.typed import kept_in, kept_schema, refuse_other_types

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceWriter
    from pyspark.sql.types import StructType

    from ringpop_py.spark.options import WriteOptions

CREATE_TIMEOUT_S: Final = 30.0


class RingpopDataSource(DataSource):
    """The data source; its options are in `ringpop_py.spark.options`."""

    @classmethod
    def name(cls) -> str:
        """Return its name in `format`."""
        return "ringpop"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        """Return the writer of one DataFrame.

        Raises:
            ConfigError: an option or a column cannot be used.
            KeyspaceUnknown: the keyspace does not exist.
            ConnectFailed: no daemon answered, after all retries.
        """
        if is_shuffle(self.options):
            if overwrite:
                raise ConfigError("a shuffle is not overwritten: delete it first, and use append")
            return ShuffleBatchWriter(shuffle_options(self.options), schema)
        options = write_options(self.options)
        if overwrite:
            raise ConfigError(
                "mode overwrite would have to delete all other keys, which no job does: use mode"
                " append, in which operation put replaces the values of the written keys; or drop"
                " the keyspace and create it again"
            )
        options = _prepared(options, schema)
        if options.job is None:
            return BatchWriter(options, f"batch-{secrets.token_hex(12)}", named=False)
        patience = Patience(options.target)
        with job_client(options.target, options.job, follow=True, patience=patience) as standing:
            return BatchWriter(options, standing.job, named=True)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ANN401, FBT001, N802 - Spark's
        """Return the writer of one batch, or of its commit only. Raises as `writer` does."""
        if is_shuffle(self.options):
            if overwrite:
                raise ConfigError("a shuffle is not overwritten: use output mode append")
            return ShuffleStreamWriter(shuffle_options(self.options), schema)
        options = write_options(self.options, streaming=True)
        if overwrite and options.operation != "put":
            raise ConfigError(
                f"output mode complete sends the whole result again with each batch, and operation"
                f" {options.operation} would add it to what is there: use operation put, or output"
                " mode append"
            )
        return StreamWriter(_prepared(options, schema))

    def schema(self) -> StructType:
        """Return the columns for a read without a schema, inferred from a sample of the values.

        Raises:
            ConfigError: there is no value, or no columns hold all of them.
        """
        return inferred_schema(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the keyspace.

        Raises:
            ConfigError: an option or a column of *schema* cannot be used.
        """
        return scan_of(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802 - Spark's
        """Refuse to read a stream."""
        raise ConfigError(
            "a keyspace cannot be read as a stream: its log has the changes of keys only until"
            " the next checkpoint, so changes would be lost; read it as a batch (spark.read), or"
            " write the stream to both"
        )


def _prepared(options: WriteOptions, schema: StructType) -> WriteOptions:
    """Return *options*, `fitted`; check the keyspace, or create it if that was asked for."""
    options = fitted(options, schema)
    options = replace(options, schema=kept_schema(options, schema))
    check_operations(options)
    target = options.target
    # A stream comes here for each batch and each commit: retries keep it alive while its daemon is
    # away for a moment.
    patience = Patience(target)
    with job_client(target, "none", patience=patience) as jobs:  # only its keyspace is asked about
        try:
            described = patience(jobs.describe)
        except KeyspaceUnknown as error:
            if not options.create:
                raise KeyspaceUnknown(
                    f"{error}; create it (ringpopctl keyspace create {target.keyspace}), or set"
                    " option('createKeyspace', 'true')"
                ) from None
            patience(partial(_create, options))
            return options
        refuse_other_types(options, options.schema, kept_in(kept_schemas(jobs, patience)))
    if options.partitions not in (None, described.partitions_count):
        raise KeyspaceConflict(
            f"keyspace {target.keyspace!r} exists already, with {described.partitions_count}"
            f" partitions, not {options.partitions}: leave partitions out"
        )
    return options


def _create(options: WriteOptions) -> None:
    """Create the keyspace; again if it is there, which changes nothing."""
    name = options.target.keyspace
    body: dict[str, Any] = {"name": name}
    if options.partitions is not None:
        body["partitions"] = options.partitions
    try:
        with reached(options.target) as client:
            client.admin("/admin/keyspaces/create", body, timeout_s=CREATE_TIMEOUT_S)
    except ApplicationError as error:
        raise ConfigError(f"keyspace {name!r} cannot be created: {error.message}") from None
