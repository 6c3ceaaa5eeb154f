"""What all pictures share: elements whose text is escaped, figures, and the order of names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NONE: Final = "–"  # noqa: RUF001 - a dash as in tables
"""Stands where a figure is not known."""
MINUS: Final = "−"  # noqa: RUF001 - the sign
_THOUSAND, _LARGE, _MILLION = 1_000, 100_000, 1_000_000
_ONE_BYTE: Final = 64
_DECIMAL_BELOW: Final = 10
_BELOW: Final = 120
"""So many seconds are minutes, and so many minutes hours."""
_DIGITS: Final = re.compile(r"([0-9]{1,18})")


class Finding(NamedTuple):
    """What a picture shows, as a sentence for its heading.

    Attributes:
        level: ``ok``, ``info``, ``warn`` or ``crit``.
    """

    level: str
    text: str


def tag(name: str, *inside: str, **attributes: object) -> Markup:
    """Return an element; texts and attributes are escaped, unless they are `Markup`.

    Args:
        attributes: of a name, ``_`` at the end is left out and ``_`` elsewhere is a hyphen; an
            attribute that is None is left out.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    body = "".join(escape(text) for text in inside)
    return Markup(f"<{name}{said}>{body}</{name}>")  # noqa: S704 - all parts are escaped


def joined(texts: Iterable[str]) -> str:
    """Return *texts* as one attribute, which the script splits at each bar."""
    return "|".join(text.replace("|", "¦") for text in texts)


def letter(number: int) -> str:
    """Return a character that needs no escape: the first 64 have one byte, the others two."""
    return chr(63 + number) if number < _ONE_BYTE else chr(0x100 - _ONE_BYTE + number)


def coordinate(value: float) -> str:
    """Return *value* with one decimal at most."""
    return f"{round(value, 1):g}"


def figure(value: float | None) -> str:
    """Return a number in at most six characters."""
    if value is None:
        return NONE
    if value >= _MILLION:
        return f"{value / _MILLION:.1f} M"
    if value >= _LARGE:
        return f"{value / _THOUSAND:.0f} k"
    if value >= _DECIMAL_BELOW or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}"


def milliseconds(value: float | None) -> str:
    """Return so many milliseconds with their unit."""
    if value is None:
        return NONE
    if value >= _THOUSAND:
        return f"{value / _THOUSAND:.1f} s"
    return f"{value:.0f} ms" if value >= _DECIMAL_BELOW else f"{value:.1f} ms"


def duration(seconds: float) -> str:
    """Return so many seconds with their unit; the script of the page says it in the same way."""
    if seconds < _BELOW:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 60 * _BELOW else f"{seconds / 3600:.0f} h"


def natural(name: str) -> tuple[object, ...]:
    """Return what to sort names by, so that n10 comes after n2."""
    return (*(int(part) if at % 2 else part for at, part in enumerate(_DIGITS.split(name))), name)


def short(name: str, most: int) -> str:
    """Return the end of *name*, which is what tells addresses and hosts apart."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


def some(names: Sequence[object], most: int = 4) -> str:
    """Return *names* as text, or the first of them and how many more."""
    if len(names) <= most:
        return ", ".join(map(str, names))
    return f"{', '.join(map(str, names[: most - 1]))} and {len(names) - most + 1} more"


def clock_axis(span_s: float, left: int, y: int) -> list[Markup]:
    """Return the words under a picture of the last *span_s*, which begins at *left* percent."""
    return [
        tag("text", text, x=f"{left + part * (100 - left):g}%", y=y, class_=place)
        for part, text, place in (
            (0.0, f"{MINUS}{span_s / 60:g} min", None),
            (0.5, f"{MINUS}{span_s / 120:g} min", "middle"),
            (1.0, "now", "end"),
        )
    ]
