"""Broken slot logs: what is patched where, and which invariants must break."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Variant:
    """A bug: in *path*, an old text that occurs once, and a new one.

    Attributes:
        found_by: the invariants of which at least one breaks.
    """

    name: str
    path: str
    old: str
    new: str
    found_by: str

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


LOG: Final = "ringpop_py/partitions/slotlog.py"
REPLAY: Final = "ringpop_py/partitions/replay.py"
ENVELOPE: Final = "ringpop_py/partitions/envelope.py"
COLLECTING: Final = "ringpop_py/partitions/collecting.py"
PROCESS: Final = "ringpop_sim/slotlog/process.py"
SCHEDULE: Final = "ringpop_sim/slotlog/schedule.py"

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
        "owner fold lost read live copy error",
    ),
    Variant(
        "a checkpoint at the very slot of a seal does not refute it",
        REPLAY,
        "newest > self._sure:",
        "newest > self._last:",
        "owner fold lost read live",
    ),
    Variant(
        "a seal that was read is never in doubt",
        REPLAY,
        "return self.seal is not None and self._sure != self._last",
        "return False",
        "owner fold lost read live",
    ),
    Variant(
        "data is deleted before the checkpoint is there",
        LOG,
        "        return self._collect(self._collector, PutCheckpoint(self._new_id(), slot))\n",
        "        early = Delete(self._new_id(), tuple(self._replay.data.up_to(slot)), ())\n"
        "        put = PutCheckpoint(self._new_id(), slot)\n"
        "        return [*self._collect(self._collector, put), early]\n",
        "deleted",
    ),
    Variant(
        "a checkpoint that may not be there counts as there",
        LOG,
        "        if reply is not Answer.WON:\n",
        "        if reply is Answer.NO_ROOM:\n",
        "deleted",
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
        "live fold error",
    ),
    Variant(
        "reads do not ask",
        LOG,
        "        self._reading = self._ask(",
        "        return [MayRead()]\n        self._reading = self._ask(",
        "read",
    ),
    Variant(
        "the checksum of a record is not looked at",
        ENVELOPE,
        "if value[len(HEAD) + len(payload) :] != _checksum(payload, key):",
        "if not payload:",
        "error fold lost owner read refused",
    ),
    Variant(
        "a copy is believed after one list",
        LOG,
        "        self._lists_left = 1\n",
        "        self._lists_left = 0\n",
        "copy",
    ),
    Variant(
        "an open outcome is acknowledged",
        LOG,
        "        if reply is Answer.WON:\n            return self._committed(request)\n",
        "        if reply is Answer.WON or reply is Answer.FAILED:\n"
        "            return self._committed(request)\n",
        "lost",
    ),
    Variant(
        "an open outcome is taken for a loss",
        LOG,
        "if reply is Answer.NO_ROOM and request.attempt == 0:",
        "if reply is Answer.NO_ROOM or reply is Answer.FAILED:",
        "fold lost read error",
    ),
    Variant(
        "no room is believed after an open outcome",
        LOG,
        "if reply is Answer.NO_ROOM and request.attempt == 0:",
        "if reply is Answer.NO_ROOM:",
        "fold lost read error",
    ),
    Variant(
        "a commit that was deleted already is taken for a loss",
        LOG,
        "            return self._again(self._committing, self._commit_put)\n",
        "            self._committing = None\n            return [NotCommitted(request.slot)]\n",
        "lost fold read",
    ),
    Variant(
        "a seal is taken for put though the slot was taken",
        LOG,
        "        if reply is Answer.WON:\n"
        "            self._replay.take(request.slot, request.record)\n"
        "            return self._list()",
        "        if reply is Answer.WON or reply is Answer.TAKEN:\n"
        "            self._replay.take(request.slot, request.record)\n"
        "            return self._list()",
        "owner fold lost live",
    ),
    Variant(
        "a claim is taken for put though the slot was taken",
        LOG,
        "        if reply is Answer.WON:\n"
        "            self._replay.take(request.slot, request.record)\n"
        "            return self._online()",
        "        if reply is Answer.WON or reply is Answer.TAKEN:\n"
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
        "            return self._fenced(reply.value)\n        if reply is Answer.ABSENT:",
        "            self._committing = None\n"
        "            return [NotCommitted(request.slot)]\n        if reply is Answer.ABSENT:",
        "live",
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
        "            self._queue.append((op, done))\n",
        "            self._queue.append((op, done))\n            self.fold.seen.clear()\n",
        "twice",
    ),
    Variant(
        "a list looks at the newest checkpoints first",
        SCHEDULE,
        "        page = self._shelf.list_checkpoints(None, cut) if cut else []\n",
        "        page = self._shelf.list_checkpoints(cut, None) if cut else []\n",
        "owner fold lost live read",
    ),
)
