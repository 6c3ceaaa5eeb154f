"""What an error says about the name of an operation that is unknown."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ELSEWHERE: Final = {"sum": "add", "set": "put", "upsert": "put", "remove": "delete"}
"""What operations are called in SQL and in other systems."""


def unknown_text(name: str, known: Iterable[str]) -> str:
    """Return that *name* is none of those *known*, and which of them may be meant."""
    there = sorted(known)
    close = [ELSEWHERE.get(name.lower(), ""), *get_close_matches(name.lower(), there, 1)]
    hint = next((f", perhaps {each!r} is meant" for each in close if each), "")
    return f"{name!r}{hint}; there are {', '.join(there)}"
