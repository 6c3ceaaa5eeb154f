"""``ringpop-sim replay``: whether a stored case still takes the same course."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim import commands as c
from ringpop_sim.runs.cases import Case, case_of, read_case, write_case
from ringpop_sim.runs.run import Result, run

if TYPE_CHECKING:
    import argparse

SUMMARY: Final = "run stored cases again, and compare with their recorded results"
EXAMPLES: Final = (
    "ringpop-sim replay failures/S4-4711.toml",
    "ringpop-sim replay --check cases/*.toml",
    "ringpop-sim replay --record --seed 7 my-plan.toml",
)


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    parser = c.parser_of(commands, "replay", SUMMARY, EXAMPLES)
    parser.add_argument("cases", nargs="+", metavar="CASE", help="files")
    parser.add_argument("--check", action="store_true",
                        help="exit with code 3 if a digest differs from the case")  # fmt: skip
    parser.add_argument("--record", action="store_true",
                        help="write the result into the file")  # fmt: skip
    parser.add_argument("--seed", type=c.seed, default=1, help="with --record: the plan's seed")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    return parser


def main(options: argparse.Namespace) -> int:
    if options.record:
        for path in options.cases:
            _record(path, options.seed)
    cases = [(path, read_case(path)) for path in options.cases]
    rows = [(path, case, run(case.plan, case.seed)) for path, case in cases]
    if options.format == "json":
        c.say_json({"cases": [_as_json(*row) for row in rows]})
    else:
        c.say("\n".join(_line(*row) for row in rows))
    if options.check and any(case.digest != outcome.digest for _, case, outcome in rows):
        return c.NOT_DETERMINISTIC
    return c.BROKEN if any(outcome.broken for _, _, outcome in rows) else c.OK


def _record(path: str, seed: int) -> None:
    plan = c.found_plan(path, seed, None)
    write_case(case_of(plan, run(plan, seed)), path)


def _as_json(path: str, case: Case, outcome: Result) -> dict[str, object]:
    return {
        "case": path,
        "seed": case.seed,
        "expected": list(case.broken),
        "broken": list(outcome.invariants),
        "same_broken": case.broken == outcome.invariants,
        "digest": outcome.digest,
        "same_digest": case.digest == outcome.digest,
    }


def _line(path: str, case: Case, outcome: Result) -> str:
    was, found = ", ".join(case.broken) or "nothing", ", ".join(outcome.invariants) or "nothing"
    same = case.broken == outcome.invariants
    course = "the same course" if case.digest == outcome.digest else "another course"
    text = f"{path}: seed {case.seed}: {course}, broken: {found}"
    return text if same else f"{text} (it was: {was})"
