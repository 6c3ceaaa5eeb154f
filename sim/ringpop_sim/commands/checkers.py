"""The checkers' subcommands: many random schedules, and what broke in them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ringpop_sim import commands as c
from ringpop_sim.flow.exchange.schedule import DATAFLOWS, WORKERS_MAX
from ringpop_sim.flow.shuffle.deaths import DEATHS
from ringpop_sim.flow.shuffle.schedule import SHUFFLE, STORED
from ringpop_sim.state.journal.schedule import JOURNAL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from ringpop_sim.state.journal.sweep import Checker, ScheduleOutcome, SweepSummary

SCHEDULES_DEFAULT: Final = 3000
NODES_MAX: Final = 26
TOLD_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class CheckerCommand:
    """The subcommand *name* that runs *checker*.

    Attributes:
        sizes: how many nodes a schedule has, in words.
        others: by option, another checker that runs instead, and what the option's help says.
    """

    name: str
    checker: Checker
    summary: str
    examples: Sequence[str]
    sizes: str
    others: Mapping[str, tuple[Checker, str]] = field(default_factory=dict)

    def add_parser(self, commands: c.Parsers) -> argparse.ArgumentParser:
        """See `Command`."""
        parser = c.parser_of(commands, self.name, self.summary, self.examples)
        parser.add_argument("--schedules", type=c.count, metavar="N",
                            help=f"how many schedules ({SCHEDULES_DEFAULT})")  # fmt: skip
        parser.add_argument("--first", type=c.seed, default=0, help="the first seed (%(default)s)")
        parser.add_argument("--nodes", type=c.count, metavar="N",
                            help=f"how many ({self.sizes}, by the seed)")  # fmt: skip
        parser.add_argument("--jobs", type=c.count, default=1, help="processes (%(default)s)")
        parser.add_argument("--trace", action="store_true", help="show the last steps of each, too")
        parser.add_argument("--format", choices=["table", "json"], default="table")
        for option, (_, text) in self.others.items():
            parser.add_argument(f"--{option}", action="store_true", help=text)
        return parser

    def main(self, options: argparse.Namespace) -> int:
        """See `Command`."""
        if options.nodes is not None and options.nodes > NODES_MAX:
            c.mention(f"ringpop-sim: at most {NODES_MAX} nodes")
            return c.BAD_PLAN
        chosen = [option for option in self.others if getattr(options, option)]
        if len(chosen) > 1:
            c.mention(f"ringpop-sim: --{' or --'.join(chosen)}, not both")
            return c.BAD_PLAN
        checker = self.others[chosen[0]][0] if chosen else self.checker
        schedules = options.schedules or SCHEDULES_DEFAULT
        if checker.count is not None:
            schedules = options.schedules or checker.count(options.nodes) - options.first
        line = c.Progress(time.monotonic)
        summary = checker.sweep(
            options.first,
            schedules,
            time.monotonic,
            nodes=options.nodes,
            jobs=options.jobs,
            progress=lambda found: line.show(_progress(found, schedules)),
        )
        line.end()
        if options.format == "json":
            c.say_json(summary.as_json())
        else:
            c.say(_table(summary))
        for outcome in summary.failures[:TOLD_MAX]:
            name = " --".join([self.name, *chosen])
            c.mention(_told(name, checker, outcome, options.nodes))
        if options.trace and summary.ok:
            for seed in range(options.first, options.first + min(schedules, TOLD_MAX)):
                c.mention("\n".join(checker.run(seed, options.nodes, traced=True).trace))
        return c.OK if summary.ok else c.BROKEN


def _told(name: str, checker: Checker, outcome: ScheduleOutcome, nodes: int | None) -> str:
    """Return what broke, the command to repeat it, and the last steps before it."""
    assert outcome.broken is not None
    command = f"bin/ringpop-sim {name} --schedules 1 --first {outcome.seed}"
    if nodes is not None:
        command += f" --nodes {nodes}"
    # Run again, because a sweep keeps no traces: they would slow down every schedule.
    trace = checker.run(outcome.seed, nodes, traced=True).trace
    head = f"\nseed {outcome.seed}: {outcome.broken.invariant}: {outcome.broken.detail}"
    return "\n".join([head, f"replay: {command}", *(f"  {step}" for step in trace)])


def _progress(found: SweepSummary, count: int) -> str:
    speed = found.schedule_count / max(found.wall_s, 1e-9)
    done = f"{found.schedule_count} of {count} schedules, {speed:.0f} a second"
    return f"{done}, {found.failed_count} failed"


def _table(summary: SweepSummary) -> str:
    speed = summary.schedule_count / max(summary.wall_s, 1e-9)
    lines = [
        f"{summary.schedule_count} schedules in {summary.wall_s:.1f} s, {speed:.0f} a second",
        ", ".join(f"{number} {name}" for name, number in summary.as_counts().items()),
    ]
    if summary.ok:
        lines.append(c.good("every invariant held in every schedule"))
    else:
        lines.append(c.bad(f"{summary.failed_count} schedules broke an invariant"))
    for name, count in summary.broken.most_common():
        lines.append(f"  {name:<8} in {count} schedules, violated: {summary.invariants[name]}")
    return "\n".join(lines)


DEATHS_HELP: Final = (
    "a small shuffle, with each death of each member before each of its events;"
    " --schedules and --first choose among these cases (by default all of them)"
)
STORE_HELP: Final = (
    "with frames in the store, instead of at a replica; all members may die together"
)
CHECKERS: Final = {
    command.name: command
    for command in (
        CheckerCommand(
            "journal",
            JOURNAL,
            "run random schedules of the nodes' journals, and show what broke",
            (
                "ringpop-sim journal --schedules 60000 --jobs 2",
                "ringpop-sim journal --schedules 1 --first 4711 --trace",
                "ringpop-sim journal --nodes 4 --format json",
            ),
            "2 to 4",
        ),
        CheckerCommand(
            "dataflows",
            DATAFLOWS,
            "run random schedules of workers that exchange records in epochs, and show what broke",
            (
                "ringpop-sim dataflows --schedules 100000 --jobs 2",
                "ringpop-sim dataflows --schedules 1 --first 4711 --trace",
            ),
            str(WORKERS_MAX),
        ),
        CheckerCommand(
            "shuffle",
            SHUFFLE,
            "run random schedules of a shuffle, or every death at every step of one, and show what"
            " broke",
            (
                "ringpop-sim shuffle --schedules 38000 --jobs 2",
                "ringpop-sim shuffle --deaths --jobs 2",
                "ringpop-sim shuffle --store --jobs 2",
                "ringpop-sim shuffle --schedules 1 --first 4711 --trace",
            ),
            "3 to 5",
            {"deaths": (DEATHS, DEATHS_HELP), "store": (STORED, STORE_HELP)},
        ),
    )
}
"""The subcommands that only run a checker, by name."""
