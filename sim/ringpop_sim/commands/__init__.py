"""The subcommands of ``ringpop-sim``: each a module with `add_parser` and `main`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ringpop_sim.errors import PlanError
from ringpop_sim.plans.planfile import parse_plan, read_plan
from ringpop_sim.runs.random_plans import NODES_DEFAULT, random_plan
from ringpop_sim.scenarios import SCENARIOS, scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_sim.plans.plan import Plan

    Parsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - it has no other

OK: Final = 0
BROKEN: Final = 1
BAD_PLAN: Final = 2
NOT_DETERMINISTIC: Final = 3

STDIN: Final = "-"
RANDOM: Final = "random"
SEED_MAX: Final = (1 << 63) - 1


class Command(Protocol):
    """The interface of a subcommand: of a module, or of an object."""

    def add_parser(self, commands: Parsers) -> argparse.ArgumentParser:
        """Add the parser of this subcommand to *commands*, and return it."""
        ...

    def main(self, options: argparse.Namespace) -> int:
        """Run the subcommand, and return the exit code."""
        ...


def parser_of(
    commands: Parsers, name: str, summary: str, examples: Sequence[str]
) -> argparse.ArgumentParser:
    """Add and return the parser of the subcommand *name*, with *examples* after its help."""
    epilog = "\n".join(["examples:", *(f"  {example}" for example in examples)])
    return commands.add_parser(
        name,
        help=summary,
        description=summary[:1].upper() + summary[1:] + ".",
        epilog=epilog,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


# Arguments.


def count(text: str) -> int:
    """Parse a number of things, for argparse."""
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text!r}")
    return value


def seed(text: str) -> int:
    """Parse a seed, for argparse."""
    value = _whole(text)
    if not 0 <= value <= SEED_MAX:
        raise argparse.ArgumentTypeError(f"must be a seed from 0 to {SEED_MAX}, not {text!r}")
    return value


def positive_seconds(text: str) -> float:
    """Parse a duration, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def found_plan(name: str, seed: int, nodes: int | None) -> Plan:
    """Return the plan that a user means by *name*: a scenario, a file, ``random``, or ``-``.

    Raises:
        PlanError: *name* is none of these, or the plan is invalid.
    """
    if name == STDIN:
        return _with_nodes(parse_plan(sys.stdin.read(), "standard input"), nodes)
    if name == RANDOM:
        return random_plan(seed, nodes or NODES_DEFAULT)
    if name in SCENARIOS:  # a file of such a name is found as ./name
        return scenario(name, nodes)
    if not Path(name).exists():
        known = ", ".join([*SCENARIOS, RANDOM])
        raise PlanError(f"{name!r} is neither a file nor a scenario; there is {known}")
    return _with_nodes(read_plan(name), nodes)


def _with_nodes(plan: Plan, nodes: int | None) -> Plan:
    return plan if nodes is None else replace(plan, nodes=nodes)


# Output.


def say(text: str) -> None:
    """Write *text* to standard output, for the user."""
    print(text, flush=True)


def say_json(value: dict[str, Any]) -> None:
    """Write *value* to standard output, as exactly one JSON object for programs."""
    say(json.dumps(value))


def mention(text: str) -> None:
    """Write *text* to standard error, beside the result."""
    print(text, file=sys.stderr, flush=True)


def good(text: str) -> str:
    """Return *text* in green, if the output has colours."""
    return _coloured(text, 32)


def bad(text: str) -> str:
    """Return *text* in red, if the output has colours."""
    return _coloured(text, 31)


def _coloured(text: str, colour: int) -> str:
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


class Progress:
    """A line of progress on standard error; off a terminal it is written less often."""

    def __init__(self, clock: Any) -> None:  # noqa: ANN401 - a function
        self._clock = clock
        self._terminal = sys.stderr.isatty()
        self._every_s = 0.2 if self._terminal else 10.0
        self._last_s = clock()
        self._open = False

    def show(self, text: str) -> None:
        """Show *text* if it is time for an update."""
        now_s = self._clock()
        if now_s - self._last_s < self._every_s:
            return
        self._last_s = now_s
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._open = True
        else:
            mention(text)

    def end(self) -> None:
        """Clear the line of progress."""
        if self._open:
            sys.stderr.write("\r\x1b[K")
            self._open = False
