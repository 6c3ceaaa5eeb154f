"""What the commands have in common: what they return, how they complain, and how they end."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TextIO

from ringpop_py.errors import RingpopError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [
        max(len(head), *(len(row[i]) for row in texts)) if texts else len(head)
        for i, head in enumerate(heads)
    ]
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        for i in range(len(heads))
    ]
    lines = [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in [list(heads), *texts]
    ]
    return "\n".join(lines)


class Aborted(RingpopError):
    """The command was not confirmed; the message says why."""


def connect(peer: Address | str, *, timeout_s: float = PEER_TIMEOUT_S) -> Client:
    """Return a client of the node at *peer*. Raises ConfigError if that is no address."""
    from ringpop_py.client.client import Client  # noqa: PLC0415 - help needs nothing that is installed

    return Client(peer, timeout_s=timeout_s)


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
