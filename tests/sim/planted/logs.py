"""Bugs to plant in what reads rotated files, and in what brings their lines to partitions."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import bug

FILES: Final = "flow/streams/files.py"
STREAM: Final = "flow/streams/stream.py"
ROTATED: Final = ("logs-rotated:0:1",)
RENAMED: Final = ("logs-rotated:0:17",)


LOG_BUGS: Final = (
    bug(
        "the last line of a file that was rotated away is never read",
        FILES,
        "        return about is not None and about.is_ended and",
        "        return False and about is not None and",
        "K15",
        *ROTATED,
    ),
    bug(
        "a compressed file is read anew",
        STREAM,
        "        if split.is_copy and first not in",
        "        if False and first not in",
        "K14",
        *ROTATED,
    ),
    bug(
        "a file that was just renamed is taken for another one",
        STREAM,
        "                self._note(SOURCE, str(error))\n            else:",
        "                raise SplitDiffers(str(error)) from None\n            else:",
        "K14",
        *RENAMED,
    ),
    bug(
        "a file that was rotated before it was read is not known to its copy",
        STREAM,
        "not (split.is_copy and first)",
        "not split.is_copy",
        "K14",
        *ROTATED,
    ),
    bug(
        "a group that fails is given up",
        STREAM,
        "            if not isinstance(outcome, SpanRefused):  #",
        "            if True:\n                return ''\n            if False:  #",
        "K15",
        *ROTATED,
    ),
    bug(
        "a group's records are read again behind the highest mark of its source",
        STREAM,
        "        feed: Feed[Record] = Feed(marks)\n",
        "        feed: Feed[Record] = Feed([max(marks)] * len(marks))\n",
        "K14 K15",
        *ROTATED,
    ),
    bug(
        "what was rotated before its first line had an end is left",
        FILES,
        "            if is_left and _extends(",
        "            if False and _extends(",
        "unit",
        "unit:tests/flow/streams/test_rotation.py",
    ),
    bug(
        "a file that is read elsewhere hides its copy for ever",
        FILES,
        "                if copies and time.monotonic() -",
        "                if False and time.monotonic() -",
        "unit",
        "unit:tests/flow/streams/test_rotation.py",
    ),
)
