"""Broken shuffles: what is patched where, and which invariants must break."""

from __future__ import annotations

from typing import Final

from tests.sim.hunting.variant import Variant

CHANGES: Final = "ringpop_py/flow/shuffle/protocol/changes.py"
HOME: Final = "ringpop_py/flow/shuffle/protocol/home.py"
MEMBER: Final = "ringpop_py/flow/shuffle/protocol/member.py"
AROUND: Final = "ringpop_sim/flow/shuffle/around.py"
DISK: Final = "ringpop_sim/flow/shuffle/disk.py"
PROCESS: Final = "ringpop_sim/flow/shuffle/process.py"
WORLD: Final = "ringpop_sim/flow/shuffle/world.py"

VARIANTS: Final = (
    # Puts.
    Variant(
        "a frame is acknowledged before the replica has it",
        PROCESS,
        'life, missing = self.member.life, {"here", "there"}\n',
        'life, missing = self.member.life, {"here"}\n',
        "held both",
    ),
    Variant(
        "a frame on its way to the replica is acknowledged because it is here",
        MEMBER,
        "        if frame in self._acknowledged:\n",
        "        if any(frame in each for each in self.segments.values()):\n",
        "held both",
    ),
    Variant(
        "the replica does not ask whether it holds the segment",
        MEMBER,
        "        return segment is not None and segment.is_open and self.me in segment.holders\n",
        "        return True\n",
        "held both",
        first=285,
    ),
    Variant(
        "there is no lease",
        MEMBER,
        "        return now - self._read_at <= self._lease_us\n",
        "        return True\n",
        "late gone",
        first=173,
    ),
    Variant(
        "a put to a former shuffle of that name is taken",
        MEMBER,
        "if record is None or record.state is State.DELETED or uid != record.uid:",
        "if record is None or record.state is State.DELETED:",
        "error late rows damage refused",
    ),
    Variant(
        "attempts are known by their task",
        WORLD,
        "                self.attempts += 1\n",
        "                self.attempts = 1 + task\n",
        "rows both damage refused",
    ),
    # Members come and go.
    Variant(
        "only the segments of the present neighbour are of use after a death",
        CHANGES,
        "        for number, segment in record.segments.items()\n    }\n    intervals = tuple(\n"
        "        replace(\n",
        "        for number, segment in record.segments.items()\n"
        "        if segment.primary != gone or record.next_of(gone) in segment.holders\n"
        "    }\n    intervals = tuple(\n        replace(\n",
        "held damage refused",
        first=72,
    ),
    Variant(
        "segments of the dead are of no use",
        CHANGES,
        "        for number, segment in record.segments.items()\n    }\n    intervals = tuple(\n"
        "        replace(\n",
        "        for number, segment in record.segments.items()\n"
        "        if segment.primary != gone\n"
        "    }\n    intervals = tuple(\n        replace(\n",
        "held damage refused",
    ),
    Variant(
        "a segment is copied while it is open",
        MEMBER,
        "return segment is not None and not segment.is_open and self.me in segment.holders\n",
        "return segment is not None and self.me in segment.holders\n",
        "held both",
        also=(
            (
                "if segment.copy_to == self.me and number not in self._copied:",
                "if segment.holders and number not in self._copied:",
            ),
            ("if segment is None or segment.copy_to != self.me:", "if segment is None:"),
        ),
    ),
    Variant(
        "a copy lacks a frame",
        PROCESS,
        "                frames = dict(self.disk.segments.get(number, {}))\n",
        "                frames = dict(list(self.disk.segments.get(number, {}).items())[1:])\n",
        "held both damage refused",
    ),
    Variant(
        "what was declared dead goes on with what it had",
        MEMBER,
        "            changes += self._forget()\n            # Others",
        "            pass\n            # Others",
        "held both rows authority error",
        first=516,
    ),
    # Frames in the store.
    Variant(
        "the store is read while its writer may still acknowledge",
        MEMBER,
        "return now - self._due_since.setdefault(duty.number, now) > self._lease_us\n",
        "return True\n",
        "both held",
        run="run_stored",
    ),
    Variant(
        "a frame is acknowledged before the store has it",
        PROCESS,
        "            world.after(world.store_delay(), put)",
        "            then(DONE)\n            world.after(world.store_delay(), put)",
        "both held",
        run="run_stored",
    ),
    Variant(
        "an end does not wait for what is in the store alone",
        HOME,
        "if any(segment.holders == (STORE,) for segment in record.segments.values()):",
        "if False:",
        "refused",
        run="run_stored",
    ),
    Variant(
        "the store is to cut what a member has fetched from it",
        CHANGES,
        "        holders = (segment.copy_to, STORE)",
        "        holders = (STORE, segment.copy_to)",
        "live",
        run="run_stored",
    ),
    # The end.
    Variant(
        "an end asks nobody",
        HOME,
        "        wrong = _incomplete(winners, reports)\n",
        "        wrong = {}\n",
        "damage rows refused",
        first=1550,
    ),
    Variant(
        "reports from before the end was asked for are of use",
        HOME,
        "        # A report from before may lack what was acknowledged since.\n"
        "        self._ask_again()\n",
        "",
        "refused error",
    ),
    Variant(
        "reports of a former version are of use",
        HOME,
        "        if (report.uid, report.version) == (record.uid, record.version):\n",
        "        if True:\n",
        "refused held both rows authority damage error",
        also=(
            (
                "if self.record is None or record.version != self.record.version:",
                "if self.record is None:",
            ),
            (
                "        self.record = None\n        self._reports.clear()\n",
                "        self.record = None\n",
            ),
        ),
    ),
    Variant(
        "the rows are not counted",
        HOME,
        "        wrong = _miscounted(record.winners, totals)\n",
        '        wrong = ""\n',
        "rows",
    ),
    Variant(
        "the cuts are computed again after a death",
        HOME,
        "                return changes.parted(record, member)\n",
        "                summaries = [each.summary for each in self._reports.values()]\n"
        "                cuts = self._cut(summaries, record.interval_count)\n"
        "                if record.state is State.ENDING:\n"
        "                    return changes.parted(record.with_(cuts=cuts), member)\n"
        "                return changes.parted(record, member)\n",
        "back rows live",
    ),
    Variant(
        "rows of losers are kept",
        DISK,
        "            if attempt in record.winners and sequence < record.winners[attempt].frames\n",
        "",
        "rows damage",
    ),
    Variant(
        "nothing is dropped at the merge",
        DISK,
        "    by_id = {row.id: row for rows in slices for row in rows}\n"
        "    return tuple(by_id[each] for each in sorted(by_id))\n",
        "    return tuple(sorted(row for rows in slices for row in rows))\n",
        "rows damage",
    ),
    Variant(
        "rows are dropped by a short hash of where they come from",
        DISK,
        "    by_id = {row.id: row for rows in slices for row in rows}\n",
        "    by_id = {(row.key, sum(row.id[1:]) % 3): row for rows in slices for row in rows}\n",
        "rows damage",
    ),
    Variant(
        "GET begins before the replicas have their files",
        HOME,
        "                return None  # a replica is not there yet\n",
        "                pass\n",
        "authority live",
    ),
    # The record.
    Variant(
        "the record is written without a comparison",
        AROUND,
        "        if self.record.version != version:\n            return False\n",
        "",
        "back held both rows authority damage refused error",
    ),
    Variant(
        "an older record is applied",
        MEMBER,
        "if former is not None and record.version < former.version:",
        "if former is not None and record.version < former.version - 5:",
        "late gone held both rows authority early error",
    ),
    Variant(
        "a higher version is not followed",
        MEMBER,
        "if record is None or record.uid != uid or version > record.version:",
        "if record is None:",
        "live late held both authority rows error",
    ),
    # Gets, and what follows.
    Variant(
        "an interval is answered before GET",
        MEMBER,
        "        if record.state is not State.GET:\n            return Answer.NOT_NOW\n",
        "        if record.state is State.PUT:\n            return Answer.NOT_NOW\n",
        "early",
    ),
    Variant(
        "a file goes as soon as it is sent",
        PROCESS,
        "                answer((self.disk.intervals[number], self.member.intervals[number]))\n",
        "                answer((self.disk.intervals[number], self.member.intervals[number]))\n"
        "                if self.member.record.state.value == 'get':\n"
        "                    del self.disk.intervals[number], self.member.intervals[number]\n"
        "                    self.world.changed = True\n",
        "authority live",
    ),
    Variant(
        "both holders are replaced by the one that joins",
        CHANGES,
        "        holders = (interval.fetched_by, interval.holders[0])\n",
        "        holders = (interval.fetched_by,)\n",
        "authority",
    ),
    Variant(
        "the files go before the record says so",
        WORLD,
        "                process.home.ask_for(Wish(uid, delete=True))\n",
        "                process.home.ask_for(Wish(uid, delete=True))\n"
        "                for each in self.processes.values():\n"
        "                    each.disk.segments.clear()\n"
        "                    each.disk.intervals.clear()\n"
        "                self.changed = True\n",
        "held authority error",
    ),
    Variant(
        "a deletion deletes what is created after it",
        HOME,
        "        if self.wish.delete and self.wish.uid == record.uid:\n",
        "        if self.wish.delete:\n",
        "back",
    ),
)
