"""The console's page, made of sections as plain values; a node or the simulator has these."""

from __future__ import annotations

import time
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import jinja2

from ringpop_py.edge.console import pictures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PARTS: Final = {
    "head": ("head",),
    "problems": ("problems",),
    "wheel": ("members", "moves"),
    "timeline": ("events", "head"),
    "matrix": ("pings",),
    "members": ("members",),
    "keyspaces": ("keyspaces", "handovers"),
    "work": ("work",),
    "events": ("events",),
}
"""The sections that each part of the page shows; a part is the element with its name as the id."""


def page_of(sections: Mapping[str, Any], **more: Any) -> str:  # noqa: ANN401 - a template takes anything
    """Return the page, which its script keeps up to date.

    Args:
        more: further names of the template: with *part*, only that part of the page is made.
    """
    line = pictures.timeline(sections["events"], sections["head"]["at"])
    known = {"key": None, "found": None, "still": None, "clock": clock}
    return _template().render(**{**known, **sections, "timeline": line, **more})


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
    environment.globals["wheel"] = pictures.wheel
    environment.filters |= {
        "duration": duration,
        "short": _short,
        "some": _some,
        "worst_first": _worst_first,
        "zip": zip,
    }
    return environment.from_string(file_of("page.html").decode())


def _short(name: str, most: int = 16) -> str:
    return name if len(name) <= most else f"…{name[1 - most :]}"


def _some(names: Sequence[object], most: int = 3) -> str:
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _worst_first(members: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    order = {"faulty": 0, "suspect": 1, "leave": 2, "alive": 3, "tombstone": 4}
    return sorted(members, key=lambda m: (not m["silent"], order[m["status"]], m["name"]))
