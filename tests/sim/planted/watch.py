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
        "        return encode([self.newest, found[::-1]])\n",
        "        return encode([self.newest, []])\n",
        "K21",
        *WATCHED,
    ),
    bug(
        "changes are counted from the checkpoint",
        RECENT,
        "        self.newest = found.newest - sum(",
        "        self.newest = 0 * sum(",
        "K20",
        *WATCHED,
    ),
    bug(
        "a full answer is said to be all",
        RECENT,
        "                if size > ANSWER_BYTES:\n"
        "                    break\n"
        "        return Watched(tuple(rows), upto)\n",
        "                if size > ANSWER_BYTES:\n"
        "                    break\n"
        "        return Watched(tuple(rows), self.newest)\n",
        "K20",
        *WATCHED,
    ),
    bug(
        "the oldest change that is wanted may be gone",
        RECENT,
        "        if not self.oldest <= after <= self.newest:\n",
        "        if not self.oldest - 3 <= after <= self.newest:\n",
        "K20",
        *WATCHED,
    ),
    bug(
        "expiries are not told",
        KEYED,
        "        if self.changes is not None:\n            self.changes.note(changed, deleted)\n",
        "        if self.changes is not None:\n"
        "            if changed:\n"
        "                self.changes.note(changed, deleted)\n"
        "            else:\n"
        "                self.changes.newest += len(deleted)  # type: ignore[attr-defined]\n",
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
        "            positions = [before] * (len(rows) - 1) + [self.position]\n",
        "            positions = [self.position] * len(rows)\n",
        "K20",
        *WATCHED,
    ),
    bug(
        "what came while a watcher was answered is left out",
        SERVER,
        "            wanted[partition.number] = replace(part, after=found.upto)\n",
        "            wanted[partition.number] = replace(part, after=recent.newest)\n",
        "K20 K22",
        *WATCHED,
    ),
)
