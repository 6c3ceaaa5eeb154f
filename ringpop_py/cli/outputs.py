"""What the commands of ringpopctl have in common: what they give back, and how they end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
DIVERGED: Final = 3
UNREACHABLE: Final = 4
TIMED_OUT: Final = 5

PEER_TIMEOUT_S: Final = 3.0
REACHABLE: Final = ("alive", "suspect")


@dataclass(frozen=True, slots=True)
class Output:
    """What a command found: *value* for programs, *text* for people."""

    value: object
    text: str
    exit_code: int = OK


class Aborted(Exception):
    """The person at the keyboard thought better of it, or cannot be asked; the text says so."""
