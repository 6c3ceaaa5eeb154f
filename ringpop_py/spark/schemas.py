"""Schemas: given by users, and converted to Arrow's."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ringpop_py.base.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLE: Final = "'flights bigint, last_seen timestamp'"


def struct_of(schema: StructType | str) -> StructType:
    """Return *schema*, which may be DDL. Raises ConfigError if it is not columns and types."""
    found: object = schema
    if isinstance(schema, str):
        try:
            found = StructType.fromDDL(schema)
        except PySparkException as error:
            raise ConfigError(f"schema is not a list of columns and types: {error}") from None
    if not isinstance(found, StructType) or not found.names:
        raise ConfigError(
            f"schema is columns and their types, for example {EXAMPLE}, not {schema!r}"
        )
    return found


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return *schema* as tasks see it, with instants in UTC. Raises ConfigError for other types."""
    # Versions of Spark without the argument use UTC; the others the session's zone.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in _PARAMETERS else {}
    try:
        return to_arrow_schema(schema, **zone)
    except PySparkException as error:
        raise ConfigError(f"schema: {error}") from None


_PARAMETERS = inspect.signature(to_arrow_schema).parameters
