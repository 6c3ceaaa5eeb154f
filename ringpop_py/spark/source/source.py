"""The data source ``ringpop``: a keyspace as the target of DataFrames and streams, and as one.

```python
spark.dataSource.register(RingpopDataSource)
flights = {"keyspace": "flights", "key": "tailnum"}
df.write.format("ringpop").options(**flights).mode("append").save()
spark.read.format("ringpop").options(**flights).load()
```

Spark makes one for each read, write and batch, in a process of Python next to the driver; what is
raised here reaches the user as an `AnalysisException` with the message in it. Whatever can be
found out before a task starts is: options, columns, and whether the keyspace is there.

Filters are not pushed down: some versions of Spark that have that for sources in Python give wrong
results when one loaded DataFrame is used with two filters. Which keys to read is an option.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSource

from ringpop_py.errors import (
    ApplicationError,
    ConfigError,
    KeyspaceConflict,
    KeyspaceUnknown,
)
from ringpop_py.spark.arrow.packing import fitted
from ringpop_py.spark.options import read_options, write_options
from ringpop_py.spark.source.patience import Patience, job_client, reached
from ringpop_py.spark.source.scan import inferred_schema, scan_of
from ringpop_py.spark.source.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceWriter
    from pyspark.sql.types import StructType

    from ringpop_py.client.client import Client
    from ringpop_py.spark.options import WriteOptions

CREATE_TIMEOUT_S: Final = 30.0


class RingpopDataSource(DataSource):
    """See the module, and `ringpop_py.spark.options` for what can be said."""

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "ringpop"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        """Of one DataFrame.

        Raises:
            ConfigError: an option or a column cannot be used.
            KeyspaceUnknown: there is no such keyspace.
            ConnectFailed: no daemon answers, by the end of the schedule of retries.
        """
        options = write_options(self.options)
        if overwrite:
            raise ConfigError(
                "mode overwrite would have to delete all other keys, which no job does: use mode"
                " append, where operation put replaces the values of the keys that come; or drop"
                " the keyspace and create it anew"
            )
        options = fitted(options, schema)
        _prepare(options)
        if options.job is None:
            return BatchWriter(options, f"batch-{secrets.token_hex(12)}", named=False)
        patience = Patience(options.target)
        with job_client(options.target, options.job, follow=True, patience=patience) as standing:
            return BatchWriter(options, standing.job, named=True)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ANN401, FBT001, N802 - Spark's
        """Of one batch; or only of its commit. Raises as `writer`."""
        options = write_options(self.options, streaming=True)
        if overwrite and options.operation != "put":
            raise ConfigError(
                f"output mode complete sends the whole result again with each batch, and operation"
                f" {options.operation} would add it to what is there: use operation put, or output"
                " mode append"
            )
        options = fitted(options, schema)
        _prepare(options)
        return StreamWriter(options)

    def schema(self) -> StructType:
        """Of what is read, where the user gives none: what some of the values have in common.

        Raises:
            ConfigError: they have nothing in common, or there is none.
        """
        return inferred_schema(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of a keyspace as it is while it is read.

        Raises:
            ConfigError: an option or a column of *schema* cannot be used.
        """
        return scan_of(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802 - Spark's
        """There is none."""
        raise ConfigError(
            "a keyspace cannot be read as a stream: its log keeps what became of keys only until"
            " the next checkpoint, so changes would be lost; read it as a batch (spark.read), or"
            " write the stream to both"
        )


def _prepare(options: WriteOptions) -> None:
    """See that the keyspace can take a job; create it, if that was asked for.

    With patience: a stream comes here for each batch and each commit, and is not to end because
    its daemon is away for a moment.
    """
    target = options.target
    patience = Patience(target)
    with job_client(target, "none", patience=patience) as jobs:  # only its keyspace is asked about
        try:
            described = patience(jobs.describe)
        except KeyspaceUnknown as error:
            if not options.create:
                raise KeyspaceUnknown(
                    f"{error}; create it (ringpopctl keyspace create {target.keyspace}), or say"
                    " option('createKeyspace', 'true')"
                ) from None
            with reached(target, patience) as client:
                _create(client, options)
            return
    if options.partitions not in (None, described.partitions_count):
        raise KeyspaceConflict(
            f"keyspace {target.keyspace!r} is there already, with {described.partitions_count}"
            f" partitions, not {options.partitions}: leave partitions out"
        )


def _create(client: Client, options: WriteOptions) -> None:
    name = options.target.keyspace
    body: dict[str, Any] = {"name": name}
    if options.partitions is not None:
        body["partitions"] = options.partitions
    try:
        client.admin("/admin/keyspaces/create", body, timeout_s=CREATE_TIMEOUT_S)
    except ApplicationError as error:
        raise ConfigError(f"keyspace {name!r} cannot be created: {error.message}") from None
