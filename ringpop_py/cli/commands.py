"""What all commands have in common: their flags, what they return and complain of, how they end."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TextIO, TypeVar

from ringpop_py.errors import RingpopError
from ringpop_py.version import package_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ringpop_py.address import Address
    from ringpop_py.client.client import Client

    _Text = Callable[[argparse.ArgumentParser, object], str]

_Arguments = ParamSpec("_Arguments")

PEER_TIMEOUT_S: Final = 3.0
REACHABLE: Final = ("alive", "suspect")


class ExitCode(IntEnum):
    """How a command ended; the last is what a shell reports of one that SIGPIPE has ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DIVERGED = 3
    UNREACHABLE = 4
    TIMED_OUT = 5
    INTERRUPTED = 130
    READER_GONE = 141


@dataclass(frozen=True, slots=True)
class Output:
    """What a command found: *value* for programs, *text* for people."""

    value: object
    text: str
    exit_code: int = ExitCode.OK


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return *rows* under *heads*, columns as wide as their contents, numbers to the right."""
    columns = []
    for head, *cells in zip(heads, *rows, strict=True):
        texts = [head, *map(str, cells)]
        width = max(map(len, texts))
        numeric = cells and all(isinstance(cell, int | float) for cell in cells)
        columns.append([text.rjust(width) if numeric else text.ljust(width) for text in texts])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def table_of(items: Sequence[Mapping[str, object]], *heads: str) -> str:
    """Return a table of *items*; the key of a column is its head in lower case."""
    keys = [head.lower() for head in heads]
    cells = [["-" if item[key] is None else item[key] for key in keys] for item in items]
    return table(heads, cells)


class Aborted(RingpopError):
    """The command was not confirmed; the message says why."""


def connect(peer: Address | str, *, timeout_s: float = PEER_TIMEOUT_S) -> Client:
    """Return a client of the node at *peer*. Raises ConfigError if that is no address."""
    from ringpop_py.client.client import Client  # noqa: PLC0415 - help needs nothing that is installed

    return Client(peer, timeout_s=timeout_s)


def complain_of(prog: str, error: object, exit_code: ExitCode) -> ExitCode:
    """Print each line of *error*, as what the command *prog* says; return how *prog* ends."""
    for line in str(error).splitlines():
        complain(f"{prog}: {line}")
    return exit_code


def complain(text: str) -> None:
    """Print *text* to standard error, if that can be written to; the exit code stays as it is."""
    if sys.stderr is None:  # it was closed, and `print` would take standard output instead
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)


def ends_with_its_reader(main: Callable[_Arguments, int]) -> Callable[_Arguments, int]:
    """Have *main* end quietly, with `READER_GONE`, once nobody reads its standard output."""

    @wraps(main)
    def wrapped(*arguments: _Arguments.args, **settings: _Arguments.kwargs) -> int:
        try:
            exit_code = main(*arguments, **settings)
            if sys.stdout is not None:  # it was closed
                sys.stdout.flush()
        except BrokenPipeError:
            _silence(sys.stdout)
            return ExitCode.READER_GONE
        return exit_code

    return wrapped


def _silence(stream: TextIO) -> None:
    """Have *stream* end nowhere: Python flushes it once more at its end, and would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# Flags.


_Number = TypeVar("_Number", int, float)

SHELLS: Final = ("bash", "zsh", "tcsh")
_BAD_CHOICE: Final = re.compile(r"invalid choice: '(?P<word>.*)' \(choose from (?P<choices>.*)\)")
_BAD_FLAG: Final = re.compile(r"unrecognized arguments: (?P<word>--?[^\s=]+)")


class Parser(argparse.ArgumentParser):
    """A parser of flags that are written in full, whose help keeps its line breaks."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - argparse's own
        usual = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**{**usual, **settings})

    def error(self, message: str) -> NoReturn:
        """End with exit code 2; a word that is nearly right is answered with the right one."""
        super().error(message + self._suggestion(message))

    def _suggestion(self, message: str) -> str:
        if found := _BAD_CHOICE.search(message):
            known: Iterable[str] = re.findall(r"[^\s',]+", found["choices"])
        elif found := _BAD_FLAG.search(message):
            known = _flags_of(self)
        else:
            return ""
        return did_you_mean(found["word"], known)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message: which of the *known* words is nearly *word*; empty if none is."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def command_parser(prog: str, **settings: Any) -> Parser:  # noqa: ANN401 - argparse's own
    """The parser of the command *prog*: its version and its completion are options already."""
    parser = Parser(prog=prog, **settings)
    parser.add_argument(
        "--version", action=_Print, text=_version, nargs=0, help="print the version, and end"
    )
    parser.add_argument(
        "--print-completion",
        action=_Print,
        text=_completion,
        choices=SHELLS,
        metavar="|".join(SHELLS),
        help=f"print what that shell needs to complete {prog}, and end",
    )
    return parser


class _Print(argparse.Action):
    """Prints what *text* returns of the parser and the flag's value, and ends."""

    def __init__(self, *, text: _Text, **settings: Any) -> None:  # noqa: ANN401 - argparse's own
        super().__init__(**settings | {"default": argparse.SUPPRESS})
        self._text = text

    def __call__(
        self, parser: argparse.ArgumentParser, _options: object, value: object, *_: object
    ) -> NoReturn:
        print(self._text(parser, value))
        parser.exit()


def _version(parser: argparse.ArgumentParser, _: object) -> str:
    return f"{parser.prog} {package_version()}"  # looked up only now: a node does not need it


def _completion(parser: argparse.ArgumentParser, shell: object) -> str:
    import shtab  # noqa: PLC0415 - a node does not need it

    return str(shtab.complete(parser, str(shell)))


def _flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """All flags of *parser* and of its commands."""
    flags: list[str] = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        flags += action.option_strings
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - likewise
            for command in action.choices.values():
                flags += _flags_of(command)
    return flags


# Types of arguments: numbers in range, with a readable error for anything else.


def count(text: str) -> int:
    """A number of things."""
    return _checked(text, int, lambda value: value >= 1, "a whole number, 1 or more")


def seconds(text: str) -> float:
    """A time to wait."""
    return _checked(text, float, lambda value: 0 <= value < inf, "a number of seconds, 0 or more")


def period(text: str) -> float:
    """A number of milliseconds, as seconds."""
    what = "a number of milliseconds above 0"
    return _checked(text, float, lambda value: 0 < value < inf, what) / 1000


def _checked(
    text: str, kind: type[_Number], sound: Callable[[_Number], bool], what: str
) -> _Number:
    try:
        value = kind(text)
    except ValueError:
        value = kind(-1)
    if not sound(value):
        raise argparse.ArgumentTypeError(f"{what}, not {text!r}")
    return value
