"""Bugs to plant: where, instead of what, and what has to find each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug: *patches* of the module *path*, each an old text that occurs once, and a new one.

    Attributes:
        found_by: the invariants of which at least one breaks (``theory``: a figure is wrong).
        hunts: where it is looked for, see ``hunt.py``.
    """

    name: str
    path: str
    found_by: str
    hunts: tuple[str, ...]
    patches: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def _bug(name: str, path: str, old: str, new: str, found_by: str, *hunts: str) -> Bug:
    return Bug(name, path, found_by, hunts, ((old, new),))


ROWS: Final = "swim/rows.py"
MEMBER: Final = "swim/member.py"
SUSPICION: Final = "swim/suspicion.py"
NAMESAKES: Final = "swim/namesakes.py"
PROBE: Final = "swim/probe.py"
PROBING: Final = "swim/prober.py"

BUGS: Final = (
    _bug(
        "nobody refutes",
        ROWS,
        "            case Hearsay.ACCUSATION:\n                self._refute(change, now)\n",
        "            case Hearsay.ACCUSATION:\n                pass\n",
        "S3",
        "isolated:6:1",
    ),
    _bug(
        "who refutes keeps its incarnation",
        ROWS,
        "incarnation = max(self._core.clock.wall_ms(now), before.incarnation + 1, above + 1)",
        "incarnation = before.incarnation",
        "S3",
        "isolated:6:1",
    ),
    _bug(
        "a refutation is not above the accusation",
        ROWS,
        "max(self._core.clock.wall_ms(now), before.incarnation + 1, above + 1)",
        "max(self._core.clock.wall_ms(now), before.incarnation + 1)",
        "S3",
        "clock-back:5:1",
    ),
    _bug(
        "alive beats suspect at equal incarnation",
        MEMBER,
        "    assert new.name == old.name\n",
        "    assert new.name == old.name\n"
        "    if new.incarnation == old.incarnation and old.status is Status.SUSPECT:\n"
        "        return new.status is not Status.SUSPECT\n",
        "S1",
        "old-alive:5:1",
    ),
    _bug(
        "an old alive beats faulty",
        MEMBER,
        "    assert new.name == old.name\n",
        "    assert new.name == old.name\n"
        "    if old.status is Status.FAULTY and new.status is Status.ALIVE:\n"
        "        return True\n",
        "S1 S4",
        "snapshot:5:1",
        "old-alive:5:1",
    ),
    _bug(
        "a tombstone is taken in of a member that is not known",
        MEMBER,
        "        return new.status != Status.TOMBSTONE  #",
        "        return True  #",
        "S4",
        *(f"forgotten-snapshot:5:{seed}" for seed in range(1, 5)),
        *(f"long-cut:6:{seed}" for seed in range(1, 5)),
    ),
    _bug(
        "a tombstone is resurrected",
        MEMBER,
        "    assert new.name == old.name\n",
        "    assert new.name == old.name\n"
        "    if old.status is Status.TOMBSTONE:\n"
        "        return new.status is Status.ALIVE\n",
        "S1 S4",
        "old-alive:5:1",
    ),
    _bug(
        "verdicts on damping are forgotten",
        MEMBER,
        "    damping = max(new.damping, old.damping)\n",
        "    damping = life.damping\n",
        "S1 E",
        "flapping:6:1",
    ),
    _bug(
        "a suspect becomes faulty at once",
        SUSPICION,
        "        share = math.log(",
        "        return 0\n        share = math.log(",
        "S5",
        "isolated:6:1",
    ),
    _bug(
        "no suspect ever becomes faulty",
        ROWS,
        "        if member.status is Status.TOMBSTONE:\n            self._forget(row, now)\n",
        "        if member.status is Status.SUSPECT:\n            return\n"
        "        if member.status is Status.TOMBSTONE:\n            self._forget(row, now)\n",
        "L2 E",
        "crash:5:1",
    ),
    _bug(
        "a higher incarnation starts no fresh timer",
        SUSPICION,
        "        if entry and version_of(entry.member) == version_of(member):\n",
        "        if entry and entry.member.status is member.status:\n",
        "S5 X",
        "suspicion-renewed:6:1",
    ),
    _bug(
        "one accuser counts as often as it is heard",
        SUSPICION,
        "        if accuser in self.accusers or len(",
        "        if len(",
        "S5",
        "isolated:8:1",
        "power-loss:9:1",
    ),
    _bug(
        "whoever sends a list accuses all its suspects",
        ROWS,
        'INDEPENDENT: Final[frozenset[Via]] = frozenset({"ping",',
        'INDEPENDENT: Final[frozenset[Via]] = frozenset({"join", "ping",',
        "S5",
        "paused-while-growing:12:1",
        "paused-while-growing:16:2",
        "paused-while-growing:16:3",
    ),
    _bug(
        "nobody asks helpers",
        PROBING,
        "        helpers = core.members.random_pingable(core.config.ping_req_size, but=",
        "        helpers = core.members.random_pingable(0, but=",
        "S6",
        "isolated:6:1",
    ),
    _bug(
        "a nack is taken for an ack",
        PROBING,
        "        elif outcome.ping_ok:\n",
        "        elif True:\n",
        "L2 E",
        "crash:5:1",
    ),
    _bug(
        "a helper's yes is taken for a no",
        PROBING,
        "        elif outcome.ping_ok:\n            probe.answered()\n",
        "        elif outcome.ping_ok:\n            probe.nacked(helper, 'timeout')\n",
        "S6",
        "bridge-gone:3:1",
    ),
    _bug(
        "a helper's yes is ignored, and its round never ends",
        PROBING,
        "        elif outcome.ping_ok:\n            probe.answered()\n",
        "        elif outcome.ping_ok:\n            return\n",
        "L2 E",
        "bridge-gone:3:1",
    ),
    _bug(
        "silent helpers testify",
        PROBE,
        "            known = self._nack_count or self.silence_accuses\n",
        "            known = True\n",
        "S6",
        "isolated:6:1",
    ),
    _bug(
        "one witness is evidence enough",
        PROBE,
        "WITNESSES_MIN: Final = 2\n",
        "WITNESSES_MIN: Final = 1\n",
        "E S6",
        "firewall:8:1",
        "firewall:8:2",
    ),
    _bug(
        "any failure is evidence",
        PROBE,
        'EVIDENCE: Final = frozenset({"refused",',
        'EVIDENCE: Final = frozenset({"timeout", "refused",',
        "S5 S6 S8 E",
        "paused-shortly:6:1",
        "isolated:6:1",
    ),
    _bug(
        "an answer of another member counts",
        "swim/asker.py",
        '            if outcome.source not in ("", target.name):\n',
        "            if False:\n",
        "L2 E",
        "takeover:5:1",
    ),
    _bug(
        "the rotation skips the last",
        "swim/memberlist.py",
        "            if self._next >= len(self._rotation):\n",
        "            if self._next >= len(self._rotation) - 1:\n",
        "theory",
        "theory:rotation",
    ),
    _bug(
        "the damped stay in the ring",
        "swim/memberlist.py",
        "        return self._serves(member) and not left_out\n",
        "        return self._serves(member)\n",
        "S9 L5 E",
        "damped:6:1",
    ),
    _bug(
        "as many as one likes are damped",
        "swim/memberlist.py",
        "        return max(1, math.floor(self._damp_share * self.serving_count))\n",
        "        return self.serving_count\n",
        "S9 L5 E",
        "flapping-many:9:1",
    ),
    _bug(
        "a change is sent once",
        "swim/dissemination.py",
        "            if rider.sent_count >= self.maximum:\n",
        "            if rider.sent_count >= 1:\n",
        "E",
        "leave-and-return:6:1",
    ),
    _bug(
        "a change is sent for ever",
        "swim/dissemination.py",
        "            if rider.sent_count >= self.maximum:\n",
        "            if False:\n",
        "S12 S13",
        "steady:5:1",
    ),
    _bug(
        "lists that differ are not synced",
        "swim/syncer.py",
        "        wanted = quiet or self._differences >= DIFFERENCES_MAX\n",
        "        wanted = False\n",
        "L1 E",
        "missed-news:8:1",
    ),
    _bug(
        "healing merges without refutations",
        "swim/passes.py",
        "    for_us, for_them = [], []\n",
        "    for_us, for_them = [], []\n    theirs = ()\n",
        "L3 S3",
        "split:4:1",
    ),
    _bug(
        "nobody heals",
        "swim/healer.py",
        "        if core.rng.random() >= core.config.heal_share",
        "        if True or core.config.heal_share",
        "L1 E",
        "split:4:1",
    ),
    _bug(
        "the healer of the ringpop dialect never reads the hosts again",
        "swim/healer.py",
        "            core.emit(HostsWanted())\n            # A slow",
        "            # A slow",
        "E",
        "islands-of-ringpop:6:1",
    ),
    _bug(
        "where the forgotten were is forgotten, too",
        ROWS,
        "        self._addresses[member.name] = member.address\n",
        "",
        "L1 E",
        "long-cut-of-islands:6:1",
    ),
    _bug(
        "what is evicted leaves its score",
        "swim/scores.py",
        "        if after is None or not self._core.config.damping:\n",
        "        if not self._core.config.damping:\n",
        "L7 X",
        "long-cut:6:1",
    ),
    _bug(
        "scores never decay",
        "swim/scores.py",
        "        return round(points * math.exp2((at - now) / self._half_life_us))\n",
        "        return points\n",
        "L5 E",
        "flapping:6:1",
    ),
    _bug(
        "one node damps alone",
        "swim/damper.py",
        "        steady = [voter for voter, score in answers if score < suppress]\n",
        "        steady: list[str] = []\n",
        "L5",
        "flapping:6:1",
        "flapping:6:2",
    ),
    _bug(
        "who joins does not outbid its earlier life",
        ROWS,
        "        if overrides(namesake, self._core.local):\n",
        "        if False:\n",
        "E X L1",
        "moved-back:5:1",
        "moved-back:5:2",
    ),
    _bug(
        "a rumour takes a name",
        NAMESAKES,
        "        inquiry = self._open.get(row.address)\n",
        "        if self._core.ready:\n            return self._lose(row, None)\n"
        "        inquiry = self._open.get(row.address)\n",
        "S15",
        "forged-move:5:1",
    ),
    _bug(
        "of two of one name both go on",
        NAMESAKES,
        "        if tenure_in(ack) < inquiry.tenure:\n",
        "        if False:\n",
        "S3 L1 S12 S13 E",
        "twins:5:1",
    ),
    _bug(
        "the later of two keeps the name",
        NAMESAKES,
        "        if tenure_in(ack) < inquiry.tenure:\n",
        "        if tenure_in(ack)[1:] > inquiry.tenure[1:]:\n",
        "S15",
        "twins-across-a-cut:6:1",
        "replaced-asleep:5:1",
    ),
    _bug(
        "who was asked yields",
        NAMESAKES,
        "            if tenure_in(request) < self._tenure():\n                return row\n",
        "            if tenure_in(request) > self._tenure():\n"
        "                return self._lose(row, request.since_ms)\n",
        "S15",
        "twins:5:1",
    ),
    _bug(
        "who keeps its name tells nobody",
        "swim/node.py",
        "        if settled.yields and self._core.ready:\n",
        "        if False:\n",
        "E",
        "twins-across-a-cut:24:2",
        "twins-across-a-cut:24:3",
        "twins-across-a-cut:24:4",
    ),
    _bug(
        "a process that was stopped counts from its start",
        "swim/core.py",
        "        if lasted_us >= microseconds(self._config.suspect_s):",
        "        if False:",
        "S15",
        "replaced-asleep:5:1",
    ),
    _bug(
        "a newcomer outbids the living",
        NAMESAKES,
        "    if theirs.address == ours.address or gone:\n",
        "    if theirs.address == ours.address or gone or joining:\n",
        "E",
        "twins:5:1",
    ),
    _bug(
        "a newcomer is ready before it knows whose its name is",
        "swim/joiner.py",
        "        self._waits_for_name = core.name_in_doubt\n",
        "        self._waits_for_name = False\n",
        "E L1",
        "moved-back:5:1",
    ),
    _bug(
        "another cluster is heard",
        "swim/answerer.py",
        "        if request.cluster not in (None, core.cluster):\n",
        "        if False:\n",
        "E",
        "other-cluster:5:1",
    ),
    _bug(
        "time that was slept over counts",
        "swim/core.py",
        "        if late_us <= stall_us:\n",
        "        if True:\n",
        "S5 S6 S8 E",
        "frozen:8:1",
        "frozen:8:2",
        "frozen:8:3",
    ),
    _bug(
        "who leaves says that it died",
        "swim/node.py",
        "        leaves = self.dialect.leaves_on_eviction\n",
        "        leaves = False\n",
        "E",
        "scale-down:6:1",
    ),
    _bug(
        "the ring does not follow",
        "ring/placement.py",
        "            if row is not None and members.in_ring(row):\n",
        "            if row is not None:\n",
        "S9 S10 L6",
        "crash:5:1",
    ),
    _bug(
        "of members that change together the ring follows one",
        "ring/placement.py",
        "        for name in (*changed, *before, *self._left_out):\n",
        "        for name in (*changed[:1], *before, *self._left_out):\n",
        "S9",
        "crash:5:1",
    ),
    _bug(
        "what may have run is tried again",
        "proxy/schedule.py",
        '        elif error.took_effect == "unknown" and not policy.idempotent:\n',
        "        elif False:\n",
        "S11 E",
        "lossy-requests:5:1",
    ),
    _bug(
        "accusers shorten no suspicion",
        SUSPICION,
        "        share = math.log(",
        "        share = 0 * math.log(",
        "theory",
        "theory:suspicion",
    ),
    _bug(
        "who is damped stays so",
        "swim/damper.py",
        "        elif row.damped and score <= config.damp_reuse:\n",
        "        elif False:\n",
        "L5 E",
        "flapping:6:1",
    ),
    _bug(
        "a penalty counts twice",
        "swim/scores.py",
        "self.of(name, now) + config.damp_penalty\n",
        "self.of(name, now) + 2 * config.damp_penalty\n",
        "L5",
        "flapping:6:1",
    ),
    _bug(
        "messages hold as much as there is",
        "swim/dissemination.py",
        "        return tuple(islice(changes, self._changes_max))\n\n    def for_peer",
        "        return tuple(changes)\n\n    def for_peer",
        "S12",
        "small-messages:20:1",
    ),
    _bug(
        "a broken connection is of no interest",
        "swim/prober.py",
        "                self._urgent[member.name] = None\n",
        "                pass\n",
        "E",
        "crash:8:1",
        "crash:8:2",
        "crash:8:3",
        "crash:8:4",
    ),
    _bug(
        "quiet nodes sleep on when there is news",
        "swim/periods.py",
        "        if not (self._rests and self.running):\n",
        "        if True:\n",
        "E",
        "leave-and-return:16:1",
        "leave-and-return:16:2",
    ),
    _bug(
        "whatever arrives is handled",
        "proxy/schedule.py",
        "            if owner != local:\n",
        "            if False:\n",
        "S10",
        "cut-under-load:6:1",
        "leave-and-return:6:1",
    ),
    _bug(
        "of several keys the first is checked",
        "proxy/schedule.py",
        "        for key in keys:\n",
        "        for key in keys[:1]:\n",
        "S10",
        "cut-under-load:6:1",
        "cut-under-load:6:2",
    ),
    _bug(
        "answers that come too late count",
        "swim/calls.py",
        "        self._open[call_id] = _OpenCall(to, timeout, then)\n",
        "        self._open[call_id] = _OpenCall(to, timeout, then)\n"
        "        self._core.timers.cancel(timeout)\n",
        "L2 E S6",
        "power-loss:6:1",
    ),
    _bug(
        "whoever is forgotten stays in the list",
        "swim/rows.py",
        "        self._members.remove(row.name)\n",
        "",
        "S1 L7",
        "long-cut:6:1",
    ),
)
