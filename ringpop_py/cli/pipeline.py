"""ringpop-pipeline: brings data into a keyspace, as a TOML file says."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_py.cli.outputs import FAILED, OK, UNREACHABLE, USAGE, complain, ends_with_its_reader
from ringpop_py.cli.parser import command_parser
from ringpop_py.cli.pipeline_texts import EXAMPLE, dry_run_text, outline, summary_text
from ringpop_py.errors import ConfigError, ConnectFailed, RingpopError
from ringpop_py.pipeline.interrupts import Interrupts, run_in_thread
from ringpop_py.pipeline.plot import check_page, plot_page, write_page
from ringpop_py.pipeline.progress import Display
from ringpop_py.pipeline.reasons import reason_of
from ringpop_py.pipeline.session import check_java, open_session
from ringpop_py.pipeline.settings import load_pipeline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from concurrent.futures import Future

    from ringpop_py.pipeline.settings import Pipeline

INTERRUPTED: Final = 130
SPARKS_OWN: Final = ("pyspark.", "py4j.")
COMMANDS: Final = ("run", "validate", "example")

EPILOG: Final = """\
commands:
  run CONFIG       do it (also without the word); --dry-run shows what would be done
  validate CONFIG  check the file, without Spark and without a cluster
  example          print a file to begin with

Progress goes to standard error, the summary to standard output.
exit codes: 0 done, 1 failed, 2 something is wrong in the file or the command, 4 no daemon answers,
130 interrupted (a stream that was stopped so goes on from there the next time).
"""


@ends_with_its_reader
def main(argv: Sequence[str] | None = None) -> int:
    """Run ringpop-pipeline; see ``--help``."""
    options = _options(sys.argv[1:] if argv is None else argv)
    if options.command == "example":
        print(EXAMPLE, end="")
        return OK
    try:
        pipeline = load_pipeline(options.config, options.set)
        if options.command == "validate":
            print(outline(pipeline))
            return OK
        if options.plot is not None and not options.dry_run:
            check_page(options.plot)
        _check_spark()
    except ConfigError as error:
        return _complain(error, USAGE)
    # What py4j logs of a cancelled job is nothing to the reader; errors are raised as well.
    logging.disable(logging.CRITICAL)
    with Interrupts() as interrupts:
        work = run_in_thread(lambda: _work(pipeline, options, interrupts))
    logging.disable(logging.NOTSET)
    return _ended(work, interrupted=interrupts.came)


def _ended(work: Future[int], *, interrupted: bool) -> int:
    """The exit code; says why, if that is not 0."""
    failure = work.exception()
    if failure is None:
        return INTERRUPTED if interrupted else work.result()
    if interrupted:  # whatever error that has led to
        return _complain("interrupted", INTERRUPTED)
    if isinstance(failure, RingpopError):
        return _complain(failure, _exit_code(failure))
    if type(failure).__module__.startswith(SPARKS_OWN):
        return _complain(reason_of(failure), FAILED)
    raise failure


def _exit_code(error: RingpopError) -> int:
    if isinstance(error, ConfigError):
        return USAGE
    return UNREACHABLE if isinstance(error, ConnectFailed) else FAILED


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = command_parser(
        "ringpop-pipeline",
        usage="%(prog)s [options] [run | validate | example] CONFIG",
        description="Bring data from any source of Spark into a keyspace, exactly once.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "words", nargs="*", metavar="COMMAND CONFIG", help="what to do (run), and the TOML file"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="say something else than the file: keyspace.partitions=64; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, only")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of the summary")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="write how it went as a page of HTML"
    )
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
            message = f"{module} is missing: pip install 'ringpop_py[spark]'"
            raise ConfigError(message)
    check_java()


def _work(pipeline: Pipeline, options: argparse.Namespace, interrupts: Interrupts) -> int:
    display = Display(sys.stderr, quiet=options.quiet)
    with (
        tempfile.TemporaryDirectory(prefix="ringpop-pipeline-") as folder,
        open_session(
            pipeline.name, master=pipeline.master, conf=pipeline.conf, folder=Path(folder)
        ) as spark,
    ):
        interrupts.check()
        # These load pyspark, which takes a while: not before the file is found to be in order.
        if options.dry_run:
            from ringpop_py.pipeline.dryrun import dry_run  # noqa: PLC0415

            print(dry_run_text(dry_run(spark, pipeline)))
            return OK
        from ringpop_py.pipeline.run import run_pipeline  # noqa: PLC0415

        summary = run_pipeline(spark, pipeline, display=display, interrupts=interrupts)
    text = summary_text(summary)
    print(json.dumps(summary.as_value()) if options.format == "json" else text)
    if options.plot is not None:
        page = plot_page(pipeline.name, text.splitlines()[0], summary.readings)
        display.note(write_page(options.plot, page))
    return OK


def _complain(error: object, code: int) -> int:
    for line in str(error).splitlines():
        complain(f"ringpop-pipeline: {line}")
    return code


if __name__ == "__main__":
    sys.exit(main())
