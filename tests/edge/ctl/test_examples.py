"""`ctl.examples`: each command has examples, and they are commands."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

import pytest

from ringpop_py.edge.ctl.examples import EXAMPLES
from ringpop_py.edge.ctl.ringpopctl import _parser

if TYPE_CHECKING:
    from collections.abc import Iterator


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """All commands below *parser* that do something themselves."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for group in groups:
        for command in group.choices.values():
            yield from commands(command)
    if not groups:
        yield parser


def test_each_command_has_examples_and_no_other_text_stands_there() -> None:
    assert {c.prog for c in commands(_parser())} == {f"ringpopctl {name}" for name in EXAMPLES}


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_is_that_command(name: str) -> None:
    parser = _parser()
    command = next(c for c in commands(parser) if c.prog == f"ringpopctl {name}")
    command.set_defaults(command=name)
    lines = [line.strip() for line in command.format_help().splitlines()]
    examples = [line for line in lines[lines.index("examples:") + 1 :] if line.startswith("ring")]

    assert examples
    for example in examples:
        assert parser.parse_args(shlex.split(example)[1:]).command == name
