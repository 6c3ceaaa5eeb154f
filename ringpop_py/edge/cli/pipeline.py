"""ringpop-pipeline: loads data into a keyspace as a TOML file describes."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ConfigError, ConnectFailed, RingpopError
from ringpop_py.edge.cli.commands import (
    ExitCode,
    command_parser,
    complain_of,
    ends_with_its_reader,
    table,
)
from ringpop_py.spark.pipeline.interrupts import Interrupts, run_in_thread
from ringpop_py.spark.pipeline.plot import check_page, plot_page, write_page
from ringpop_py.spark.pipeline.progress import Display, counted
from ringpop_py.spark.pipeline.session import check_java, open_session, reason_of
from ringpop_py.spark.pipeline.settings import load_pipeline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from concurrent.futures import Future

    from ringpop_py.spark.pipeline.dryrun import DryRun, Sample
    from ringpop_py.spark.pipeline.run import PipelineSummary
    from ringpop_py.spark.pipeline.settings import Pipeline
    from ringpop_py.spark.pipeline.target import TargetOwnership

PROG: Final = "ringpop-pipeline"
SPARKS_OWN: Final = ("pyspark.", "py4j.")
COMMANDS: Final = ("run", "validate", "example")

EPILOG: Final = """\
commands:
  run CONFIG       run the pipeline ("run" may be left out); --dry-run only shows what it would do
  validate CONFIG  check the file, without Spark and without a cluster
  example          print a file to begin with

Progress goes to standard error, the summary to standard output.
exit codes: 0 done, 1 failed, 2 the file or the command is wrong, 4 no daemon answers,
130 interrupted (the next run of a stream continues where it was interrupted).
"""

EXAMPLE: Final = """\
# ringpop-pipeline run this-file.toml; docs/spark.md has the reference.

peers = ["127.0.0.1:3000"]      # or hosts = "hosts.txt"; without both, RINGPOP_PEER
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
partitions = 64                 # if it does not exist; with create = false it must exist

[columns]                       # of each key's map; without this table, all columns are put
flights = "count"
distance = "add"
minutes = { value = "coalesce(arr_delay, 0)", by = "add" }
longest = { value = "distance", by = "max" }

# [stream]                      # makes it a stream
# checkpoint = "checkpoints/aircraft"
# trigger = "available now"     # ends when all is done; "10 seconds" runs a batch every 10 s
"""


@ends_with_its_reader
def main(argv: Sequence[str] | None = None) -> int:
    """Run ringpop-pipeline; see ``--help``."""
    options = _options(sys.argv[1:] if argv is None else argv)
    if options.command == "example":
        print(EXAMPLE, end="")
        return ExitCode.OK
    try:
        pipeline = load_pipeline(options.config, options.set)
        if options.command == "validate":
            print(outline(pipeline))
            return ExitCode.OK
        if options.plot is not None and not options.dry_run:
            check_page(options.plot)
        _check_spark()
    except ConfigError as error:
        return complain_of(PROG, error, ExitCode.USAGE)
    # py4j logs a traceback for a cancelled job, which tells the user nothing; errors are raised.
    logging.disable(logging.CRITICAL)
    # Spark blocks in calls that no signal interrupts, so it runs beside the main thread.
    with Interrupts() as interrupts:
        work = run_in_thread(lambda: _work(pipeline, options, interrupts))
    logging.disable(logging.NOTSET)
    return _ended(work, interrupted=interrupts.came)


def _ended(work: Future[int], *, interrupted: bool) -> int:
    failure = work.exception()
    if failure is None:
        return ExitCode.INTERRUPTED if interrupted else work.result()
    if interrupted:  # this may have led to any error
        return complain_of(PROG, "interrupted", ExitCode.INTERRUPTED)
    match failure:
        case ConfigError():
            return complain_of(PROG, failure, ExitCode.USAGE)
        case ConnectFailed():
            return complain_of(PROG, failure, ExitCode.UNREACHABLE)
        case RingpopError():
            return complain_of(PROG, failure, ExitCode.FAILED)
        case _ if type(failure).__module__.startswith(SPARKS_OWN):
            return complain_of(PROG, reason_of(failure), ExitCode.FAILED)
        case _:
            raise failure


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = command_parser(
        PROG,
        usage="%(prog)s [options] [run | validate | example] CONFIG",
        description="Load data from any source of Spark into a keyspace, exactly once.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="COMMAND CONFIG", help="what to do (run), and the TOML file")
    text = "override a value of the file: keyspace.partitions=64; may be repeated"
    add("--set", action="append", default=[], metavar="KEY=VALUE", help=text)
    add("--dry-run", action="store_true", help="only show what would be done")
    add("--quiet", action="store_true", help="no progress")
    add("--format", choices=("text", "json"), default="text", help="format of the summary")
    add("--plot", type=Path, metavar="FILE", help="write a page of HTML with the progress")
    options = parser.parse_intermixed_args(argv)
    words = options.words
    options.command = words.pop(0) if words and words[0] in COMMANDS else "run"
    options.config = words.pop(0) if words and options.command != "example" else None
    if words:
        parser.error(f"one command, and one file at most; left over: {' '.join(words)}")
    if options.command != "example" and options.config is None:
        parser.error("name the TOML file; `ringpop-pipeline example` prints one to begin with")
    return options


def _check_spark() -> None:
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            raise ConfigError(f"{module} is missing: pip install 'ringpop_py[spark]'")
    check_java()


def _work(pipeline: Pipeline, options: argparse.Namespace, interrupts: Interrupts) -> int:
    display = Display(sys.stderr, quiet=options.quiet)
    with (
        display.shown(f"{pipeline.name}: starting Spark"),
        tempfile.TemporaryDirectory(prefix="ringpop-pipeline-") as folder,
        open_session(
            pipeline.name, master=pipeline.master, conf=pipeline.conf, folder=Path(folder)
        ) as spark,
    ):
        display.clear()
        interrupts.check()
        # These load pyspark, which takes a while, so they come after all checks of the file.
        if options.dry_run:
            from ringpop_py.spark.pipeline.dryrun import dry_run  # noqa: PLC0415

            print(dry_run_text(dry_run(spark, pipeline)))
            return ExitCode.OK
        from ringpop_py.spark.pipeline.run import run_pipeline  # noqa: PLC0415

        summary = run_pipeline(spark, pipeline, display=display, interrupts=interrupts)
    text = summary_text(summary)
    print(json.dumps(summary.as_value()) if options.format == "json" else text)
    if options.plot is not None:
        again = f"{_again(summary)} were repeated."
        head = f"{text.splitlines()[0]}. {again}"
        page = plot_page(pipeline.name, head, summary.readings, times=summary.times)
        display.note(write_page(options.plot, page))
    return ExitCode.OK


# Text for people.


def outline(pipeline: Pipeline) -> str:
    """Return what `validate` prints."""
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
    """Return the summary of a run."""
    rate = f", {summary.rows / summary.seconds:,.0f} rows/s" if summary.rows else ""
    end = "stopped" if summary.stopped else "done"
    lines = [f"{summary.name}: {end} in {summary.seconds:.1f} s{rate}"]
    if summary.repeated:
        lines.append("  nothing to do: a job of this name was committed before")
    else:
        lines.append(f"  read      {summary.rows:,} rows, {summary.null_keys:,} without a key")
        lines.append(f"  applied   {summary.changes:,} changes, exactly once")
    if summary.batches:
        lines.append(f"  batches   {summary.batches:,}")
    if summary.times:
        parts = (f"{name} {seconds:.1f} s" for name, seconds in summary.times.items())
        lines.append(f"  time      {', '.join(parts)}")
    lines.append(f"  again     {_again(summary)}")
    lines.append(f"  job       {summary.job}")
    lines.append(f"  keyspace  {summary.keyspace}")
    return "\n".join([*lines, *_indented(_owners_table(summary.ownership))])


def _again(summary: PipelineSummary) -> str:
    tasks = counted(summary.tasks_failed, "task", "tasks")
    return f"{tasks}, {counted(summary.retries, 'call', 'calls')} to daemons"


def dry_run_text(found: DryRun) -> str:
    """Return what `run --dry-run` prints."""
    pipeline, ownership = found.pipeline, found.ownership
    fields = table(("COLUMN", "TYPE", "BECOMES"), found.fields)
    state = "would be made" if ownership.planned else "is there"
    keyspace = f"Keyspace {pipeline.keyspace.name!r} {state}: {len(ownership.owners)} partitions"
    parts = [
        ["Schema", *_indented(fields)],
        [f"Plan: {found.combining}", *_indented(found.plan)],
        [keyspace, *_indented(_owners_table(ownership))],
        _sample_lines(found.sample, found.no_sample),
        ["Nothing was written."],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


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
        return "(no daemon knows its owners)"
    rows = []
    for name in sorted({*ownership.partitions, *ownership.keys}):
        count = ownership.partitions.get(name, 0)
        rows.append((name, count, f"{count / total:.1%}", ownership.keys.get(name, "-")))
    return table(("OWNER", "PARTITIONS", "SHARE", "KEYS"), rows)


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.splitlines()]
