"""The banner of the console: how the cluster is, in one sentence, and what to do. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LEVELS: Final = {"critical": "crit", "warning": "warn"}
"""The level of a page by that of a problem; the worst first."""
WORDS: Final = {
    "ok": "Healthy",
    "info": "Changing",
    "warn": "Degraded",
    "crit": "Critical",
    "unk": "Not known",
}
COLOURS: Final = {
    "ok": "#0a7558",
    "info": "#0d5c9e",
    "warn": "#b87000",
    "crit": "#c23a10",
    "unk": "#55616c",
}
"""The colours of the icons of tabs, which know nothing of light and dark."""
SHAPES: Final = {
    "ok": '<circle cx="8" cy="8" r="7.5"/><path class="k" d="M4.7 8.3 7 10.6l4.4-4.9"/>',
    "info": '<circle cx="8" cy="8" r="7.5"/><path class="k" d="M5 5l3 3-3 3M8.6 5l3 3-3 3"/>',
    "warn": '<path d="M8 .8 15.8 15H.2z"/><path class="k" d="M8 6v4M8 12.6v.1"/>',
    "crit": '<path d="M4.9.5h6.2l4.4 4.4v6.2l-4.4 4.4H4.9L.5 11.1V4.9z"/>'
    '<path class="k" d="M5.3 5.3l5.4 5.4M10.7 5.3l-5.4 5.4"/>',
    "unk": '<circle class="o t" cx="8" cy="8" r="6.6"/>'
    '<path class="o t" d="M6 6.3a2 2 0 1 1 2.6 1.9c-.5.2-.6.6-.6 1.1M8 11.6v.2"/>',
    "alive": '<circle cx="8" cy="8" r="5.5"/>',
    "suspect": '<path class="o" d="M8 1.5 14.5 8 8 14.5 1.5 8zM8 5v3.4M8 10.7v.1"/>',
    "leave": '<circle class="o" cx="8" cy="8" r="5"/>',
    "killed": '<rect x=".8" y=".8" width="14.4" height="14.4" rx="2"/>'
    '<path class="k" d="M5 5l6 6M11 5l-6 6"/>',
    "paused": '<circle cx="8" cy="8" r="7.2"/><path class="k" d="M6 5v6M10 5v6"/>',
    "cut": '<path class="o" d="M.5 8h4.7M5.2 2.5v11M10.8 2.5v11M10.8 8h4.7"/>',
    "lossy": '<path class="o" d="M1 8h2.6M6.2 8h.8M9.6 8h.8M13 8h2M1 3.6h14M1 12.4h14"/>',
    "draining": '<circle class="o" cx="8" cy="8" r="6.6"/>'
    '<path class="o" d="M8 4v7M5 8.4l3 3 3-3"/>',
    "starved": '<path d="M2.5 .8h11v2.4L9.8 8l3.7 4.8v2.4h-11v-2.4L6.2 8 2.5 3.2z"/>'
    '<path class="k" d="M5.6 12.6h4.8"/>',
    "path": '<path class="o" d="M.5 8h4.3M11.2 8h4.3M6 12l4-8"/>',
    "store-full": '<path d="M1.5 1.5h13v13h-13z"/><path class="k" d="M5 11.5V7l3-3 3 3v4.5"/>',
    "store-read-only": '<circle cx="8" cy="8" r="7.5"/><path class="k" d="M4.4 8h7.2"/>',
}
"""What is drawn for a level, a status or a cause, in a square of 16; `k` is cut out, `o` a line."""
STATES: Final = {
    "alive": ("ok", "alive"),
    "suspect": ("warn", "suspect"),
    "faulty": ("crit", "crit"),
    "leave": ("unk", "leave"),
    "tombstone": ("unk", "leave"),
}
"""The level and the shape of each status of a member."""
CAUSES: Final = {
    "killed": ("crit", "process gone"),
    "paused": ("crit", "stands still"),
    "cut": ("crit", "out of reach"),
    "path": ("crit", "a path is cut"),
    "store-full": ("crit", "store full"),
    "store-read-only": ("crit", "cannot write"),
    "starved": ("warn", "starved"),
    "lossy": ("warn", "loses packets"),
}
"""The level of a member's state while a problem of this cause names it, and what it is called."""
ADVICE: Final = {
    "node": "See that a process runs there, and that this machine reaches it.",
    "key": "Give all members the same key: stop those that have another one.",
    "certificate": "Give the members certificates that all trust, and correct their clocks.",
    "killed": "Read why the process has ended, then start it again under its name.",
    "paused": "See what stops the process. Do not restart other members.",
    "cut": "Repair the network. Do not restart members: the sides find each other after that.",
    "path": "Repair the network between these members: routes, rules of a firewall, a switch.",
    "store-deleted": "Bring the store back as it was, or restore a checkpoint.",
    "store-full": "Make room in the store. Writes go on by themselves after that.",
    "store-read-only": "Let the members write to the store: look at its rights and its mode.",
    "store": "See that the members reach the store, and what its own log says.",
    "damaged": "Restore a checkpoint: what is damaged is not served until then.",
    "application": "See that the application runs; its own log says why it does not.",
    "starved": "Give the machine more processor time, or take other work from it.",
    "lossy": "Drain the member, so that it owns nothing, then look at its network.",
    "clock": "Correct the clock: see that its machine keeps time with a server.",
    "disk": "Free some space there, or give the node a larger disk.",
    "expiry": "See that its owners can write: keys are deleted by entries of the journal.",
    "copies": "Start as many members as there should be copies, or see why some take none.",
    "tick": "See who runs it (ringpopctl ticks), and the log of that node: tick-failed says why.",
    "reminders": "See that all members register the actors' class, and why its turns fail.",
    "checkpoints": "See why they fail: without new ones, a restart takes longer.",
    "bug": "Read the log of the member, restart it, and report what the log says.",
    "members": "See why; a member that can be reached again is alive again by itself.",
    "views": "If this lasts, the network is cut, or was: repair it, then look for the other sides.",
    "stores": "Give all members the same store: stop those that have the wrong one.",
    "partitions": "See what their owners wait for.",
    "hosts": "See that a process runs on this host, and that the network reaches it.",
    "flow": "See that the source can be read, and that the keyspace takes what it has.",
    "versions": "Complete the update, or undo it: members should differ for a short time only.",
    "settings": "Give all members the same settings, and restart them one after the other.",
    "connections": "See who opens so many connections, or raise the limit.",
    "log": "See that the disk with its log has space.",
    "draining": "Nothing, if this is meant. Undrain the member to let it own keys again.",
}
"""What to do, by cause; a sentence for each."""
OTHER_ADVICE: Final = "See what all members say."
PROGRAMS: Final = ("ringpopctl ", "chronyc ")
CHECK: Final = "ringpopctl check"
"""The next command where a problem names no other."""


@dataclass(frozen=True, slots=True)
class Banner:
    """What stands at the top of the page.

    Attributes:
        level: a key of `WORDS`.
        shape: a key of `SHAPES`.
        count: how many problems there are.
        say: what is wrong.
        advice: what to do.
        command: the next command; empty if there is nothing to do.
        since: when it began, by the wall clock; None if that is not known.
    """

    level: str
    shape: str
    count: int
    say: str
    advice: str
    command: str = ""
    since: float | None = None

    @property
    def word(self) -> str:
        """The level as a word."""
        return WORDS[self.level]

    def title(self, cluster: str) -> str:
        """Return the title of the page."""
        return f"{f'({self.count}) ' if self.count else ''}{self.word} · {cluster}"


def banner_of(sections: Mapping[str, Any], clock: Callable[[float], str]) -> Banner:
    """Return the banner of a page with these sections; a simulated run has only some of them."""
    problems: list[dict[str, Any]] = sections["problems"]
    moves = sum(each["moving"] for each in sections.get("keyspaces", ()))
    if problems and any(each["cause"] != "draining" for each in problems):
        worst = problems[0]
        level, cause = LEVELS[worst["level"]], worst["cause"]
        shape = cause if cause in SHAPES else level
        advice = ADVICE.get(cause, OTHER_ADVICE)
        command = command_of(worst["next"]) or CHECK
        return Banner(level, shape, len(problems), worst["text"], advice, command, worst["since"])
    if problems:
        say = "; ".join(each["text"] for each in problems)
        advice, since = ADVICE["draining"], problems[0]["since"]
        return Banner("info", "draining", len(problems), say, advice, since=since)
    if moves:
        say = f"{moves} partitions are on their way to their next owners."
        return Banner("info", "info", 0, say, "Nothing to do: this ends by itself.")
    return _healthy(sections, clock)


def _healthy(sections: Mapping[str, Any], clock: Callable[[float], str]) -> Banner:
    count = sections["head"]["counts"]["alive"]
    up = f"All {count} members are up and agree" if count > 1 else "The only member is up"
    serve = ", and every partition is served" if sections.get("keyspaces") else ""
    changes = [event for event in sections["events"] if event["before"] != event["after"]]
    last = (f"The last change, at {clock(each['at'])}: {each['text']}." for each in changes[-1:])
    return Banner("ok", "ok", 0, f"{up}{serve}.", " ".join(["Nothing to do.", *last]))


def command_of(said: str) -> str:
    """Return the command at the beginning of what a problem says to do next, or nothing."""
    command = re.split("[;,] ", said)[0]
    return command if command.startswith(PROGRAMS) else ""


def icon_of(level: str) -> str:
    """Return the icon of the tab, as a URL that has all of it."""
    colour = COLOURS[level]
    style = f".k,.o{{fill:none;stroke:#fff;stroke-width:2}}.o{{stroke:{colour}}}"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="{colour}">'
        f"<style>{style}</style>{SHAPES[level]}</svg>"
    )
    return f"data:image/svg+xml,{quote(svg)}"
