"""Do the types of a write agree with those that are kept, and does a member know its operations?

Types are compared before the first task, and again before the commit, which keeps them. Of two jobs
that begin to write at the same time, the one whose types are kept first decides.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType  # noqa: TC002 - on the driver, which has it loaded

from ringpop_py.base.errors import ConfigError, KeyspaceError, RingpopError
from ringpop_py.base.values.unknown import unknown_text
from ringpop_py.client.sync.client import Client
from ringpop_py.spark.source.patience import CONNECT_TIMEOUT_S, Patience, job_client, reached
from ringpop_py.spark.typed import kept_in, kept_schema, refuse_other_types, unkept
from ringpop_py.state.table.aggregations import BUILT_IN, FIELDS
from ringpop_py.state.table.conditions import CONDITIONAL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.client.jobs import JobClient
    from ringpop_py.spark.options import Target, WriteOptions

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


EVERYWHERE: Final = frozenset({*BUILT_IN, FIELDS, CONDITIONAL})
"""What every daemon knows."""


def check_operations(options: WriteOptions) -> None:
    """Raise ConfigError if a member was asked, and none knows an operation of *options*.

    Every daemon knows the built-in ones, so only an application's own need a question.

    Raises:
        ConfigError: nobody knows one; the message says what there is.
        ConnectFailed: no daemon answers.
    """
    named = options.fields or {"": options.operation}
    unknown = {column: name for column, name in named.items() if name not in EVERYWHERE}
    known: set[str] = set()
    if not unknown:
        return
    for theirs in _registered(options.target):
        known |= theirs
        if known.issuperset(unknown.values()):
            return
    column, name = next(each for each in unknown.items() if each[1] not in known)
    where = f"column {column!r}: " if column else ""
    text = unknown_text(name, {*BUILT_IN, *known})
    raise ConfigError(f"option operation: {where}no member knows {text}")


def _registered(target: Target) -> Iterable[set[str]]:
    """Yield the aggregations of applications that one member after the other knows."""
    with reached(target, Patience(target)) as client:
        asked = client.admin("/admin/node")
        yield set(asked["aggregations"])
        others = [
            row["address"]
            for row in client.admin("/admin/members")["members"]
            if row["status"] == "alive" and row["name"] != asked["name"]
        ]
    for address in others if target.direct else ():
        # One that does not answer may know it; if it is an owner, the commit asks it as well.
        with (
            suppress(RingpopError),
            Client(address, timeout_s=CONNECT_TIMEOUT_S, cluster_key=target.cluster_key) as client,
        ):
            yield set(client.admin("/admin/node")["aggregations"])
