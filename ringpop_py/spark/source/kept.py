"""Do the types of a write agree with those that are kept with the keyspace?

This is asked before the first task, and again before the commit, which keeps them. Of two jobs that
begin to write at the same time, the one whose types are kept first decides.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType  # noqa: TC002 - on the driver, which has it loaded

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.spark.source.patience import Patience, job_client
from ringpop_py.spark.typed import kept_in, kept_schema, refuse_other_types, unkept

if TYPE_CHECKING:
    from ringpop_py.client.jobs import JobClient
    from ringpop_py.spark.options import WriteOptions

_log = logging.getLogger(__name__)


def check_types(options: WriteOptions, schema: StructType) -> None:
    """Check a write of rows with *schema* into a keyspace, if that exists.

    Args:
        options: the result of `fitted`.

    Raises:
        ConfigError: the types of the key or of a column are others than those that are kept.
        ConnectFailed: no daemon answers.
    """
    mine, patience = kept_schema(options, schema), Patience(options.target)
    with job_client(options.target, "none", patience=patience) as jobs:
        refuse_other_types(options, mine, kept_in(kept_schemas(jobs, patience)))


def keep_types(options: WriteOptions, jobs: JobClient, patience: Patience) -> None:
    """Keep the types of a write, unless what is kept has them. Raises as `check_types` does."""
    mine = options.schema
    if not mine:
        return
    there = kept_schemas(jobs, patience)
    if unkept(mine, kept_in(there)):
        there = kept_schemas(jobs, patience, keep=mine)
    earlier = there[: there.index(mine)] if mine in there else there
    refuse_other_types(options, mine, kept_in(earlier))


def kept_schemas(jobs: JobClient, patience: Patience, keep: str = "") -> list[str]:
    """Return what jobs have kept, with *keep*; nothing if it cannot be read, which is logged."""
    try:
        return patience(partial(jobs.schemas, keep))
    except KeyspaceError as error:
        if error.passes:
            raise
        # No keyspace, or damage. Rows can be read without it, so it fails no job.
        _log.warning("the types of columns are not known: %s", error)
        return []
