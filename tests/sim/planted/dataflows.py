"""Bugs to plant in what decides where an epoch of a dataflow ends, and who goes on from there."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import Bug

HUNT: Final = ("dataflows:300:1",)
EPOCHS: Final = "flow/exchange/epochs.py"
LEADER: Final = "flow/exchange/leader.py"
RUN: Final = "flow/exchange/run.py"
STATE: Final = "flow/exchange/state.py"
WATERMARKS: Final = "flow/exchange/watermarks.py"

DATAFLOW_BUGS: Final = (
    Bug(
        "a barrier is passed on when the first channel brings it",
        RUN,
        "lost twice error",
        HUNT,
        (("self.blocked != self._channels", "not self.blocked"),),
    ),
    Bug(
        "a barrier overtakes what was read before it",
        RUN,
        "live lost",
        HUNT,
        (
            (
                "self.offsets = {str(split): each.read for",
                "self.offsets = {str(split): each.read + 1 for",
            ),
        ),
    ),
    Bug(
        "a watermark goes back",
        WATERMARKS,
        "early",
        HUNT,
        (
            (
                "if self.time is not None and lowest <= self.time:",
                "if False:",
            ),
            ("lowest = min(known)", "lowest = max(known)"),
        ),
    ),
    Bug(
        "a watermark does not wait for channels that have brought none",
        WATERMARKS,
        "early",
        HUNT,
        (("if not known or len(known) < len(times):", "if not known:"),),
    ),
    Bug(
        "workers that begin again have the state of the epoch that was given up",
        EPOCHS,
        "twice lost",
        HUNT,
        (
            (
                "    epoch = record.epoch + 1\n    return",
                "    epoch = record.epoch + 1\n    record = replace(record, cut=epoch)\n    return",
            ),
        ),
    ),
    Bug(
        "the outputs of the epoch from which workers begin again are forgotten",
        EPOCHS,
        "lost live",
        HUNT,
        (
            (
                "workers=tuple(sorted(workers)), why=why, at_ms=at_ms",
                "workers=tuple(sorted(workers)), outputs=(), why=why, at_ms=at_ms",
            ),
        ),
    ),
    Bug(
        "what has changed takes the place of the whole state",
        EPOCHS,
        "lost",
        HUNT,
        (
            (
                "objects=former.get((each.part.first, each.part.end), ()) + each.part.objects",
                "objects=each.part.objects",
            ),
        ),
    ),
    Bug(
        "a worker that was started again is taken for the one that was there",
        LEADER,
        "live",
        HUNT,
        (("            elif lives[name] != worker:\n", "            elif False:\n"),),
    ),
    Bug(
        "an epoch is complete when most workers have it",
        LEADER,
        "error live lost twice",
        HUNT,
        (
            (
                "if len(aligned) == len(record.workers):",
                "if 2 * len(aligned) > len(record.workers):",
            ),
        ),
    ),
    Bug(
        "what was sent on in an epoch is not in its record",
        "flow/exchange/epochs.py",
        "lost live",
        HUNT,
        (
            (
                "outputs=tuple(each.output for each in aligned.values() if each.output is not",
                "outputs=record.outputs or tuple(x for x in () if x is not",
            ),
        ),
    ),
    Bug(
        "a worker that is paused is not resumed",
        RUN,
        "live",
        HUNT,
        (("        self.paused = False\n\n    # The", "\n    # The"),),
    ),
    Bug(
        "a change of a state is not kept",
        STATE,
        "lost",
        HUNT,
        (("        self._changed.add(key)\n", "        self._changed.discard(key)\n"),),
    ),
)
