"""``ringpop-sim theory``: the protocol's figures beside those that theory predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim import commands as c
from ringpop_sim.runs.theory import LAWS, TheoryRow

if TYPE_CHECKING:
    import argparse

SUMMARY: Final = "measure the protocol's figures, and compare them with theory"
EXAMPLES: Final = (
    "ringpop-sim theory",
    "ringpop-sim theory spread --sizes 10,100,1000",
    "ringpop-sim theory false-suspicion --effort 10 --format json",
)


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    parser = c.parser_of(commands, "theory", SUMMARY, EXAMPLES)
    parser.add_argument("law", nargs="*", metavar="LAW", help=f"{', '.join(LAWS)} (all)")
    parser.add_argument("--seed", type=c.seed, default=1, help="(%(default)s)")
    parser.add_argument("--effort", type=float, default=1.0, metavar="X",
                        help="how many times as many samples (%(default)s)")  # fmt: skip
    parser.add_argument("--sizes", type=_sizes, metavar="N,N", help="numbers of nodes")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    return parser


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(c.count(part) for part in text.split(","))


def main(options: argparse.Namespace) -> int:
    unknown = [law for law in options.law if law not in LAWS]
    if unknown:
        c.mention(f"ringpop-sim: no law {unknown[0]!r}; there are {', '.join(LAWS)}")
        return c.BAD_PLAN
    rows: list[TheoryRow] = []
    if options.format == "table":
        c.say(_HEAD)
    for name in options.law or LAWS:
        sized = options.sizes is not None and name != "false-suspicion"
        more = {"sizes": options.sizes} if sized else {}
        found = LAWS[name](options.seed, options.effort, **more)
        rows += found
        if options.format == "table":
            # Law by law, because each takes seconds to a minute.
            for row in found:
                c.say(_line(row))
    if options.format == "json":
        c.say_json({"ok": all(row.ok for row in rows), "rows": [row.as_json() for row in rows]})
    return c.OK if all(row.ok for row in rows) else c.BROKEN


_HEAD: Final = (
    f"{'LAW':<24} {'AT':<24} {'THEORY':>10} {'MEASURED':>10} {'RATIO':>7} {'BOUND':>7}"
    f" {'SAMPLES':>8}  OK"
)


def _line(row: TheoryRow) -> str:
    bound = "at most" if row.is_limit else f"{row.bound:.1%}"
    figures = f"{row.theory:>10.5g} {row.measured:>10.5g} {row.ratio:>7.3f} {bound:>7}"
    return f"{row.law:<24} {row.at:<24} {figures} {row.samples:>8}  {'yes' if row.ok else 'NO'}"
