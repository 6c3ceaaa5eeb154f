"""Bugs to plant in watching."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import bug

RECENT: Final = "state/watch/recent.py"
COURSE: Final = "state/watch/course.py"
SERVER: Final = "state/watch/server.py"
KEYED: Final = "state/table/keyed.py"
WATCHED: Final = ("keys-watched:0:2",)

WATCH_BUGS: Final = (
    bug(
        "changes do not travel in checkpoints",
        RECENT,
        "        return encode([self.newest, self._last(count)])\n",
        "        return encode([self.newest, []])\n",
        "K21",
        *WATCHED,
    ),
    bug(
        "changes are counted from the checkpoint",
        RECENT,
        "        self.newest, self._kept = found.newest, deque(found.kept)\n",
        "        self.newest, self._kept = len(found.kept), deque(found.kept)\n",
        "K20",
        *WATCHED,
    ),
    bug(
        "a full answer is said to be all",
        RECENT,
        "        return Watched(tuple(rows), upto)\n",
        "        return Watched(tuple(rows), self.newest)\n",
        "K20",
        *WATCHED,
    ),
    bug(
        "the oldest change that is wanted may be gone",
        RECENT,
        "        if not self.oldest <= upto <= self.newest:\n",
        "        if not self.oldest - 3 <= upto <= self.newest:\n",
        "K20",
        *WATCHED,
    ),
    bug(
        "expiries are not told",
        KEYED,
        "            if self.changes.follows:\n",
        "            if self.changes.follows and changed:\n",
        "K20",
        *WATCHED,
    ),
    bug(
        "a watch begins at the newest page",
        COURSE,
        "        return self._numbers[0]\n",
        "        return self._numbers[-1]\n",
        "K20",
        *WATCHED,
    ),
    bug(
        "what a page had comes again",
        COURSE,
        "            rows = tuple([row for row in rows if not pages.have(row[0], row[1])])\n",
        "",
        "K20",
        *WATCHED,
    ),
    bug(
        "the last page is read once one of its rows is",
        COURSE,
        "            ats = [*[None] * (len(rows) - 1), upto]\n",
        "            ats = [upto] * len(rows)\n",
        "K20",
        *WATCHED,
    ),
    bug(
        "changes that are replayed are not kept",
        KEYED,
        "            self.changes.expect(len(found.changed) + len(found.deleted))\n",
        "            pass\n",
        "K21",
        *WATCHED,
    ),
)
