"""What the commands of ringpopctl have in common: what they give back, and how they end."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec

from ringpop_py.errors import RingpopError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.address import Address
    from ringpop_py.client import Client

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


class Aborted(RingpopError):
    """The person at the keyboard thought better of it, or cannot be asked; the text says so."""


def connect(peer: Address | str, *, timeout_s: float = PEER_TIMEOUT_S) -> Client:
    """Return a client of the node at *peer*. Raises ConfigError if that is no address."""
    from ringpop_py.client import Client  # noqa: PLC0415 - help needs nothing that is installed

    return Client(peer, timeout_s=timeout_s)


def ends_with_its_reader(main: Callable[_Arguments, int]) -> Callable[_Arguments, int]:
    """Have *main* end quietly, with `READER_GONE`, once nobody reads its standard output."""

    @wraps(main)
    def wrapped(*arguments: _Arguments.args, **settings: _Arguments.kwargs) -> int:
        try:
            exit_code = main(*arguments, **settings)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes standard output once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return READER_GONE
        return exit_code

    return wrapped
