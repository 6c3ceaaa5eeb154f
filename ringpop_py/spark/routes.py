"""Send every row of a DataFrame to the member that owns its key: `route`, and `route_answers`.

Spark hashes the keys; its tasks group rows by owner and send them (`ringpop_py.spark.sender`).
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.base import errors
from ringpop_py.base.config.settings import check_schedule
from ringpop_py.base.errors import ConfigError, RingpopError
from ringpop_py.base.values.declared import decode
from ringpop_py.route.proxy.request import Request
from ringpop_py.spark.keys import BINARY, INTEGERS, column_named, key_text, key_type
from ringpop_py.spark.options import ON_NULL_KEY, quoted
from ringpop_py.spark.owner import native_ring
from ringpop_py.spark.schemas import arrow_schema, struct_of
from ringpop_py.spark.sender import HASH, REPORT, Deliver, Report, RoutePlan, Through, probe
from ringpop_py.spark.snapshot import peer_list, ring_snapshot
from ringpop_py.state.rows.batches import POSITION, ROWS_MAX, SOURCE_TEXT_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ringpop_py.base.address import Address
    from ringpop_py.spark.options import OnNullKey

BATCH_ROWS: Final = 50_000
IN_FLIGHT: Final = 4
MAX_RETRIES: Final = 8
"""The most retries of one message: 12.5 s by default, in which all members learn of a death."""
CALL_TIMEOUT_S: Final = 10.0
_BATCH_ROWS_SETTING: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


@dataclass(frozen=True, slots=True)
class RouteReport:
    """The result of `route`.

    Attributes:
        job: the name under which owners remember these rows.
        rows_sent: rows that an owner has; with *null_keys*, all rows of the input.
        null_keys: rows without a key; they were not sent.
        moved_rows: answers "not mine", one for each row, each followed by another attempt.
        repeated_rows: rows among *rows_sent* that their owner had from an earlier attempt.
        retries: messages that were sent again.
        batches: messages that were answered.
        per_owner: rows that each owner has, by name.
    """

    job: str
    rows_sent: int
    null_keys: int
    moved_rows: int
    repeated_rows: int
    retries: int
    batches: int
    seconds: float
    per_owner: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        rate = self.rows_sent / self.seconds if self.seconds else 0.0
        sent = f"{self.rows_sent:,} rows to {len(self.per_owner)} owners in {self.seconds:.1f} s"
        pace = f"{rate:,.0f} a second, {self.batches:,} messages"
        left = f"without a key {self.null_keys:,}, moved {self.moved_rows:,}"
        again = f"repeated {self.repeated_rows:,}, retries {self.retries:,}"
        lines = [f"{sent} ({pace})", f"{left}, {again}"]
        width = max(map(len, self.per_owner), default=0)
        lines += [f"  {owner:<{width}}  {rows:>12,}" for owner, rows in self.per_owner.items()]
        return "\n".join(lines)


def route(  # noqa: PLR0913 - options of one job, by name
    df: DataFrame,
    *,
    key: str,
    endpoint: str,
    peers: str | Address | Sequence[str | Address],
    through: Through = "owners",
    batch_rows: int = BATCH_ROWS,
    in_flight: int = IN_FLIGHT,
    retry_schedule: Sequence[float] = (0, 0.5, 2),
    max_retries: int = MAX_RETRIES,
    timeout_s: float = CALL_TIMEOUT_S,
    cluster_key: str | None = None,
    job: str | None = None,
    on_null_key: OnNullKey = "count",
) -> RouteReport:
    """Send each row of *df* to the owner of its *key*, to the batch handler at *endpoint*.

    Args:
        key: a column of keys (`ringpop_py.spark.keys`). Integers reach the handler as their text.
        peers: daemons; the first that answers sends the ring.
        through: ``owners`` sends directly to them; ``daemon`` relays through the first of *peers*
            that can be reached (for workers that can connect only to their local daemon).
        batch_rows: rows of an Arrow batch, before it is split by owner.
        in_flight: messages that a task has under way at a time.
        retry_schedule: seconds before each retry; the last number counts for all later retries.
        job: names these rows at their owners, which handle rows of the same name once; so a job
            that failed may be repeated under its name. By default a fresh name.
        on_null_key: rows without a key are not sent; they are counted in the report (``count``),
            or ignored (``skip``), or they end the job (``fail``).
        cluster_key: the file of keys on each machine; by default what its environment says.

    Raises:
        ConfigError: an argument cannot be used, for example a key that is a column of doubles.
        BadKey: a row has no key, with *on_null_key* ``fail``; or a key is not text. Other rows may
            have been handled.
        ConnectFailed: no peer sends its ring.
        BadRequest: the endpoint is unknown, or takes no batches with this key.
        ApplicationError: the handler raised it.
        OperationIdReused: the job had other rows before; further rows may have been handled.
        MaxRetriesExceeded: an owner did not accept its rows; other rows may have been handled.
    """
    if not 0 < batch_rows <= ROWS_MAX:
        raise ConfigError(f"batch_rows is 1 to {ROWS_MAX}, not {batch_rows!r}")
    key = column_named(key, df.columns)
    plan = RoutePlan(
        job=uuid.uuid4().hex if job is None else job,
        key=key,
        endpoint=endpoint,
        peers=peer_list(peers),
        through=through,
        in_flight=in_flight,
        max_retries=max_retries,
        schedule_s=tuple(retry_schedule),
        timeout_s=timeout_s,
        on_null_key=on_null_key,
        cluster_key=cluster_key,
    )
    plan = _ready(df, plan)
    started_at = time.perf_counter()
    with _arrow_batches_of(df.sparkSession, batch_rows):
        rows = _hashed(df, key).mapInArrow(Deliver(plan), f"{REPORT} binary").collect()
    reports = [decode(Report, bytes(row[REPORT])) for row in rows]
    return _report(plan.job, reports, time.perf_counter() - started_at)


def route_answers(  # noqa: PLR0913 - options of one job, by name
    df: DataFrame,
    *,
    key: str,
    endpoint: str,
    schema: StructType | str,
    peers: str | Address | Sequence[str | Address],
    through: Through = "owners",
    in_flight: int = IN_FLIGHT,
    retry_schedule: Sequence[float] = (0, 0.5, 2),
    max_retries: int = MAX_RETRIES,
    timeout_s: float = CALL_TIMEOUT_S,
    cluster_key: str | None = None,
    on_null_key: OnNullKey = "fail",
) -> DataFrame:
    """Return the answers of owners to the rows of *df*, as rows; computed when they are read.

    The batch handler at *endpoint* of each owner, which needs ``answers=True``, is called with some
    of its rows and returns any number of rows, in any order; have it return the key if you need it.
    It may be called for a row more than once: when a message or a task is repeated, and whenever
    Spark computes the result again.

    Args:
        schema: the columns of the answers, as DDL or a type. Other columns are left out.
        on_null_key: rows without a key fail the query (``fail``), or are ignored (``skip``).

    The others are as in `route`. Rows travel in batches of the session's
    ``spark.sql.execution.arrow.maxRecordsPerBatch``.

    Raises:
        ConfigError: an argument cannot be used.
        ConnectFailed: no peer sends its ring.
        BadRequest: the endpoint is unknown, or answers no batches with this key.

    Later errors (these, and those of `route`) fail the query, inside Spark's own error.
    """
    struct = struct_of(schema)
    key = column_named(key, df.columns)
    plan = RoutePlan(
        job=uuid.uuid4().hex,
        key=key,
        endpoint=endpoint,
        peers=peer_list(peers),
        through=through,
        in_flight=in_flight,
        max_retries=max_retries,
        schedule_s=tuple(retry_schedule),
        timeout_s=timeout_s,
        on_null_key=on_null_key,
        cluster_key=cluster_key,
        answers=arrow_schema(struct),
    )
    return _hashed(df, key).mapInArrow(Deliver(_ready(df, plan)), struct)


def _ready(df: DataFrame, plan: RoutePlan) -> RoutePlan:
    """Return *plan*, checked, with the ring; an owner was asked whether it knows the endpoint."""
    Request(plan.endpoint)  # for its checks
    kind = _check(df, plan)
    check_schedule(plan.max_retries, plan.schedule_s)
    snapshot = ring_snapshot(plan.peers, cluster_key=plan.cluster_key)
    native_ring(snapshot)  # for its check
    ready = replace(plan, snapshot=snapshot, binary_keys=kind == BINARY)
    probe(ready)
    return ready


def _check(df: DataFrame, plan: RoutePlan) -> str:
    kind = key_type(df.schema, plan.key)
    names = set(df.columns)
    # `route_answers` has no report to count in.
    *most, last = ON_NULL_KEY if plan.answers is None else ("fail", "skip")
    problem = None
    if len(names) < len(df.columns):
        problem = "two columns have the same name"
    elif {POSITION, HASH} & {name.lower() for name in names}:
        problem = f"the names {POSITION!r} and {HASH!r} are used by the message itself"
    elif plan.in_flight < 1:
        problem = f"in_flight is 1 or more, not {plan.in_flight!r}"
    elif plan.through not in ("owners", "daemon"):
        problem = f"through is 'owners' or 'daemon', not {plan.through!r}"
    elif not plan.timeout_s > 0:
        problem = f"timeout_s must be above 0, not {plan.timeout_s!r}"
    elif plan.on_null_key not in (*most, last):
        listed = ", ".join(map(repr, most))
        problem = f"on_null_key is {listed} or {last!r}, not {plan.on_null_key!r}"
    elif not 0 < len(plan.job) <= SOURCE_TEXT_MAX:
        problem = f"job is a name of 1 to {SOURCE_TEXT_MAX} characters"
    if problem is not None:
        raise ConfigError(problem)
    return kind


def _hashed(df: DataFrame, key: str) -> DataFrame:
    text = key_text(quoted(key))
    keyed = df.withColumn(key, text) if key_type(df.schema, key) in INTEGERS else df
    return keyed.withColumn(HASH, F.xxhash64(text))


@contextmanager
def _arrow_batches_of(spark: SparkSession, rows: int) -> Iterator[None]:
    # A setting of the session, not an argument; so the user's is put back.
    before = spark.conf.get(_BATCH_ROWS_SETTING)
    spark.conf.set(_BATCH_ROWS_SETTING, rows)
    try:
        yield
    finally:
        assert before is not None  # it has a default
        spark.conf.set(_BATCH_ROWS_SETTING, before)


def _report(job: str, reports: Sequence[Report], seconds: float) -> RouteReport:
    for error in (each.error for each in reports):
        if error is not None:
            name, arguments = error
            raise getattr(errors, name, RingpopError)(*arguments)
    parts = [report.counts for report in reports]
    per_owner: Counter[str] = Counter()
    for part in parts:
        per_owner.update(part.owners)
    return RouteReport(
        job=job,
        rows_sent=per_owner.total(),
        null_keys=sum(part.null_keys for part in parts),
        moved_rows=sum(part.moved_rows for part in parts),
        repeated_rows=sum(part.repeated_rows for part in parts),
        retries=sum(part.retries for part in parts),
        batches=sum(part.batches for part in parts),
        seconds=seconds,
        per_owner=dict(sorted(per_owner.items())),
    )
