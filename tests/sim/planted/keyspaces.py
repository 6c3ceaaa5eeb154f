"""Bugs to plant in what decides about partitions and requests for their keys."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import ERRAND, Bug

DURABLE: Final = "steward/durable.py"
MEMORY: Final = "steward/memory.py"
HOLDINGS: Final = "steward/holdings.py"
GOSSIP: Final = "steward/gossip.py"
TABLE: Final = "placing/table.py"
ASSIGNMENT: Final = "placing/assignment.py"
LOG: Final = "slotlog/slotlog.py"
SESSIONS: Final = "keyed/sessions.py"
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
        LOG,
        "        assert self.stage in {Stage.IDLE, Stage.REPLAYING}\n",
        "        if self._replay.seal is None and self.holder and self._replay.listed_last:\n"
        "            self._may_take, self._nonce = may_take, self._make_nonce()\n"
        '            self._replay.seal = Seal("", "")\n'
        "            return self._claim()\n"
        "        assert self.stage in {Stage.IDLE, Stage.REPLAYING}\n",
        "K1 K2",
        "partitions-drained",
    ),
    _bug(
        "a partition is claimed without a seal",
        LOG,
        "            return self._seal()\n",
        "            self._replay.seal = Seal(self.node_name, self._nonce)\n"
        "            return self._claim()\n",
        "K1 K2 K4",
        "partitions-split",
    ),
    _bug(
        "a claim that another member won counts",
        LOG,
        "        if reply is fx.StoreAnswer.WON:\n"
        "            self._replay.take(request.slot, request.record)\n"
        "            return self._online()\n",
        "        if reply in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):\n"
        "            self._replay.take(request.slot, request.record)\n"
        "            return self._online()\n",
        "K1 K2",
        "partitions-split",
        "partitions-awaited",
        "store-failing",
    ),
    _bug(
        "whatever is in the slot of a write counts as that write",
        LOG,
        "return isinstance(record, kind) and record.nonce == self._nonce",
        "return True",
        "K1 K2 X",
        "partitions-split",
    ),
    _bug(
        "an owner answers reads from memory",
        LOG,
        "        self._reading = self._ask(fx.GetSlot(self._new_id(), self.next_slot), "
        "self._read_met)\n        return [self._reading]\n",
        "        return [fx.MayRead()]\n",
        "K1",
        "partitions-split",
    ),
    _bug(
        "an owner holds on to what another member has claimed",
        DURABLE,
        "            self._let_go(row.partition)\n        self._news",
        "            pass\n        self._news",
        "K4",
        "partitions-drained",
    ),
    _bug(
        "a partition is released to a member that should not own it",
        DURABLE,
        "            or self.table[number].desired != to\n",
        "",
        "K5 K9",
        "partitions-drained",
    ),
    _bug(
        "a place is never freed",
        DURABLE,
        "        self._ways[self._coming[number].way].places += 1\n",
        "",
        "K4",
        "store-failing",
    ),
    _bug(
        "a release is counted for ever",
        DURABLE,
        "        self._releases_count -= duty.to != NOBODY\n",
        "",
        "K4 K7",
        "partitions-drained",
    ),
    _bug(
        "a failed try is the last",
        DURABLE,
        "        if coming is not None and coming.step is Step.WAITS and coming.try_at <= now:\n",
        "        if False:\n",
        "K4",
        "store-failing",
    ),
    _bug(
        "no truce is kept",
        DURABLE,
        " and truce is not None and truce.until > now:\n",
        " and truce is not None and False:\n",
        "K5 K9",
        "partitions-split",
    ),
    _bug(
        "a stale row wins",
        TABLE,
        "    later = max(ours, theirs, key=lambda row: row.facts)\n",
        "    later = theirs\n",
        "K4 K5",
        "partitions-split",
    ),
    _bug(
        "rows that differ are not compared",
        GOSSIP,
        "        if not self._is_settled(other, digest):\n",
        "        if False:\n",
        "K4",
        "partitions-split",
    ),
    _bug(
        "the first assignment does not wait",
        ASSIGNMENT,
        "    if assigned or len(members) >= members_min:\n",
        "    if True:\n",
        "K8",
        "partitions-awaited",
    ),
    _bug(
        "partitions stay with an owner that is gone",
        ASSIGNMENT,
        "    present = frozenset(names)\n",
        "    present = frozenset(assignment.owners)\n",
        "K4 K7 X",
        "partitions-by-hand",
    ),
    _bug(
        "a drained member keeps its partitions",
        DURABLE,
        "        if self.failure:\n            return ReleaseSaid.NOT_MINE\n",
        "        if self._name not in self._sight.owners():\n"
        "            return ReleaseSaid.NOT_YET\n"
        "        if self.failure:\n            return ReleaseSaid.NOT_MINE\n",
        "K4 K7",
        "partitions-drained",
    ),
    _bug(
        "a copy is served while it is sent",
        MEMORY,
        "            self.serving.discard(number)\n"
        "            self._tasks.append(Withhold(number))\n",
        "            pass\n",
        "K1 K3",
        "copies-leaving",
    ),
    _bug(
        "a copy is forgotten before its last part was taken",
        MEMORY,
        "        if not taken:  # it is tried",
        "        if False:  # it is tried",
        "K1 K3",
        "copies-leaving:0:2",
        "copies-leaving:0:3",
    ),
    _bug(
        "an owner that is not known yet is not waited for",
        MEMORY,
        "        known = self._sight.status_of(row.owner) is not None\n",
        "        known = True\n",
        "K1",
        "partitions:4:22009030",
        "partitions:4:22025561",
    ),
    _bug(
        "a leaver asks one heir only",
        MEMORY,
        "                self._refusing.add(duty.to)\n",
        "                pass\n",
        "K3",
        "partitions:4:22006251",
    ),
    _bug(
        "what was handed over is begun anew",
        MEMORY,
        "            self._put(row.claimed(duty.to, row.epoch + 1))\n",
        "            pass\n",
        "K1",
        "partitions:4:21000087",
    ),
    _bug(
        "a copy is not offered again",
        MEMORY,
        "        if going.step is Giving.WAITS and going.try_at <= now:\n",
        "        if False:\n",
        "K1 K3 K4",
        "copies-leaving",
    ),
    _bug(
        "the copy of a member that leaves is refused",
        MEMORY,
        "sends = going is not None and going.step is Giving.SENDS",
        "sends = going is not None",
        "K1 K3",
        "copies-leaving:0:11",
        "copies-leaving:0:12",
    ),
    _bug(
        "nobody waits for the copy of the former owner",
        MEMORY,
        "        if not owned or (known and not self.is_there(row.owner)):\n",
        "        if True:\n",
        "K1 K3",
        "copies-drained",
    ),
    _bug(
        "an owner of one side of a cut does not claim again",
        MEMORY,
        "            self._insist(number)\n",
        "            pass\n",
        "K4 K5",
        "partitions:4:23000510",
        "partitions:4:23000815",
    ),
    _bug(
        "a repeated write takes effect again",
        SESSIONS,
        "    return (highest, missing ^ bit, digests) if missing & bit else None\n",
        "    return highest, missing & ~bit, digests\n",
        "K1 K3",
        "requests-lost",
    ),
    _bug(
        "an attempt without an answer has taken no effect",
        ERRAND,
        '        if error.took_effect == "unknown":\n            self.may_have_run = True\n',
        "",
        "K1",
        "requests-lost",
    ),
    _bug(
        "the end of a call that failed is not noticed",
        ERRAND,
        "        self.under_way.remove(ask)\n        for part in ask.parts:\n",
        "        if len(ask.parts) > 1:\n            return\n"
        "        self.under_way.remove(ask)\n        for part in ask.parts:\n",
        "K6",
        "requests-lost",
        "store-failing",
        "partitions-split",
    ),
    _bug(
        "parts without a known owner are dropped with the answers of others",
        ERRAND,
        "            self.open = [part for part in self.open if part not in self.results]\n\n"
        "    def failed(",
        "            self.open = ()\n\n    def failed(",
        "X",
        "partitions-drained",
    ),
    _bug(
        "an error that a relay answers is certain whatever earlier attempts did",
        ERRAND,
        "self.results[part] = policy.settled(error, tried)\n            return\n        tried.meet",
        "self.results[part] = error\n            return\n        tried.meet",
        "K1",
        "partitions-killed",
    ),
)
