"""Bugs to plant in what decides about partitions and requests for their keys."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import ERRAND, Bug

MEMORY: Final = "state/memory/steward.py"
HOLDINGS: Final = "state/placement/holdings.py"
GOSSIP: Final = "state/placement/gossip.py"
TABLE: Final = "state/placement/table.py"
ASSIGNMENT: Final = "state/placement/assignment.py"
RECOVERY: Final = "state/journal/recovery.py"
JOURNAL: Final = "state/journal/journal.py"
COVERAGE: Final = "state/journal/coverage.py"
SWEEP: Final = "state/journal/sweep.py"
DESK: Final = "state/partition/desk.py"
MACHINE: Final = "state/partition/machine.py"
PARTS: Final = "state/partition/parts.py"
ARRIVALS: Final = "state/partition/arrivals.py"
RELEASES: Final = "state/partition/releases.py"
RECORD: Final = "state/partition/record.py"
SESSIONS: Final = "state/table/sessions.py"
SEEDS: Final = (1, 2, 3)


def _bug(name: str, path: str, old: str, new: str, found_by: str, *scenarios: str) -> Bug:
    """A bug that is looked for in *scenarios*, or in plans that are named with a seed."""
    hunts = tuple(
        hunt
        for name in scenarios
        for hunt in ([name] if ":" in name else [f"{name}:0:{seed}" for seed in SEEDS])
    )
    return Bug(name, path, found_by, hunts, ((old, new),))


KEYSPACE_BUGS: Final = (
    _bug(
        "a partition is claimed before its tail is read",
        RECOVERY,
        "            if self._next not in self._found:\n",
        "            if self._may_take is not None and self._at == self.epoch > 1:\n"
        "                return self._at_end()\n"
        "            if self._next not in self._found:\n",
        "K1 K2 K12",
        "partitions-drained:0:1",
    ),
    _bug(
        "a partition is claimed without a seal",
        RECOVERY,
        "        self.stage = Stage.SEALING\n",
        "        return self._seal_true()\n",
        "K1 K2 K4",
        "partitions-split:0:1",
    ),
    _bug(
        "an owner that is there is replaced as well",
        RECOVERY,
        "        if claim.owner != self._journal.node_name and not"
        " self._may_take(claim, self.epoch):\n",
        "        if False:\n",
        "K13",
        "partitions-sealed:0:1",
    ),
    _bug(
        "a claim that another member won counts",
        RECOVERY,
        "        if reply is fx.StoreAnswer.WON and request.claim.journal == self._journal.name:\n",
        "        if reply in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):\n",
        "K1 K2",
        "partitions-split:0:2",
    ),
    _bug(
        "whatever is in the slot of a group counts as that group",
        JOURNAL,
        "            return self._commit_sealed(reply.value)\n",
        "            return self._committed(self._committing)\n",
        "K1 K2 K12 X",
        "partitions-split:0:1",
    ),
    _bug(
        "a group whose outcome is open counts as not there",
        JOURNAL,
        "        (again,) = self._again(request, self._commit_put)\n"
        "        assert isinstance(again, fx.PutSlot)\n",
        "        self._committing = None\n        return [fx.NotCommitted(request.slot)]\n",
        "K1 K12 X",
        "store-failing:0:1",
    ),
    _bug(
        "an owner answers reads from memory",
        JOURNAL,
        "        if isinstance(reply, fx.Found) and isinstance(reply.value, Seal):\n"
        "            if self._committing is not None:\n",
        "        self.reading = False\n        return [fx.MayRead()]\n"
        "        if isinstance(reply, fx.Found) and isinstance(reply.value, Seal):\n"
        "            if self._committing is not None:\n",
        "K1",
        "partitions-split:0:1",
    ),
    _bug(
        "a fence keeps the partitions",
        JOURNAL,
        "            holding.uncovered.clear()\n            self._reclaiming[number] = holding\n"
        "            effects.append(self._reclaim(number, holding))\n",
        "            self.held[number] = holding\n",
        "K1 K2",
        "partitions-sealed:0:1",
    ),
    _bug(
        "a claim that another member made after the seal counts as ours",
        JOURNAL,
        "            if found.value.journal == request.claim.journal:\n",
        "            if True:\n",
        "K1 K2",
        "partitions-sealed:0:7",
    ),
    _bug(
        "who claims again does not say so once another member was faster",
        JOURNAL,
        "            return [fx.Lost(request.partition, found.value.owner)]\n",
        "            return self._again(look, met)\n",
        "K10 X",
        "partitions-sealed:0:1",
    ),
    _bug(
        "a fenced node waits before it claims again",
        JOURNAL,
        "        request = fx.PutClaim(self._new_id(), partition, holding.epoch + 1, claim)\n",
        "        request = fx.PutClaim(self._new_id(), partition, holding.epoch + 1, claim, 9)\n",
        "K10",
        "partitions-sealed:0:1",
    ),
    _bug(
        "a mark does not wait for checkpoints",
        COVERAGE,
        "        return min([low, *firsts, *self.parted.values()])\n",
        "        return low\n",
        "K1 K4 K12",
        "partitions-killed:0:1",
    ),
    _bug(
        "a release is deleted before its recovery has a checkpoint",
        COVERAGE,
        "        return min([low, *firsts, *self.parted.values()])\n",
        "        return min([low, *firsts])\n",
        "K1 K4 K12",
        "partitions-killed:0:1",
    ),
    _bug(
        "a checkpoint of an epoch covers the release that ends it",
        SWEEP,
        "            return newest.epoch > entry.epoch\n",
        "            return newest.epoch >= entry.epoch\n",
        "unit",
        "unit:tests/state/journal/test_sweep.py",
    ),
    _bug(
        "any checkpoint of an epoch covers all of it",
        SWEEP,
        "        return newest >= Slot(entry.epoch, self._next)\n",
        "        return newest.epoch >= entry.epoch\n",
        "K1 K4 K12",
        "journals-trimmed:0:3",
    ),
    _bug(
        "a release keeps a journal for ever",
        COVERAGE,
        "            if number == partition and epoch < newest.epoch:\n",
        "            if False:\n",
        "K11",
        "journals-trimmed:0:1",
    ),
    _bug(
        "journals of those that have ended are kept",
        SWEEP,
        "        if self._next <= max(self._mark, 1):\n",
        "        if True:\n",
        "K11",
        "journals-trimmed:0:1",
    ),
    _bug(
        "a reader does not begin at the mark",
        RECOVERY,
        "        self._next = max(self._next, self._marks.get(self._journal_read, 0))\n",
        "        pass\n",
        "K4 K12",
        "partitions-drained:0:1",
    ),
    _bug(
        "a slot that was read ahead ends the reading again",
        RECOVERY,
        "                self._stop_reading()  # what was read ahead is not of this epoch,"
        " and may come late\n",
        "",
        "K1 K4 X",
        "partitions:4:36",
    ),
    _bug(
        "a read rides on a group that is under way",
        DESK,
        "        self._reads[job] = None\n        return job\n",
        "        if self._in_hand:\n            self._riding.append(job)\n"
        "        else:\n            self._reads[job] = None\n        return job\n",
        "K1",
        "partitions-paused:0:3",
    ),
    _bug(
        "reads that ride on nothing are answered",
        DESK,
        "        elif self._in_hand or self._riding:\n",
        "        elif _finish(self._riding) or self._in_hand:\n",
        "K1",
        "partitions-split:0:1",
    ),
    _bug(
        "a group that met a seal counts as done",
        DESK,
        "        # None of them has taken effect, and none will: they wait for the next claim.\n",
        "        _finish(jobs)\n        jobs = []\n",
        "K1",
        "partitions-split:0:1",
    ),
    _bug(
        "who waits for a claim after a fence is forgotten",
        DESK,
        "            if isinstance(job, WriteJob | ReleaseJob):\n                self._queue",
        "            if isinstance(job, WriteJob):\n                pass\n"
        "            elif isinstance(job, ReleaseJob):\n                self._queue",
        "L9",
        "partitions:4:41",
    ),
    _bug(
        "a partition whose disk is full is served on",
        MACHINE,
        "            self.ended.append(self._give_up_failed)\n",
        "            self.failed_parts = []\n",
        "K1 K12",
        "disks-full:0:1",
    ),
    _bug(
        "a full disk of one partition fails the group of all",
        RECORD,
        "            if self.presence in COMING:\n                raise\n",
        "            raise\n",
        "X",
        "disks-full:0:1",
    ),
    _bug(
        "a partition is released while one of its actors is at work",
        RELEASES,
        "            or not self.may_leave(number)\n",
        "",
        "unit",
        "unit:tests/state/partition/test_moves.py",
    ),
    _bug(
        "what is given up comes again before it was released",
        MACHINE,
        "        if owner == self.name and number not in self.parts:\n",
        "        part = self.parts.get(number)\n"
        "        if owner == self.name and (part is None or part.presence is Presence.UNWANTED):\n",
        "K1 X",
        "disks-full:0:3",
    ),
    _bug(
        "a fence begins no truce",
        MACHINE,
        "            self.arrivals.wait_longer(now)\n            for number",
        "            for number",
        "K9",
        "partitions-split:3:1",
    ),
    _bug(
        "what was given up is kept if its release has failed once",
        RELEASES,
        "            self._repeats.append((now + REPEAT_US_MAX, part))\n",
        "            pass\n",
        "unit",
        "unit:tests/state/partition/test_machine.py",
    ),
    _bug(
        "a claim after a fence is not announced",
        MACHINE,
        "        self._announce(part)\n        self.look_soon(now)",
        "        self.look_soon(now)",
        "K4",
        "store-failing:0:2",
    ),
    _bug(
        "a release replaces the writes of its group",
        DESK,
        "                if partition.number in numbers:\n                    break"
        "  # a group has one entry for each partition\n",
        "",
        "K13 X",
        "partitions-paused:0:3",
    ),
    _bug(
        "the store has no room for a group, and it counts",
        DESK,
        "                _finish(jobs, why or StoreFull("
        '"the store has no room left; nothing was written"))\n',
        "                _finish(jobs)\n",
        "K1",
        "store-failing:0:1",
    ),
    _bug(
        "what is claimed again after a fence is taken over as well",
        MACHINE,
        "        if owner == self.name and number not in self.parts:\n",
        "        if owner == self.name and number not in self.serving:\n",
        "K4 X",
        "store-failing:0:2",
    ),
    _bug(
        "an owner holds on to what another member has claimed",
        MACHINE,
        "            self.stop_serving(part)\n            self.releases.give_up(part)\n"
        "        else:\n",
        "            pass\n        else:\n",
        "K4",
        "partitions:4:26",
    ),
    _bug(
        "a partition is released to a member that should not own it",
        RELEASES,
        "            or here.table[number].desired != to\n",
        "",
        "K5 K9",
        "partitions-drained:0:2",
    ),
    _bug(
        "a place is never freed",
        PARTS,
        "            self.taken[part.coming.way] -= 1\n",
        "            pass\n",
        "K4",
        "store-failing:0:1",
    ),
    _bug(
        "a release is counted for ever",
        RELEASES,
        "        self.count -= job.to != NOBODY\n",
        "",
        "K4 K7",
        "partitions-drained:0:1",
    ),
    _bug(
        "a failed try is the last",
        ARRIVALS,
        "        if part.presence is Presence.PENDING and _coming(part).try_at <= now:\n",
        "        if False:\n",
        "K4",
        "store-failing:0:2",
    ),
    _bug(
        "no truce is kept",
        ARRIVALS,
        " and self._truce.until > now:\n",
        " and False:\n",
        "K5 K9",
        "partitions-split:3:1",
    ),
    _bug(
        "a stale row wins",
        TABLE,
        "    later = max(ours, theirs, key=lambda row: row.facts)\n",
        "    later = theirs\n",
        "K4 K5",
        "partitions-split:0:2",
    ),
    _bug(
        "rows that differ are not compared",
        GOSSIP,
        "        if not self._is_settled(other, digest):\n",
        "        if False:\n",
        "K4",
        "partitions-split:0:1",
    ),
    _bug(
        "the first assignment does not wait",
        ASSIGNMENT,
        "    if assigned or len(members) >= members_min:\n",
        "    if True:\n",
        "K8",
        "partitions-awaited:0:1",
    ),
    _bug(
        "partitions stay with an owner that is gone",
        ASSIGNMENT,
        "    present = frozenset(names)\n",
        "    present = frozenset(assignment.owners)\n",
        "K4 K7 X",
        "partitions-by-hand:0:1",
    ),
    _bug(
        "a drained member keeps its partitions",
        RELEASES,
        "        if part is None or here.failure:\n",
        "        if here.name not in here.sight.owners():\n"
        "            return ReleaseSaid.NOT_YET\n"
        "        if part is None or here.failure:\n",
        "K4 K7",
        "partitions-drained:0:1",
    ),
    _bug(
        "a copy is served while it is sent",
        MEMORY,
        "            self.serving.discard(number)\n"
        "            self.tasks.append(Withhold(number))\n",
        "            pass\n",
        "K1 K3",
        "copies-leaving:0:1",
    ),
    _bug(
        "a copy is forgotten before its last part was taken",
        MEMORY,
        "        if not taken:  # it is tried",
        "        if False:  # it is tried",
        "K1 K3",
        "copies-leaving:0:1",
    ),
    _bug(
        "an owner that is not known yet is not waited for",
        MEMORY,
        "        known = self.sight.status_of(row.owner) is not None\n",
        "        known = True\n",
        "K1",
        "partitions:4:22025561",
    ),
    _bug(
        "a leaver asks one recovery only",
        MEMORY,
        "                self._refusing.add(duty.to)\n",
        "                pass\n",
        "unit",
        "unit:tests/state/memory/test_steward.py",
    ),
    _bug(
        "what was handed over is begun anew",
        MEMORY,
        "            self.put(row.claimed(duty.to, row.epoch + 1))\n",
        "            pass\n",
        "K1",
        "copies-drained:0:11",
    ),
    _bug(
        "a copy is not offered again",
        MEMORY,
        "        if going.step is Giving.WAITS and going.try_at <= now:\n",
        "        if False:\n",
        "K1 K3 K4",
        "copies-leaving:0:4",
    ),
    _bug(
        "the copy of a member that leaves is refused",
        MEMORY,
        "sends = going is not None and going.step is Giving.SENDS",
        "sends = going is not None",
        "unit",
        "unit:tests/state/memory/test_steward.py",
    ),
    _bug(
        "nobody waits for the copy of the former owner",
        MEMORY,
        "        if not owned or (known and not self.is_there(row.owner)):\n",
        "        if True:\n",
        "K1 K3",
        "copies-drained:0:1",
    ),
    _bug(
        "an owner of one side of a cut does not claim again",
        MEMORY,
        "            self._insist(number)\n",
        "            pass\n",
        "unit",
        "unit:tests/state/memory/test_steward.py",
    ),
    _bug(
        "a repeated write takes effect again",
        SESSIONS,
        "    return (highest, missing ^ bit, digests) if missing & bit else None\n",
        "    return highest, missing & ~bit, digests\n",
        "K1 K3",
        "partitions-sealed:0:1",
    ),
    _bug(
        "an attempt without an answer has taken no effect",
        ERRAND,
        '        if error.took_effect == "unknown":\n            self.may_have_run = True\n',
        "",
        "K1",
        "partitions-sealed:0:1",
    ),
    _bug(
        "what was left open where a request began is taken for what did not take effect",
        ERRAND,
        "        errand.under_way.append(ask)\n        return errand, ask\n",
        "        return errand, ask\n",
        "K1",
        "partitions:4:5",
    ),
    _bug(
        "the end of a call that failed is not noticed",
        ERRAND,
        "        self.under_way.remove(ask)\n        for part in ask.parts:\n",
        "        if len(ask.parts) > 1:\n            return\n"
        "        self.under_way.remove(ask)\n        for part in ask.parts:\n",
        "E X",
        "partitions-split:0:1",
    ),
    _bug(
        "parts without a known owner are dropped with the answers of others",
        ERRAND,
        "            self.open = [part for part in self.open if part not in self.results]\n\n"
        "    def failed(",
        "            self.open = ()\n\n    def failed(",
        "K1",
        "partitions-paused:0:1",
    ),
    _bug(
        "what was written counts as waiting for ever",
        DESK,
        "                partition.writes_count -= writes_count\n",
        "                pass\n",
        "L9",
        "partitions:4:0",
    ),
    _bug(
        "an assignment that has not changed is recorded again",
        ASSIGNMENT,
        "        if owners == self.newest.owners:\n            return None\n"
        "        return Assignment(self",
        "        return Assignment(self",
        "L10",
        "partitions:4:0",
    ),
)
