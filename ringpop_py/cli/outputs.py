"""What the commands have in common: what they return, how they complain, and how they end."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TextIO

from ringpop_py.errors import RingpopError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ringpop_py.address import Address
    from ringpop_py.client.client import Client

_Arguments = ParamSpec("_Arguments")

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
DIVERGED: Final = 3
UNREACHABLE: Final = 4
TIMED_OUT: Final = 5
READER_GONE: Final = 141
"""What a shell reports of a command that was ended by SIGPIPE."""

PEER_TIMEOUT_S: Final = 3.0
REACHABLE: Final = ("alive", "suspect")


@dataclass(frozen=True, slots=True)
class Output:
    """What a command found: *value* for programs, *text* for people."""

    value: object
    text: str
    exit_code: int = OK


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


def complain_of(prog: str, error: object) -> None:
    """Print each line of *error* to standard error, as what the command *prog* says."""
    for line in str(error).splitlines():
        complain(f"{prog}: {line}")


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
            return READER_GONE
        return exit_code

    return wrapped


def _silence(stream: TextIO) -> None:
    """Have *stream* end nowhere: Python flushes it once more at its end, and would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
