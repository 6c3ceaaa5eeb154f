"""Bugs to plant in what decides about records of sources, and how far a partition has come."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import Bug

EVALUATOR: Final = "state/table/evaluator.py"
FEED: Final = "flow/streams/feed.py"
ROTATED: Final = ("logs-rotated:0:1",)
SPANS: Final = ("unit:tests/state/table/test_spans.py",)

STREAM_BUGS: Final = (
    # The two forms that come to mind first: a mark alone, and a reader that goes on behind the
    # highest one.
    Bug(
        "a partition drops what is at its mark or before, and takes all else",
        EVALUATOR,
        "K14 K15",
        ROTATED,
        (("        if mark < span.after or (", "        if ("),),
    ),
    Bug(
        "a reader goes on behind the highest mark",
        FEED,
        "K14 K15",
        ROTATED,
        (("self.read = min(marks)", "self.read = max(marks)"),),
    ),
    Bug(
        "a group says that it has all that was read while more is waiting",
        FEED,
        "K14 K15",
        ROTATED,
        (("upto = records[-1][0] if lane.waiting else self.read", "upto = self.read"),),
    ),
    Bug(
        "what a partition has already counts again if it comes with something new",
        EVALUATOR,
        "unit",
        SPANS,
        (("write.changes[known:]", "write.changes"),),
    ),
    Bug(
        "a record at the mark is taken for a new one",
        EVALUATOR,
        "unit",
        SPANS,
        (
            ("known = bisect_right(", "known = bisect_left("),
            ("from bisect import bisect_right", "from bisect import bisect_left"),
        ),
    ),
    Bug(
        "a write is evaluated, and its mark is not kept",
        EVALUATOR,
        "K14 K15",
        ROTATED,
        (
            (
                "growth, offsets)\n        return Outcome((span.upto,))\n",
                "growth, None)\n        return Outcome((span.upto,))\n",
            ),
        ),
    ),
)
