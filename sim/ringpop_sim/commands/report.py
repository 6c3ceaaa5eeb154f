"""``ringpop-sim report``: a trace as an HTML page for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_sim import commands as c
from ringpop_sim.errors import TraceError
from ringpop_sim.reports.console import console_of
from ringpop_sim.reports.report import page_of, read_story

if TYPE_CHECKING:
    import argparse

SUMMARY: Final = "make one HTML page of a trace: how each node saw each other, when, and why"
EXAMPLES: Final = (
    "ringpop-sim run split --seed 7 --trace t.jsonl --trace-messages",
    "ringpop-sim report t.jsonl --html t.html",
    "ringpop-sim report t.jsonl --as n3 --at 42 --html n3.html",
)


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    parser = c.parser_of(commands, "report", SUMMARY, EXAMPLES)
    parser.add_argument("trace", metavar="TRACE", help="a file written by run --trace")
    parser.add_argument("--html", metavar="FILE", required=True, help="the page to write")
    text = "write the console of NODE in its place, as it would have looked"
    parser.add_argument("--as", dest="node", metavar="NODE", help=text)
    text = "with --as: seconds of virtual time (the end of the run)"
    parser.add_argument("--at", type=float, metavar="T", help=text)
    return parser


def main(options: argparse.Namespace) -> int:
    if options.node is not None:
        page = console_of(options.trace, options.node, options.at)
    elif options.at is not None:
        raise TraceError("--at goes with --as NODE")
    else:
        page = page_of(read_story(options.trace))
    try:
        Path(options.html).write_text(page, encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{options.html}: {error.strerror or error}") from None
    c.say(f"{options.html}: {len(page) / 1e6:.1f} MB; open it in a browser")
    return c.OK
