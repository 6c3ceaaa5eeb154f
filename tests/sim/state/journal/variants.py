"""Broken journals: what is patched where, and which invariants must break."""

from __future__ import annotations

from typing import Final

from tests.sim.hunting.variant import Variant

JOURNAL: Final = "ringpop_py/state/journal/journal.py"
RECOVERY: Final = "ringpop_py/state/journal/recovery.py"
COVERAGE: Final = "ringpop_py/state/journal/coverage.py"
SWEEP: Final = "ringpop_py/state/journal/sweep.py"
RECORDS: Final = "ringpop_py/base/values/checksum.py"
PROCESS: Final = "ringpop_sim/state/journal/process.py"
CLIENTS: Final = "ringpop_sim/state/journal/clients.py"
OWNERS: Final = "ringpop_sim/state/journal/owners.py"
ROAD: Final = "ringpop_sim/state/journal/road.py"

VARIANTS: Final = (
    # Groups.
    Variant(
        "an open outcome is acknowledged",
        JOURNAL,
        "        if reply is fx.StoreAnswer.WON:\n            return self._committed(request)\n",
        "        if reply is fx.StoreAnswer.WON or reply is fx.StoreAnswer.FAILED:\n"
        "            return self._committed(request)\n",
        "lost fold live",
    ),
    Variant(
        "an open outcome is taken for a failure",
        JOURNAL,
        "if reply is fx.StoreAnswer.NO_ROOM and request.attempt == 0:",
        "if reply is fx.StoreAnswer.NO_ROOM or reply is fx.StoreAnswer.FAILED:",
        "fold lost read twice refused",
    ),
    Variant(
        "no room is believed after an open outcome",
        JOURNAL,
        "if reply is fx.StoreAnswer.NO_ROOM and request.attempt == 0:",
        "if reply is fx.StoreAnswer.NO_ROOM:",
        "fold lost read twice refused",
        first=112,
    ),
    Variant(
        "a group that was covered and deleted already is taken for a failure",
        JOURNAL,
        "            (again,) = self._again(self._committing, self._commit_put)\n",
        "            self._committing = None\n            return [fx.NotCommitted(request.slot)]\n",
        "refused lost",
        scene="deleted_group",
    ),
    Variant(
        "whatever stands in the slot is taken for ours",
        JOURNAL,
        "            if reply.value == self._committing.record:\n",
        "            if reply.value:\n",
        "lost fold read error",
    ),
    Variant(
        "a part of a group is acknowledged",
        PROCESS,
        "        requests.writes = requests.batch + requests.writes\n",
        "        if self.number == 0:\n"
        "            requests.end_batch(SERVED)\n"
        "        requests.writes = requests.batch + requests.writes\n",
        "lost",
    ),
    Variant(
        "ids of operations are not restored",
        OWNERS,
        "list(checkpoint), set(checkpoint)",
        "list(checkpoint), set()",
        "twice",
    ),
    Variant(
        "the checksum of a record is not looked at",
        RECORDS,
        "if value[len(HEAD) + len(payload) :] != _checksum(payload, key):",
        "if not payload:",
        "error fold lost owner read refused deleted twice damaged live order fenced copy",
        first=240,
    ),
    # Reads.
    Variant(
        "a read without the look",
        JOURNAL,
        "        self.reading = True\n",
        "        return [fx.MayRead()]\n",
        "read",
        first=560,
    ),
    Variant(
        "a late reader shares a look that was asked before it came",
        PROCESS,
        "        elif waiting and not self.journal.reading:\n"
        "            for requests in waiting:\n"
        "                requests.asking, requests.reads = requests.reads, []\n"
        "            self.do(self.journal, self.journal.read())\n",
        "        elif waiting:\n"
        "            for requests in waiting:\n"
        "                requests.asking += requests.reads\n"
        "                requests.reads = []\n"
        "            if not self.journal.reading:\n"
        "                self.do(self.journal, self.journal.read())\n",
        "read",
        scene="late_reader",
    ),
    Variant(
        "a reader rides on a commit that is running already",
        PROCESS,
        "        if self.journal.committing or not self.journal.held:\n",
        "        if self.journal.committing:\n"
        "            for part in self.parts:\n"
        "                part.requests.riding += part.requests.reads\n"
        "                part.requests.reads = []\n"
        "        if self.journal.committing or not self.journal.held:\n",
        "read",
        first=762,
    ),
    Variant(
        "a refused claim is believed after an open outcome",
        RECOVERY,
        "if reply is fx.StoreAnswer.NO_ROOM and request.attempt == 0:",
        "if reply in (fx.StoreAnswer.NO_ROOM, fx.StoreAnswer.FAILED):",
        "live rest owner",
    ),
    Variant(
        "a refused claim after a fence is believed after an open outcome",
        JOURNAL,
        "if request.attempt == 0 and reply is fx.StoreAnswer.NO_ROOM:",
        "if reply in (fx.StoreAnswer.NO_ROOM, fx.StoreAnswer.FAILED):",
        "live rest owner",
        first=301,
    ),
    # Conditions.
    Variant(
        "a refusal that is told to a repetition is not kept",
        OWNERS,
        "                if repeats:\n                    new[refusal] = None\n",
        "",
        "unmet",
    ),
    Variant(
        "a refusal that is kept is not looked for",
        OWNERS,
        "            if refusal in fold.seen or refusal in new:\n",
        "            if refusal in new:\n",
        "unmet twice",
    ),
    Variant(
        "a client believes the refusal of an older attempt",
        CLIENTS,
        "        elif said == UNMET and attempt == self._attempt:\n",
        "        elif said == UNMET:\n",
        "unmet",
        first=135,
    ),
    # Fences.
    Variant(
        "a seal ends one partition only",
        JOURNAL,
        "            return self._commit_sealed(reply.value)\n",
        "            self.next_slot += 1\n"
        "            moved = fx.PutSlot(\n"
        "                self._new_id(), self.name, self.next_slot, self._committing.record\n"
        "            )\n"
        "            self._committing = moved\n"
        "            return self._commit_asks(self._ask(moved, self._commit_put))\n",
        "lost fold read damaged",
    ),
    Variant(
        "the outcome of the group under way is not looked at",
        JOURNAL,
        "bool(reply.marks) and reply.marks[-1] > self._committing.slot",
        "False",
        "fenced",
        scene="open_outcome",
    ),
    Variant(
        "partitions are claimed again though the outcome is open",
        JOURNAL,
        "        if outcome_open:\n            for",
        "        if not former:\n            for",
        "refused",
        scene="open_outcome",
        also=(("[fx.Fenced(former, by, outcome_open, ())]", "[fx.Fenced(former, by, False, ())]"),),
    ),
    Variant(
        "a journal's name is used again after a restart",
        PROCESS,
        'return f"{self.label}.{self._names}"',
        'return f"{self.name}.{self._names}"',
        "owner fold lost error read twice",
    ),
    Variant(
        "a journal's name is used again after a fence",
        PROCESS,
        'return f"{self.label}.{self._names}"',
        'return f"{self.label}.1"',
        "owner fold lost error live",
    ),
    Variant(
        "a partition is claimed again at a slot too late",
        JOURNAL,
        "Claim(self.node_name, self.name, self.next_slot, holding.base)",
        "Claim(self.node_name, self.name, self.next_slot + 1, holding.base)",
        "lost fold read owner",
    ),
    Variant(
        "a claim after a fence is taken for won though another was faster",
        JOURNAL,
        "            if found.value.journal == request.claim.journal:\n",
        "            if found.value.journal:\n",
        "owner fold",
    ),
    Variant(
        "an unknown claim after a fence is taken for won",
        JOURNAL,
        "        if reply is fx.StoreAnswer.WON:\n            return self._reclaimed(request)\n",
        "        if reply is not fx.StoreAnswer.TAKEN:\n"
        "            return self._reclaimed(request)\n",
        "owner",
    ),
    Variant(
        "a partition is held again in a former journal",
        JOURNAL,
        "        if request.claim.journal != self.name:  #",
        "        if not request.claim.journal:  #",
        "owner",
        scene="fenced_twice",
    ),
    # How a partition comes to a node.
    Variant(
        "an open epoch is followed by a claim",
        RECOVERY,
        "        return [self._ask(seal, self._seal_put)]\n",
        "        self._closed = True\n        return self._go_on()\n",
        "owner",
    ),
    Variant(
        "a claim's slot is too late",
        RECOVERY,
        "Claim(journal.node_name, journal.name, journal.next_slot, base)",
        "Claim(journal.node_name, journal.name, journal.next_slot + 1, base)",
        "lost fold read",
    ),
    Variant(
        "a claim names the slot behind the group under way",
        RECOVERY,
        "journal.name, journal.next_slot, base)",
        "journal.name, journal.next_slot + journal.committing, base)",
        "lost fold read owner live damaged",
    ),
    Variant(
        "an unknown claim is taken for won",
        RECOVERY,
        "        if reply is fx.StoreAnswer.WON and request.claim",
        "        if reply is not fx.StoreAnswer.TAKEN and request.claim",
        "owner",
    ),
    Variant(
        "a claim is taken for won though another was faster",
        RECOVERY,
        "        if reply is fx.StoreAnswer.WON and request.claim",
        "        if reply is not fx.StoreAnswer.FAILED and request.claim",
        "owner",
    ),
    Variant(
        "a claim is forgotten while its outcome is open",
        RECOVERY,
        "        return self._again(request, self._claim_put)\n",
        "        self.stage = Stage.IDLE\n"
        "        claim, position = request.claim, self.position\n"
        "        return [fx.NotAcquired(self.partition, self.epoch, claim, position)]\n",
        "live",
    ),
    Variant(
        "a node is online in a former journal",
        RECOVERY,
        " and request.claim.journal == self._journal.name:\n",
        ":\n",
        "owner fold lost",
        first=65,
    ),
    Variant(
        "epochs are not told apart",
        RECOVERY,
        "        if entry is not None and entry.epoch == self._at:\n",
        "        if entry is not None:\n",
        "fold lost owner error live",
        first=376,
    ),
    Variant(
        "a released epoch is adopted again",
        RECOVERY,
        "                self._closed = True\n",
        "                self._closed = (\n"
        "                    self._claims[self._at].journal != self._journal.name\n"
        "                )\n",
        "lost owner fold read damaged live",
    ),
    Variant(
        "a claim of ours is adopted without reading",
        RECOVERY,
        "        return is_own and self._next >= own.next_slot\n",
        "        return is_own\n",
        "deleted fold lost read copy live",
    ),
    Variant(
        "a hole of our own below the next slot is taken for the end",
        RECOVERY,
        "        if later or journal in own.ends",
        "        if journal == own.name and self._may_take is not None:\n"
        "            return self._hold()\n"
        "        if later or journal in own.ends",
        "fold lost",
        first=39,
    ),
    Variant(
        "the group under way is folded by the recovery as well",
        RECOVERY,
        "        return is_own and self._next >= own.next_slot\n",
        "        return is_own and self._next > own.next_slot\n",
        "fold read twice",
        first=56,
    ),
    Variant(
        "stale checkpoints are trusted",
        RECOVERY,
        "        look = fx.ListPartition(self._new_id(), self.partition)\n"
        "        return [self._ask(look, self._listed_again)]\n",
        "        return self._listed_again(*self._first_list)\n",
        "damaged fold",
        also=(
            (
                "        self.epoch = max(",
                "        self._first_list = request, reply\n        self.epoch = max(",
            ),
        ),
    ),
    Variant(
        "no list follows the seal",
        RECOVERY,
        "        return [self._ask(fx.ListJournal(self._new_id(), journal), judge)]\n",
        "        return self._seal_true()\n",
        "owner fold lost copy read live",
        scene="late_seal",
    ),
    Variant(
        "the seal is read behind the list",
        RECOVERY,
        "        return [self._ask(fx.ListJournal(self._new_id(), journal), judge)]\n",
        "        seen = fx.JournalListed((), [self._marks.get(journal, 0)])\n"
        "        return judge(fx.ListJournal(0, journal), seen)\n",
        "owner fold lost copy read live",
        scene="late_seal",
    ),
    Variant(
        "a seal in a slot that was lost is trusted",
        RECOVERY,
        "            if behind:",
        "            if not reply:",
        "owner",
        first=101_900,
    ),
    Variant(
        "a seal that was taken is trusted",
        RECOVERY,
        "        self.stage = Stage.READING\n        told: Effects = []\n",
        "        if reply is fx.StoreAnswer.TAKEN:\n"
        "            self._closed = True\n"
        "            return self._go_on()\n"
        "        self.stage = Stage.READING\n        told: Effects = []\n",
        "fold owner",
    ),
    Variant(
        "a hole is skipped",
        RECOVERY,
        "        if self._hole_below == slot or self._at < self.epoch:\n",
        "        if self._at < self.epoch:\n"
        "            self._next += 1\n"
        "            return self._go_on()\n"
        "        if self._hole_below == slot:\n",
        "fold lost live",
        first=94,
    ),
    Variant(
        "a record that is deleted while it is read is taken for lost",
        RECOVERY,
        "            self._missed = fx.GoneRecord(journal, slot)\n"
        "            return self._look(useless=True)\n",
        "            return self._stop(fx.GoneRecord(journal, slot))\n",
        "damaged",
    ),
    Variant(
        "a slot that was looked at too early is taken for lost",
        RECOVERY,
        "        if self._hole_below == slot or self._at < self.epoch:\n",
        "        known = journal in own.ends or (journal == own.name and slot < own.next_slot)\n"
        "        if self._hole_below == slot or self._at < self.epoch or known:\n",
        "damaged",
        first=166,
    ),
    Variant(
        "a hole is remembered in the next journal",
        RECOVERY,
        "        self._hole_below = 0\n        self._next = self._claims[epoch].first\n",
        "        self._next = self._claims[epoch].first\n",
        "damaged",
        first=2468,
    ),
    Variant(
        "what was read ahead of a release counts",
        RECOVERY,
        "                self._stop_reading()  # what was read ahead is not of this epoch,"
        " and may come late\n",
        "",
        "error fold owner damaged",
    ),
    Variant(
        "a checkpoint that is replaced while it is fetched is taken for lost",
        RECOVERY,
        "            self._missed = reply\n            return self._look(useless=True)\n",
        "            return self._stop(reply)\n",
        "damaged",
    ),
    Variant(
        "a lost checkpoint is looked for again and again",
        RECOVERY,
        "            if newest == self._restored:  # it was not replaced by a newer one\n",
        "            if newest < self._restored:\n",
        "live",
        first=682,
    ),
    Variant(
        "a lost group is looked for again and again",
        RECOVERY,
        "            if highest <= missed.slot:  #",
        "            if highest < 0:  #",
        "live",
        first=166,
    ),
    Variant(
        "a lost group is not noticed while the owner lives",
        RECOVERY,
        "        look = fx.ListJournal(self._new_id(), journal)\n"
        "        return [self._ask(look, self._listed_beyond)]\n",
        "        look = fx.ListJournal(self._new_id(), journal, marks_only=True)\n"
        "        return [self._ask(look, self._listed_beyond)]\n",
        "live copy fold lost read owner",
        first=1014,
    ),
    Variant(
        "what claims say about checkpoints is not looked at",
        RECOVERY,
        "                self._expect(claim.base)\n",
        "                pass\n",
        "fold lost copy read owner",
        first=589,
    ),
    Variant(
        "what marks say about checkpoints is not looked at",
        RECOVERY,
        "                self._expect(covered)\n",
        "                pass\n",
        "fold lost copy read owner",
        first=173,
    ),
    Variant(
        "a copy is believed without a list at its end",
        RECOVERY,
        "        if self._may_take is None and not self._misses_nothing:\n",
        "        if self._may_take is None:\n",
        "copy",
        first=388,
    ),
    Variant(
        "what answers a former try counts",
        RECOVERY,
        "        self.stage = Stage.IDLE\n        self._open.clear()\n        self._forget()\n",
        "        self.stage = Stage.IDLE\n        self._forget()\n",
        "error fold lost owner damaged",
    ),
    # Checkpoints.
    Variant(
        "a checkpoint is ahead of what is known to be won",
        JOURNAL,
        "fx.PutCheckpoint(self._new_id(), partition, slot), put)",
        "fx.PutCheckpoint(\n"
        "            self._new_id(), partition, Slot(slot.epoch, slot.sequence + 1)), put)",
        "fold",
    ),
    Variant(
        "a checkpoint that may not be there counts as there",
        JOURNAL,
        "            if reply in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):\n",
        "            if reply is not fx.StoreAnswer.NO_ROOM:\n",
        "deleted",
    ),
    Variant(
        "what an earlier attempt builds on is deleted",
        JOURNAL,
        "            if reply is not fx.StoreAnswer.WON:\n",
        "            if reply not in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):\n",
        "deleted damaged lost fold",
        first=105,
    ),
    Variant(
        "a checkpoint builds on one of another epoch",
        OWNERS,
        "        self.chain, self.chain_count, self.slot = (), 0, ORIGIN\n",
        "        self.slot = ORIGIN\n",
        "error",  # the journal itself does not let it happen
    ),
    Variant(
        "checkpoints that others build on are deleted",
        COVERAGE,
        "if old < slot and old not in self.keeps",
        "if old < slot",
        "deleted",
    ),
    Variant(
        "the newest checkpoint is deleted",
        COVERAGE,
        "if old < slot and old not in self.keeps",
        "if old not in self.keeps",
        "deleted",
    ),
    # Trimming.
    Variant(
        "one checkpoint deletes all",
        COVERAGE,
        "holding.uncovered[0] for holding in held if holding.uncovered]\n        return min(",
        "holding.uncovered[0] for holding in held if holding.uncovered][:1]\n        return min(",
        "deleted",
    ),
    Variant(
        "what was released does not count",
        COVERAGE,
        "return min([low, *firsts, *self.parted.values()])",
        "return min([low, *firsts])",
        "deleted",
    ),
    Variant(
        "a release is covered by a checkpoint of its own epoch",
        COVERAGE,
        "number == partition and epoch < newest.epoch",
        "number == partition and epoch <= newest.epoch",
        "deleted",
    ),
    Variant(
        "what an adopted partition has written does not count",
        JOURNAL,
        "base, list(uncovered))",
        "base)",
        "deleted",
    ),
    Variant(
        "what a partition that was left has written does not count",
        JOURNAL,
        "        self._part(partition, self.held.pop(partition), self.next_slot)\n",
        "        self.held.pop(partition)\n",
        "deleted",
        first=50,
    ),
    Variant(
        "a checkpoint of a former journal covers slots of the next",
        JOURNAL,
        "                if coverage is self._coverage:\n                    rest",
        "                if coverage:\n                    rest",
        "deleted",
        scene="late_checkpoint",
    ),
    Variant(
        "the former journal is trimmed as if it were the present one",
        JOURNAL,
        "        if coverage is self._coverage:  # otherwise others trim it\n",
        "        if coverage:\n",
        "deleted",
        scene="late_trim",
    ),
    Variant(
        "no mark is put before slots are deleted",
        JOURNAL,
        "        return [self._ask(mark, put)]\n",
        "        coverage.marked_at(at)\n"
        "        early = fx.DeleteSlots(self._new_id(), coverage.name, range(1, at), [])\n"
        "        return [self._ask(early, deleted)]\n",
        "deleted",
    ),
    Variant(
        "the mark is not waited for before slots are deleted",
        JOURNAL,
        "        return [self._ask(mark, put)]\n",
        "        early = fx.DeleteSlots(self._new_id(), coverage.name, range(1, at), [])\n"
        "        return [self._ask(mark, put), early]\n",
        "deleted",
    ),
    Variant(
        "a mark that may not be there counts as there",
        JOURNAL,
        "            if reply not in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):\n"
        "                return self._trimmed(coverage, failed=True)\n",
        "            if reply is fx.StoreAnswer.NO_ROOM:\n"
        "                return self._trimmed(coverage, failed=True)\n",
        "deleted",
    ),
    Variant(
        "the highest mark is deleted, too",
        COVERAGE,
        "[mark for mark in self._marks if mark < slot]",
        "[mark for mark in self._marks if mark <= slot]",
        "deleted",
    ),
    Variant(
        "a sweep looks at one partition of a slot",
        SWEEP,
        "if not all(map(self._is_covered, group.entries)):",
        "if not any(map(self._is_covered, group.entries)):",
        "deleted error",
        first=60,
    ),
    Variant(
        "a sweep takes a release for covered by its own epoch",
        SWEEP,
        "            return newest.epoch > entry.epoch\n",
        "            return newest.epoch >= entry.epoch\n",
        "deleted",
    ),
    Variant(
        "a sweep deletes the seal that ended the journal",
        SWEEP,
        "isinstance(reply.value, Group):\n",
        "isinstance(reply.value, Group):\n            self._next += isinstance(reply, fx.Found)\n",
        "deleted",
    ),
    Variant(
        "a sweep does not wait for its mark",
        SWEEP,
        "        return [self._ask(mark, self._marked)]\n",
        "        self._mark = self._next\n        return [mark, *self._delete()]\n",
        "deleted",
    ),
    Variant(
        "a mark of a sweep that may not be there counts as there",
        SWEEP,
        "        if reply not in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):\n",
        "        if reply is fx.StoreAnswer.NO_ROOM:\n",
        "deleted",
    ),
    # Rest.
    Variant(
        "readers are not told that a look has failed",
        JOURNAL,
        "        return [fx.MayRead()] if sure else [fx.ReadFailed()]\n",
        "        return [fx.MayRead()] if sure else []\n",
        "rest read",
    ),
    # The store.
    Variant(
        "a list looks at the newest checkpoints first",
        ROAD,
        "        bounds = [(None, cut), (cut, None)] if cut else [(None, None)]\n",
        "        bounds = [(cut, None), (None, cut)] if cut else [(None, None)]\n",
        "owner fold lost live read damaged deleted",
        first=202,
    ),
)
