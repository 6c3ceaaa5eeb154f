"""Broken slot logs: what is patched where, and which invariants must break."""

from __future__ import annotations

from typing import Final

from tests.sim.hunting.variant import Variant

LOG: Final = "ringpop_py/slotlog/slotlog.py"
REPLAY: Final = "ringpop_py/slotlog/replay.py"
RECORDS: Final = "ringpop_py/slotlog/records.py"
COLLECTING: Final = "ringpop_py/slotlog/collector.py"
PROCESS: Final = "ringpop_sim/slotlog/process.py"
ROAD: Final = "ringpop_sim/schedules/road.py"

VARIANTS: Final = (
    Variant(
        "whatever stands in the slot is taken for ours",
        LOG,
        "return isinstance(record, kind) and record.nonce == self._nonce",
        "return True",
        "lost fold read error",
    ),
    Variant(
        "an own seal is believed without a list",
        LOG,
        "            return self._list()  # in doubt, like any other seal\n",
        "            self._replay.confirm()\n            return self._claim()\n",
        "owner fold lost read live",
    ),
    Variant(
        "a list after the seal is not compared with it",
        REPLAY,
        "newest > self._sure:",
        "self._last == _NOTHING:",
        "owner fold lost read live copy error damaged",
    ),
    Variant(
        "a checkpoint at the very slot of a seal does not refute it",
        REPLAY,
        "newest > self._sure:",
        "newest > self._last:",
        "owner fold lost read live damaged",
        first=600,
    ),
    Variant(
        "a seal that was read is never in doubt",
        REPLAY,
        "return self.seal is not None and self._sure != self._last",
        "return False",
        "owner fold lost read live damaged",
    ),
    Variant(
        "data is deleted before the checkpoint is there",
        LOG,
        "        return self._collect(self._collector, fx.PutCheckpoint(self._new_id(), slot))\n",
        "        early = fx.Delete(self._new_id(), tuple(self._replay.data.up_to(slot)), (), ())\n"
        "        put = fx.PutCheckpoint(self._new_id(), slot)\n"
        "        return [*self._collect(self._collector, put), early]\n",
        "deleted",
    ),
    Variant(
        "a checkpoint that may not be there counts as there",
        LOG,
        "        if reply is not fx.StoreAnswer.WON:\n",
        "        if reply is fx.StoreAnswer.NO_ROOM:\n",
        "deleted",
    ),
    Variant(
        "no mark is put before data is deleted",
        LOG,
        "        mark = fx.PutMark(self._new_id(), collector.durable())\n"
        "        return [fx.Checkpointed(request.slot), *self._collect(collector, mark)]\n",
        "        collector.durable()\n"
        "        delete = fx.Delete(self._new_id(), *collector.replaced())\n"
        "        return [fx.Checkpointed(request.slot), *self._collect(collector, delete)]\n",
        "deleted",
    ),
    Variant(
        "data is deleted before the mark is there",
        LOG,
        "        return [fx.Checkpointed(request.slot), *self._collect(collector, mark)]\n",
        "        early = fx.Delete(self._new_id(), *collector.replaced())\n"
        "        return [fx.Checkpointed(request.slot), mark, *self._collect(collector, early)]\n",
        "deleted",
    ),
    Variant(
        "a mark that may not be there counts as there",
        LOG,
        "            if reply in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):\n",
        "            if reply is not fx.StoreAnswer.NO_ROOM:\n",
        "deleted",
    ),
    Variant(
        "the last mark is deleted, too",
        COLLECTING,
        "for old in self._marks if old < slot",
        "for old in self._marks if old <= slot",
        "deleted",
    ),
    Variant(
        "marks are not looked at",
        REPLAY,
        "        if mark > self._reach(log):\n",
        "        if not self._reach(log):\n",
        "copy fold lost owner read",
    ),
    Variant(
        "a checkpoint that is put while a list is made is taken for lost",
        LOG,
        "        lost = self._replay.lost(reply)\n",
        "        self._replay.listed(reply)\n        lost = self._replay.lost(reply)\n",
        "damaged error",
    ),
    Variant(
        "a checkpoint that is replaced while it is fetched is taken for lost",
        LOG,
        "            self._replay.not_restored(reply)\n",
        "            return self._stop(reply)\n",
        "damaged",
    ),
    Variant(
        "a record that is deleted while it is read is taken for lost",
        REPLAY,
        "            self._expect(max(slot, _after(self.base)), GoneRecord(slot))\n",
        "            self._expect(Slot(slot.epoch + 1, 0), GoneRecord(slot))\n",
        "damaged",
    ),
    Variant(
        "what is lost is looked for again and again",
        REPLAY,
        "return self._missed if self._reach(log) < self._expected else None",
        "return None",
        "live",
    ),
    Variant(
        "a checkpoint that lost a part is looked for again and again",
        REPLAY,
        "        self.forget()\n        self._expect(_after(base), missed)\n",
        "        self.forget()\n",
        "live",
    ),
    Variant(
        "what a list leaves out is taken for the end",
        REPLAY,
        "        if self._found and not self._asked:",
        "        if self.torn:",
        "copy error fold lost owner live",
    ),
    Variant(
        "claims are deleted",
        REPLAY,
        "self.holder, self.seal = record, None\n",
        "self.holder, self.seal = record, None\n                self.data.add(slot)\n",
        "deleted",
    ),
    Variant(
        "seals are deleted",
        REPLAY,
        "                self.seal = record\n",
        "                self.seal = record\n                self.data.add(slot)\n",
        "deleted",
    ),
    Variant(
        "seals of former epochs are taken for leftovers",
        COLLECTING,
        "        and (slot.epoch == checkpoint.epoch or slot != last[slot.epoch])\n",
        "",
        "deleted",
    ),
    Variant(
        "checkpoints that others build on are deleted",
        COLLECTING,
        "if old < slot and old not in self._keeps",
        "if old < slot",
        "live fold error damaged",
    ),
    Variant(
        "reads do not ask",
        LOG,
        "        self._reading = self._ask(",
        "        return [fx.MayRead()]\n        self._reading = self._ask(",
        "read",
        first=2000,
    ),
    Variant(
        "the checksum of a record is not looked at",
        RECORDS,
        "if value[len(HEAD) + len(payload) :] != _checksum(payload, key):",
        "if not payload:",
        "error fold lost owner read refused",
        first=800,
    ),
    Variant(
        "a copy is believed after one list",
        LOG,
        "        self._lists_left = 1 if miss_nothing else 0\n",
        "        self._lists_left = 0\n",
        "copy",
        first=1800,
    ),
    Variant(
        "an open outcome is acknowledged",
        LOG,
        "        if reply is fx.StoreAnswer.WON:\n            return self._committed(request)\n",
        "        if reply is fx.StoreAnswer.WON or reply is fx.StoreAnswer.FAILED:\n"
        "            return self._committed(request)\n",
        "lost",
    ),
    Variant(
        "an open outcome is taken for a loss",
        LOG,
        "if reply is fx.StoreAnswer.NO_ROOM and request.attempt == 0:",
        "if reply is fx.StoreAnswer.NO_ROOM or reply is fx.StoreAnswer.FAILED:",
        "fold lost read error",
    ),
    Variant(
        "no room is believed after an open outcome",
        LOG,
        "if reply is fx.StoreAnswer.NO_ROOM and request.attempt == 0:",
        "if reply is fx.StoreAnswer.NO_ROOM:",
        "fold lost read error",
    ),
    Variant(
        "a commit that was deleted already is taken for a loss",
        LOG,
        "            return self._again(self._committing, self._commit_put)\n",
        "            self._committing = None\n            return [fx.NotCommitted(request.slot)]\n",
        "lost fold read",
        first=600,
    ),
    Variant(
        "a seal is taken for put though the slot was taken",
        LOG,
        "        if reply is fx.StoreAnswer.WON:\n"
        "            self._replay.take(request.slot, request.record)\n"
        "            return self._list()",
        "        if reply is fx.StoreAnswer.WON or reply is fx.StoreAnswer.TAKEN:\n"
        "            self._replay.take(request.slot, request.record)\n"
        "            return self._list()",
        "owner fold lost live damaged",
    ),
    Variant(
        "a claim is taken for put though the slot was taken",
        LOG,
        "        if reply is fx.StoreAnswer.WON:\n"
        "            self._replay.take(request.slot, request.record)\n"
        "            return self._online()",
        "        if reply is fx.StoreAnswer.WON or reply is fx.StoreAnswer.TAKEN:\n"
        "            self._replay.take(request.slot, request.record)\n"
        "            return self._online()",
        "owner",
    ),
    Variant(
        "an epoch goes on after its seal",
        REPLAY,
        "        if self.seal is not None or epoch == 0:\n",
        "        if epoch == 0:\n",
        "owner fold lost live error",
    ),
    Variant(
        "an owner goes on after it met a seal",
        LOG,
        "            return self._fenced(reply.value)\n        if reply is fx.StoreAnswer.ABSENT:",
        "            self._committing = None\n"
        "            return [fx.NotCommitted(request.slot)]\n"
        "        if reply is fx.StoreAnswer.ABSENT:",
        "live",
        first=2700,
    ),
    Variant(
        "a restarted node goes on in the epoch of its former life",
        LOG,
        "        if holder.nonce == self._nonce:  #",
        "        if holder.owner == self.node_name:  #",
        "owner error lost fold",
    ),
    Variant(
        "what answers a former acquisition counts",
        LOG,
        "        self.stage = Stage.IDLE\n        self._open.clear()\n",
        "        self.stage = Stage.IDLE\n",
        "error owner fold lost",
    ),
    Variant(
        "repetitions are committed again",
        PROCESS,
        "            self._requests.writes.append((op, done))\n",
        "            self._requests.writes.append((op, done))\n"
        "            self.fold.seen.clear()\n",
        "twice",
    ),
    Variant(
        "a list looks at the newest checkpoints first",
        ROAD,
        "        bounds = [(None, cut), (cut, None)] if cut else [(None, None)]\n",
        "        bounds = [(cut, None), (None, cut)] if cut else [(None, None)]\n",
        "owner fold lost live read damaged",
    ),
)
