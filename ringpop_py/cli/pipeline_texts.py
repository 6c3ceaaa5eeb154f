"""What ringpop-pipeline says, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.cli.outputs import table
from ringpop_py.pipeline.progress import counted

if TYPE_CHECKING:
    from ringpop_py.pipeline.dryrun import DryRun, Sample
    from ringpop_py.pipeline.run import PipelineSummary
    from ringpop_py.pipeline.settings import Pipeline
    from ringpop_py.pipeline.target import TargetOwnership

EXAMPLE: Final = """\
# ringpop-pipeline run this-file.toml; docs/spark.md has the reference.

peers = ["127.0.0.1:3000"]      # or hosts = "hosts.txt"; else the daemon at RINGPOP_PEER
key = "tailnum"                 # the column whose text is the key
on_null_key = "count"           # rows without one: "fail" (the default), "skip" or "count"

[source]
format = "parquet"              # whatever spark.read.format takes; or table = "catalog.table"
path = "flights"
# options = { header = "true" }
# schema = "tailnum string, distance int"
sql = "SELECT tailnum, distance, arr_delay FROM source WHERE distance > 0"

[keyspace]
name = "aircraft"
partitions = 64                 # if it is made; create = false to have it there before

[columns]                       # of each key's map; without this table: all columns, put
flights = "count"
distance = "add"
minutes = { value = "coalesce(arr_delay, 0)", by = "add" }
longest = { value = "distance", by = "max" }

# [stream]                      # makes it a stream
# checkpoint = "checkpoints/aircraft"
# trigger = "available now"     # ends when all is done; or "10 seconds", from batch to batch
"""


def outline(pipeline: Pipeline) -> str:
    """What the file says, in some lines."""
    source = pipeline.source
    where = f"table {source.table}" if source.table else f"{source.format} {' '.join(source.path)}"
    kind = "batch" if pipeline.stream is None else f"stream, {pipeline.stream.trigger}"
    if pipeline.columns:
        what = ", ".join(f"{column.name} {column.aggregation}" for column in pipeline.columns)
    elif pipeline.value is not None or pipeline.operation == "count":
        what = f"one value, {pipeline.operation}"
    else:
        what = f"all columns, {pipeline.operation}"
    rows = [
        ("source", where.strip()),
        ("kind", kind),
        ("key", f"{pipeline.key} (rows without one: {pipeline.on_null_key})"),
        ("written", what),
        ("keyspace", pipeline.keyspace.name),
        ("daemons", ", ".join(pipeline.peers)),
    ]
    lines = [f"  {name:<9} {text}" for name, text in rows]
    return "\n".join([f"{pipeline.name}: in order", *lines])


def summary_text(summary: PipelineSummary) -> str:
    """What a pipeline did."""
    rate = f", {summary.rows / summary.seconds:,.0f} rows/s" if summary.rows else ""
    end = "stopped" if summary.stopped else "done"
    lines = [f"{summary.name}: {end} in {summary.seconds:.1f} s{rate}"]
    if summary.repeated:
        lines.append("  nothing to do: the job of this name had been committed before")
    else:
        lines.append(f"  read      {summary.rows:,} rows, {summary.null_keys:,} without a key")
        lines.append(f"  applied   {summary.changes:,} changes, exactly once")
    if summary.batches:
        lines.append(f"  batches   {summary.batches:,}")
    tasks = counted(summary.tasks_failed, "task", "tasks")
    lines.append(f"  again     {tasks}, {counted(summary.retries, 'call', 'calls')} to daemons")
    lines.append(f"  job       {summary.job}")
    lines.append(f"  keyspace  {summary.keyspace}")
    return "\n".join([*lines, *_indented(_owners_table(summary.ownership))])


def dry_run_text(found: DryRun) -> str:
    """What a pipeline would do."""
    pipeline, ownership = found.pipeline, found.ownership
    fields = table(("COLUMN", "TYPE", "BECOMES"), found.fields)
    state = "would be made" if ownership.planned else "is there"
    parts = [
        "Schema",
        *_indented(fields),
        "",
        "Plan",
        *_indented(found.plan),
        "",
        f"Keyspace {pipeline.keyspace.name!r} {state}: {len(ownership.owners)} partitions",
        *_indented(_owners_table(ownership)),
        "",
        *_sample_lines(found.sample, found.no_sample),
        "",
        "Nothing was written.",
    ]
    return "\n".join(parts)


def _sample_lines(sample: Sample | None, why: str) -> list[str]:
    if sample is None:
        return [f"No sample: {why}"]
    lines = [f"The first {sample.rows:,} rows: {sample.keys:,} keys, {sample.null_keys:,} without"]
    if sample.busiest is not None:
        key, most = sample.busiest
        lines.append(f"  most rows of one key: {most:,} ({most / sample.rows:.1%}), {key!r}")
    keyed = max(sample.rows - sample.null_keys, 1)
    rows = [
        (name, share.rows, f"{share.rows / keyed:.1%}", share.keys)
        for name, share in sample.shares.items()
    ]
    return [*lines, *_indented(table(("OWNER", "ROWS", "SHARE", "KEYS"), rows))]


def _owners_table(ownership: TargetOwnership) -> str:
    total = len(ownership.owners)
    if not total:
        return "(no daemon says who has it)"
    partitions = ownership.partitions
    rows = []
    for name in sorted({*partitions, *ownership.keys}):
        count = partitions.get(name, 0)
        rows.append((name, count, f"{count / total:.1%}", ownership.keys.get(name, "-")))
    return table(("OWNER", "PARTITIONS", "SHARE", "KEYS"), rows)


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.splitlines()]
