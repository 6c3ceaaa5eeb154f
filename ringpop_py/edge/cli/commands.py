"""What all commands share: flags, tables, messages on standard error, exit codes."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from functools import wraps
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TextIO

from ringpop_py.base.errors import RingpopError
from ringpop_py.base.rules import SECONDS, Rule, whole
from ringpop_py.base.texts import printable
from ringpop_py.base.version import package_version
from ringpop_py.edge.instants import INSTANT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ringpop_py.base.address import Peer
    from ringpop_py.client.sync.client import Client

    Command = Callable[[Client, argparse.Namespace], "Output"]
    _Text = Callable[[argparse.ArgumentParser, object], str]

_Arguments = ParamSpec("_Arguments")

PEER_TIMEOUT_S: Final = 3.0
ALL_TIMEOUT_S: Final = 30.0
"""How long to wait for the answer of a node that asks all members, in seconds."""
REACHABLE: Final = ("alive", "suspect")  # members that should answer


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DIVERGED = 3
    UNREACHABLE = 4
    TIMED_OUT = 5
    INTERRUPTED = 130  # as a shell reports a command that SIGINT ended
    READER_GONE = 141  # likewise for SIGPIPE


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a command: *value* for programs, *text* for people."""

    value: object
    text: str
    exit_code: int = ExitCode.OK


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return *rows* under *heads*: columns as wide as their contents, numbers right-aligned.

    Characters that could control a terminal are escaped.
    """
    columns = []
    for head, *cells in zip(heads, *rows, strict=True):
        texts = [head, *(printable(str(cell)) for cell in cells)]
        width = max(map(len, texts))
        numeric = cells and all(isinstance(cell, int | float) for cell in cells)
        columns.append([text.rjust(width) if numeric else text.ljust(width) for text in texts])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def table_of(items: Sequence[Mapping[str, object]], *heads: str) -> str:
    """Return a table of *items*; the key of a column is its head in lower case. None is "-"."""
    keys = [head.lower() for head in heads]
    cells = [["-" if item[key] is None else item[key] for key in keys] for item in items]
    return table(heads, cells)


def time_of(at: float) -> str:
    """Return the time of day *at*, in seconds since 1970, where this is read."""
    return datetime.fromtimestamp(at, tz=UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]


class Aborted(RingpopError):
    """The user did not confirm the command; the message says why."""


def connect(peer: Peer | str | None, *, timeout_s: float = PEER_TIMEOUT_S) -> Client:
    """Return a client of the node at *peer*. Raises ConfigError if *peer* is not one."""
    from ringpop_py.client.sync.client import Client  # noqa: PLC0415 - help needs nothing that is installed

    return Client(peer, timeout_s=timeout_s)


def members_said(client: Client, *sections: str, **wanted: object) -> dict[str, Any]:
    """Return the members, what each says of itself, by section, and why others are silent.

    *client*'s node asks them (``/admin/cluster``); members that are cut off are asked for again.

    Raises:
        CallError, ApplicationError: there is no answer of *client*'s node.
    """

    def asked(**more: object) -> dict[str, Any]:
        body = {"sections": sections, **wanted, **more}
        found: dict[str, Any] = client.admin("/admin/cluster", body, timeout_s=ALL_TIMEOUT_S)
        return found

    client.admin("/health")  # which a node that hangs does not answer, and others do immediately
    value = asked()
    while value["cut"] and (more := asked(names=value["cut"]))["said"]:
        value["said"] |= more["said"]
        value["silent"] = {
            name: why for name, why in value["silent"].items() if name not in value["cut"]
        } | more["silent"]
        value["cut"] = more["cut"]
    return value


def asking(
    path: str,
    text_of: Callable[[dict[str, Any]], str],
    *fields: str,
    timeout_s: float = PEER_TIMEOUT_S,
) -> Command:
    """Return the command that sends the options named *fields* to the admin endpoint at *path*.

    *text_of* formats the reply, the request and ``peer`` as text. *timeout_s* is for commands
    without ``--timeout``.
    """

    def command(client: Client, options: argparse.Namespace) -> Output:
        given = {field: getattr(options, field) for field in fields}
        body = {field: value for field, value in given.items() if value is not None}
        wait_s = getattr(options, "timeout", timeout_s)
        value = client.admin(f"/admin/{path}", body or None, timeout_s=wait_s)
        return Output(value, text_of({"peer": client.peer, **body, **value}))

    return command


def confirm(act: str, name: str, what: str) -> None:
    """Have the user confirm *act* by typing *name*, its object. Raises Aborted."""
    if not at_terminal():
        raise Aborted("this needs confirmation, and standard input is not a terminal; pass --yes")
    print(f"{act} {name}: {what}. Type its name: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise Aborted("that is not its name; nothing was done")


def at_terminal() -> bool:
    """Return whether somebody can answer a question."""
    return sys.stdin is not None and sys.stdin.isatty()  # it is None if it was closed


def complain_of(prog: str, error: object, exit_code: ExitCode) -> ExitCode:
    """Print each line of *error* with the command's name before it; return *exit_code*."""
    for line in str(error).splitlines():
        complain(f"{prog}: {printable(line)}")
    return exit_code


def complain(text: str) -> None:
    """Print *text* to standard error. If that fails, the command still ends as it would have."""
    if sys.stderr is None:  # it was closed, and `print` would use standard output instead
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)


def ends_with_its_reader(main: Callable[_Arguments, int]) -> Callable[_Arguments, int]:
    """Make *main* end quietly, with `READER_GONE`, once its standard output has no reader."""

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
    # Python flushes the stream once more when it exits, and would report that failure.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# Flags.


SHELLS: Final = ("bash", "zsh", "fish", "tcsh")
# Messages of argparse, which has no other way to say what was wrong.
_BAD_CHOICE: Final = re.compile(r"invalid choice: '(?P<word>.*)' \(choose from (?P<choices>.*)\)")
_BAD_FLAG: Final = re.compile(r"unrecognized arguments: (?P<word>--?[^\s=]+)")


class Parser(argparse.ArgumentParser):
    """A parser that accepts no abbreviated flags, and keeps the line breaks of its help."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - argparse's own
        # An abbreviation in a script would stop working once a second flag begins with it.
        usual = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**{**usual, **settings})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - argparse's own
        """Parse as argparse does, but refuse arguments that are not UTF-8: they cannot be sent."""
        for argument in sys.argv[1:] if args is None else args:
            try:
                argument.encode()
            except UnicodeEncodeError:
                self.error(f"argument {argument!r} is not UTF-8")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with code 2, and suggest the right word for one that is nearly right."""
        super().error(message + self.suggestion(message))

    def suggestion(self, message: str) -> str:
        """Return an addition to argparse's *message*: the right word for one nearly right."""
        if found := _BAD_CHOICE.search(message):
            known: Iterable[str] = re.findall(r"[^\s',]+", found["choices"])
        elif found := _BAD_FLAG.search(message):
            known = _flags_of(self)
            if found["word"] in known:
                return "; it is an option of another command"
        else:
            return ""
        return did_you_mean(found["word"], known)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message: the *known* word closest to *word*, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def command_parser(
    prog: str,
    kind: type[Parser] = Parser,
    **settings: Any,  # noqa: ANN401 - argparse's own
) -> Parser:
    """Return a parser for *prog* that has ``--version`` and ``--print-completion`` already."""
    parser = kind(prog=prog, **settings)
    parser.add_argument(
        "--version",
        action=_Print,
        text=lambda parser, _: f"{parser.prog} {package_version()}",
        nargs=0,
        help="print the version and exit",
    )
    parser.add_argument(
        "--print-completion",
        action=_Print,
        text=_completion,
        choices=SHELLS,
        metavar="|".join(SHELLS),
        help=f"print a completion script for {prog} in that shell, and exit",
    )
    return parser


# argparse's own "version" needs the text when the flag is declared: at each start of a node.
class _Print(argparse.Action):
    """An action that prints what *text* returns for the parser and the flag's value, and exits."""

    def __init__(self, *, text: _Text, **settings: Any) -> None:  # noqa: ANN401 - argparse's own
        super().__init__(**settings | {"default": argparse.SUPPRESS})  # it is not an option
        self._text = text

    def __call__(
        self, parser: argparse.ArgumentParser, _options: object, value: object, *_: object
    ) -> NoReturn:
        print(self._text(parser, value))
        parser.exit()


def _completion(parser: argparse.ArgumentParser, shell: object) -> str:
    import shtab  # noqa: PLC0415 - a node does not need it

    return str(shtab.complete(parser, str(shell)))


def _flags_of(parser: argparse.ArgumentParser) -> list[str]:
    flags: list[str] = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        flags += action.option_strings
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - likewise
            for command in action.choices.values():
                flags += _flags_of(command)
    return flags


# Types of arguments: numbers in range, with a readable error for anything else.


def _number(rule: Rule) -> Callable[[str], Any]:
    def read(text: str) -> Any:  # noqa: ANN401 - a number
        try:
            return rule.parsed(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}, not {text!r}") from None

    return read


count: Final[Callable[[str], int]] = _number(whole(1)._replace(read=int))
seconds: Final[Callable[[str], float]] = _number(SECONDS)
instant: Final[Callable[[str], float]] = _number(INSTANT)
_milliseconds: Final[Callable[[str], float]] = _number(
    Rule("a number of milliseconds above 0", lambda ms: 0 < ms < inf, float)
)


UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def size(text: str) -> int:
    """Parse a number of bytes, such as 500000, 500kB or 2GiB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?)?B?", text.strip().upper())
    if found is None:
        raise argparse.ArgumentTypeError(f"a size such as 500MB or 2GiB, not {text!r}")
    return int(float(found[1]) * UNITS[found[2] or ""])


def period(text: str) -> float:
    """Parse a number of milliseconds, and return it in seconds."""
    return float(_milliseconds(text) / 1000)
