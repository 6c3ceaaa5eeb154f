"""The console's page, made of sections as plain values; a node or the simulator has these."""

from __future__ import annotations

import time
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import jinja2

from ringpop_py.edge.console import (
    banner,
    charts,
    figures,
    matrix,
    pictures,
    ringmap,
    svg,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PARTS: Final = {
    "banner": ("problems", "head", "members", "keyspaces", "events"),
    "head": ("head", "problems", "members", "keyspaces"),
    "nav": ("problems", "head", "members", "keyspaces", "work"),
    "problems": ("problems", "head"),
    "series": ("series", "marks"),
    "matrix": ("pings",),
    "owned": ("ownership", "members"),
    "ring": ("ownership", "moves"),
    "bars": ("members",),
    "tally": ("members", "head"),
    "members": ("members", "problems"),
    "keyspaces": ("keyspaces", "ownership", "handovers"),
    "work": ("work",),
    "events": ("events", "marks", "head"),
}
"""The sections that each part of the page shows; a part is the element with its name as the id."""

STYLES: Final = ("console.css", "pictures.css")


def page_of(sections: Mapping[str, Any], **more: Any) -> str:  # noqa: ANN401 - a template takes anything
    """Return the page, which its script keeps up to date.

    Args:
        more: further names of the template: with *part*, only that part of the page is made.
    """
    known = {"key": None, "found": None, "member": None, "still": None, "clock": clock}
    names = {**known, **sections, **more}
    names["banner"] = banner.banner_of(names, names["clock"])
    names["causes"] = {
        name: problem["cause"]
        for problem in reversed(names["problems"])  # so that the worst counts
        if problem["cause"] in banner.CAUSES
        for name in problem["members"]
    }
    return _template().render(**names)


def still_of(
    sections: Mapping[str, Any], *, source: str, clock: Callable[[float], str], version: str
) -> str:
    """Return the page as one static file: without script, acts and look-ups.

    Args:
        sections: those that exist, and no others than `PARTS` names.
        source: where the sections come from, as a line for people.
        clock: what stands for an instant of *sections*.
    """
    style = "".join(file_of(name).decode() for name in STYLES)
    return page_of(sections, still=source, clock=clock, version=version, style=style)


@cache
def file_of(name: str) -> bytes:
    """Return a file of the page."""
    return files("ringpop_py.edge.console").joinpath(name).read_bytes()


def clock(at: float) -> str:
    """Return the time *at* of the wall clock, here."""
    return time.strftime("%H:%M:%S", time.localtime(at))


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.globals |= {
        "banners": banner,
        "charts": charts,
        "figures": figures,
        "matrix": matrix,
        "pictures": pictures,
        "ringmap": ringmap,
    }
    environment.filters |= {
        "ahead": _ahead,
        "duration": svg.duration,
        "figure": svg.figure,
        "milliseconds": svg.milliseconds,
        "short": svg.short,
        "some": svg.some,
        "unit": _unit,
        "worst_first": _worst_first,
    }
    return environment.from_string(file_of("page.html").decode())


def _unit(value: float | None, unit: str) -> str:
    return svg.NONE if value is None else f"{value:,} {unit}"


def _ahead(seconds: float | None) -> str:
    return svg.NONE if seconds is None else f"{seconds:+.1f} s" if seconds else "0 s"


def _worst_first(
    members: Sequence[dict[str, Any]], causes: Mapping[str, str]
) -> list[dict[str, Any]]:
    order = {"faulty": 0, "suspect": 1, "leave": 2, "alive": 3, "tombstone": 4}

    def rank(m: dict[str, Any]) -> tuple[bool, int, bool, tuple[object, ...]]:
        well = not (m["silent"] or m["name"] in causes)
        return well, order[m["status"]], not m["marks"], svg.natural(m["name"])

    return sorted(members, key=rank)
