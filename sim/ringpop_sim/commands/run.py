"""``ringpop-sim run``: one plan, one seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_sim import commands as c
from ringpop_sim.errors import PlanError
from ringpop_sim.plans.planfile import plan_text, replay_command
from ringpop_sim.reports.dump import dump
from ringpop_sim.reports.tracefile import TraceWriter
from ringpop_sim.runs.run import run_of
from ringpop_sim.scenarios import SCENARIOS, about
from ringpop_sim.units import s, seconds

if TYPE_CHECKING:
    import argparse

    from ringpop_sim.plans.plan import Plan
    from ringpop_sim.runs.run import Result
    from ringpop_sim.world.world import World

SUMMARY: Final = "run one plan with one seed, and show the result"
EXAMPLES: Final = (
    "ringpop-sim run --list",
    "ringpop-sim run split --seed 7 --nodes 20",
    "ringpop-sim run my-plan.toml --seed 7 --format json --trace facts.jsonl",
    "ringpop-sim run random --seed 4711",
    "ringpop-sim run - --seed 7 < my-plan.toml",
    "ringpop-sim run crash --at 12.5 --dump n3",
)
BROKEN_SHOWN_MAX: Final = 20


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    parser = c.parser_of(commands, "run", SUMMARY, EXAMPLES)
    parser.add_argument(
        "plan",
        nargs="?",
        metavar="PLAN",
        help="a scenario's name, a plan as TOML, 'random' (drawn from the seed), or - for stdin",
    )
    parser.add_argument("--list", action="store_true", help="list scenarios, and what each shows")
    parser.add_argument("--seed", type=c.seed, default=1, help="seed of all chance (%(default)s)")
    parser.add_argument("--nodes", type=c.count, metavar="N", help="how many nodes")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    parser.add_argument("--trace", metavar="FILE", help="write all facts to FILE, as JSON lines")
    parser.add_argument(
        "--trace-messages", action="store_true", help="with --trace: write each message, too"
    )
    parser.add_argument("--codec", action="store_true", help="encode and decode every message")
    parser.add_argument(
        "--dump", metavar="NODE", help="write the state of NODE at time T instead (see --at)"
    )
    parser.add_argument(
        "--at", type=c.positive_seconds, metavar="T", help="with --dump: seconds of virtual time"
    )
    parser.add_argument("--show-plan", action="store_true", help="write the plan as TOML instead")
    return parser


def main(options: argparse.Namespace) -> int:
    if options.list:
        return _list(options)
    if options.plan is None:
        raise PlanError(f"which plan? There is {', '.join([*SCENARIOS, c.RANDOM])}")
    plan = c.found_plan(options.plan, options.seed, options.nodes)
    if options.codec:
        plan = replace(plan, codec_share=1.0)
    if options.show_plan:
        c.say(plan_text(plan).rstrip())
        return c.OK
    if options.trace_messages and options.trace is None:
        raise PlanError("--trace-messages needs --trace FILE")
    if (options.dump is None) != (options.at is None):
        raise PlanError("--dump NODE and --at T need each other")
    if options.dump is not None:
        c.say(_dump(plan, options))
        return c.OK
    result = _run(plan, options)
    if options.format == "json":
        c.say_json(result.as_json())
    else:
        c.say(_table(result))
    if not result.ok:
        c.mention(f"replay:\n{replay_command(plan, options.seed)}")
    return c.OK if result.ok else c.BROKEN


def _list(options: argparse.Namespace) -> int:
    if options.format == "json":
        c.say_json({"scenarios": {name: about(name) for name in SCENARIOS}})
        return c.OK
    names = {name: about(name) for name in SCENARIOS}
    names[c.RANDOM] = "Five faults or more, drawn from the seed."
    width = max(len(name) for name in names)
    c.say("\n".join(f"{name:<{width}}  {text}" for name, text in names.items()))
    return c.OK


def _dump(plan: Plan, options: argparse.Namespace) -> str:
    until_s = seconds(plan.until_us)
    if options.at > until_s:
        raise PlanError(
            f"--at {options.at:g} is after the end of {plan.name}, which runs for {until_s:g} s"
        )
    run = run_of(plan, options.seed)
    run.advance(round(options.at * s))
    if run.crashed:
        raise PlanError(f"the run ends before {options.at:g} s: {run.broken[0].detail}")
    processes = {process.name: process for process in run.world.processes}
    # Of several, the one that runs.
    processes |= {process.name: process for process in run.world.running}
    process = processes.get(options.dump)
    if process is None:
        known = ", ".join(processes)
        raise PlanError(
            f"no node {options.dump!r} has been started at {options.at:g} s; there is {known}"
        )
    return dump(process, run.world.now)


def _run(plan: Plan, options: argparse.Namespace) -> Result:
    if options.trace is None:
        return run_of(plan, options.seed).finish()
    writers: list[TraceWriter] = []

    def watch(world: World) -> TraceWriter:
        writers.append(TraceWriter(world, messages=options.trace_messages))
        return writers[0]

    run = run_of(plan, options.seed, watch=watch)
    try:
        # Opened before the run, which may take long, so that a wrong path is reported first.
        with Path(options.trace).open("w", encoding="utf-8") as file:
            result = run.finish()
            writers[0].write(result, file)
    except OSError as error:
        raise PlanError(f"{options.trace}: {error.strerror or error}") from None
    return result


def _table(result: Result) -> str:
    bytes_s = result.bytes_per_node_s
    rows = [
        ("scenario", f"{result.scenario}, seed {result.seed}, {result.nodes} nodes"),
        ("virtual time", f"{result.virtual_s:.1f} s in {result.wall_s:.2f} s"),
        ("events", f"{result.events}, {result.as_json()['events_per_s']} a second"),
        ("crash detected", _after(result.detected_s)),
        ("one cluster again", _after(result.converged_s)),
        ("false alarms", str(result.false_faulty)),
        ("a node and second", f"{result.messages_per_node_s:.1f} messages, {bytes_s:.0f} bytes"),
    ]
    if result.traffic:
        rows.append(("traffic", ", ".join(f"{n} {name}" for name, n in result.traffic.items())))
    rows.append(("digest", result.digest))
    lines = [f"{name:<18} {text}" for name, text in rows]
    if result.ok:
        return "\n".join([*lines, c.good("every invariant held")])
    count = len(result.broken)
    lines.append(c.bad(f"broken: {', '.join(sorted({b.invariant for b in result.broken}))}"))
    lines += [
        f"  {broken.invariant:<4} at {seconds(broken.at_us):.6f} s: {broken.detail}"
        for broken in result.broken[:BROKEN_SHOWN_MAX]
    ]
    if count > BROKEN_SHOWN_MAX:
        lines.append(f"  and {count - BROKEN_SHOWN_MAX} more")
    return "\n".join(lines)


def _after(after_s: float | None) -> str:
    return "-" if after_s is None else f"after {after_s:.2f} s"
