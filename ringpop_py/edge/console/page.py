"""The console's page, made of sections as plain values; a node or the simulator has these."""

from __future__ import annotations

import re
import time
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import jinja2

from ringpop_py.edge.console import banner, pictures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PARTS: Final = {
    "banner": ("problems", "head", "members", "keyspaces", "events"),
    "head": ("head", "problems", "members", "keyspaces"),
    "nav": ("problems", "head", "members", "keyspaces", "work"),
    "problems": ("problems", "head"),
    "matrix": ("pings",),
    "ring": ("members", "moves"),
    "tally": ("members", "head"),
    "members": ("members", "problems"),
    "keyspaces": ("keyspaces", "handovers"),
    "work": ("work",),
    "events": ("events", "head"),
}
"""The sections that each part of the page shows; a part is the element with its name as the id."""


def page_of(sections: Mapping[str, Any], **more: Any) -> str:  # noqa: ANN401 - a template takes anything
    """Return the page, which its script keeps up to date.

    Args:
        more: further names of the template: with *part*, only that part of the page is made.
    """
    known = {"key": None, "found": None, "member": None, "still": None, "clock": clock}
    names = {**known, **sections, **more}
    names["problems"] = [_problem(each) for each in sections["problems"]]
    names["banner"] = banner.banner_of(names, names["clock"])
    names["causes"] = {
        name: problem["cause"]
        for problem in reversed(names["problems"])  # so that the worst counts
        if problem["cause"] in banner.CAUSES
        for name in problem["members"]
    }
    return _template().render(**names)


def _problem(said: Any) -> dict[str, Any]:  # noqa: ANN401 - a triple, or what it is to become
    """Return a problem that was said as its level, check and text as one by its cause."""
    if isinstance(said, dict):
        return said
    level, check, text = said
    found = {"level": level, "cause": check, "text": text}
    return {**found, "members": [], "evidence": [], "next": "", "since": None}


def still_of(
    sections: Mapping[str, Any], *, source: str, clock: Callable[[float], str], version: str
) -> str:
    """Return the page as one static file: without script, acts and look-ups.

    Args:
        sections: those that exist, and no others than `PARTS` names.
        source: where the sections come from, as a line for people.
        clock: what stands for an instant of *sections*.
    """
    style = file_of("console.css").decode()
    return page_of(sections, still=source, clock=clock, version=version, style=style)


@cache
def file_of(name: str) -> bytes:
    """Return a file of the page."""
    return files("ringpop_py.edge.console").joinpath(name).read_bytes()


def clock(at: float) -> str:
    """Return the time *at* of the wall clock, here."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def duration(seconds: float) -> str:
    """Return so many seconds as text."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:g} min"  # noqa: PLR2004


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.globals |= {
        "advice": banner.ADVICE,
        "icon_of": banner.icon_of,
        "levels": banner.LEVELS,
        "other_advice": banner.OTHER_ADVICE,
        "shapes": banner.SHAPES,
        "states": banner.STATES,
        "timeline": pictures.timeline,
        "wheel": pictures.wheel,
        "words_of_causes": banner.CAUSES,
    }
    environment.filters |= {
        "ahead": _ahead,
        "duration": duration,
        "short": _short,
        "some": banner.some,
        "worst_first": _worst_first,
        "zip": zip,
    }
    return environment.from_string(file_of("page.html").decode())


def _ahead(seconds: float | None) -> str:
    return "\N{EN DASH}" if seconds is None else f"{seconds:+.1f} s" if seconds else "0 s"


def _short(name: str, most: int = 16) -> str:
    return name if len(name) <= most else f"…{name[1 - most :]}"


def natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts names as people do: n2 before n10."""
    # Of even places, the texts; of odd ones, the digits between them, whose length counts first.
    pieces = re.split(r"(\d+)", name)
    return [
        (len(digits := piece.lstrip("0")), digits) if place % 2 else (0, piece)
        for place, piece in enumerate(pieces)
    ]


def _worst_first(
    members: Sequence[dict[str, Any]], causes: Mapping[str, str]
) -> list[dict[str, Any]]:
    order = {"faulty": 0, "suspect": 1, "leave": 2, "alive": 3, "tombstone": 4}

    def rank(m: dict[str, Any]) -> tuple[bool, int, bool, list[tuple[int, str]]]:
        well = not (m["silent"] or m["name"] in causes)
        return well, order[m["status"]], not m["marks"], natural(m["name"])

    return sorted(members, key=rank)
