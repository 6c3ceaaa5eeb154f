"""The data source ``ringpop``: a keyspace as the target and the origin of DataFrames.

```python
spark.dataSource.register(RingpopDataSource)
df.write.format("ringpop").option("keyspace", "flights").option("key", "tailnum").mode("append").save()
spark.read.format("ringpop").option("keyspace", "flights").option("key", "tailnum").load()
```

Spark makes one for each read, write and batch, in a process of Python next to the driver; what is
raised here reaches the user as an `AnalysisException` with the message in it. Whatever can be
found out before a task starts is: options, columns, and whether the keyspace is there.

Filters are not pushed down: of the versions of Spark that have that for sources in Python, some
give wrong results when one loaded DataFrame is used with two filters. Keys are an option.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSource

from ringpop_py.errors import (
    ApplicationError,
    CallError,
    ConfigError,
    KeyspaceConflict,
    KeyspaceUnknown,
)
from ringpop_py.spark.options import read_options, write_options
from ringpop_py.spark.packing import packing_of
from ringpop_py.spark.reaching import job_client, reached
from ringpop_py.spark.writing import BatchWriter, Plan, StreamWriter, successor

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from ringpop_py.client import Client
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
            ConnectFailed: no daemon answers.
        """
        options = write_options(self.options)
        if overwrite:
            message = (
                "mode overwrite would have to delete all other keys, which no job does: use mode"
                " append, where operation put replaces the values of the keys that come; or drop"
                " the keyspace and create it anew"
            )
            raise ConfigError(message)
        plan = Plan(options, packing_of(options, schema))
        _prepare(options)
        if options.job is None:
            return BatchWriter(plan, f"batch-{secrets.token_hex(12)}", named=False)
        return BatchWriter(plan, successor(options.target, options.job), named=True)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ANN401, FBT001, N802 - Spark's
        """Of one batch; or only of its commit. Raises as `writer`."""
        options = write_options(self.options, streaming=True)
        if overwrite and options.operation != "put":
            message = (
                f"output mode complete sends the whole result again with each batch, and operation"
                f" {options.operation} would add it to what is there: use operation put, or output"
                " mode append"
            )
            raise ConfigError(message)
        plan = Plan(options, packing_of(options, schema))
        _prepare(options)
        return StreamWriter(plan)

    def schema(self) -> StructType:
        """Of what is read, where the user gives none: by a sample."""
        raise NotImplementedError

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of a keyspace as it is."""
        raise NotImplementedError

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        """There is none."""
        _no_stream()

    def simpleStreamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802 - Spark's
        """There is none."""
        _no_stream()


def _no_stream() -> NoReturn:
    message = (
        "a keyspace cannot be read as a stream: its log keeps what became of keys only until the"
        " next checkpoint, so changes would be lost; read it as a batch (spark.read), or write"
        " the stream to both"
    )
    raise ConfigError(message)


def _prepare(options: WriteOptions) -> None:
    """See that the keyspace can take a job; create it, if that was asked for."""
    target = options.target
    with reached(target) as client:
        if options.create_partitions is not None:
            _create(client, target.keyspace, options.create_partitions)
    with job_client(target, "none") as jobs:
        try:
            jobs.describe()
        except KeyspaceUnknown as error:
            message = (
                f"{error}: create it first (ringpopctl keyspace create {target.keyspace}), or say"
                " option('createKeyspace', 'true')"
            )
            raise KeyspaceUnknown(message) from None


def _create(client: Client, name: str, partitions: int) -> None:
    body = {"name": name, "partitions": partitions}
    try:
        client.admin("/admin/keyspaces/create", body, timeout_s=CREATE_TIMEOUT_S)
    except ApplicationError as error:
        kind = KeyspaceConflict if error.kind == "KeyspaceConflict" else ConfigError
        message = f"keyspace {name!r} cannot be created: {error.message}"
        raise kind(message) from None
