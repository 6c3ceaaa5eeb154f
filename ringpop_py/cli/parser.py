"""What the command lines have in common: ``--version``, completion, and errors that suggest."""

from __future__ import annotations

import argparse
import difflib
import re
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from ringpop_py.version import package_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_Number = TypeVar("_Number", int, float)

SHELLS: Final = ("bash", "zsh", "tcsh")
_BAD_CHOICE: Final = re.compile(r"invalid choice: '(?P<word>.*)' \(choose from (?P<choices>.*)\)")
_BAD_FLAG: Final = re.compile(r"unrecognized arguments: (?P<word>--?[^\s=]+)")


class Parser(argparse.ArgumentParser):
    """A parser of flags that are written in full, whose help keeps its line breaks."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - argparse's own
        usual = {
            "allow_abbrev": False,
            "formatter_class": argparse.RawDescriptionHelpFormatter,
        }
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
    parser.add_argument("--version", action=_Version, help="print the version, and end")
    parser.add_argument(
        "--print-completion",
        action=_Completion,
        choices=SHELLS,
        metavar="|".join(SHELLS),
        help=f"print what that shell needs to complete {prog}, and end",
    )
    return parser


class _Version(argparse.Action):
    """Prints the version, looked up only then: that takes memory that a node does not need."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"{parser.prog} {package_version()}")
        parser.exit()


class _Completion(argparse.Action):
    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - argparse's own
        super().__init__(**settings | {"default": argparse.SUPPRESS})

    def __call__(
        self, parser: argparse.ArgumentParser, _options: object, shell: object, *_: object
    ) -> NoReturn:
        import shtab  # noqa: PLC0415 - a node does not need it

        print(shtab.complete(parser, str(shell)))
        parser.exit()


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
        message = f"{what}, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return value
