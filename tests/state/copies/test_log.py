"""`ringpop_py.state.copies`: what is acknowledged is in the copies, whatever comes when."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from ringpop_py.base.errors import OutcomeUnknown, PartitionUnavailable
from ringpop_py.state.copies.calls import CopyPart, CopyReply, CopyStep
from ringpop_py.state.copies.kept import ASTRAY_US, KeptCopies
from ringpop_py.state.copies.log import BEHIND_MAX, SLOW_US, BackupMember, CopyLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

NAMES: Final = ("a", "b", "c", "d")
KEYS: Final = tuple("klmnop")
SCHEDULES: Final = 400
STEPS: Final = 120


def part_of(
    run: str,
    step: CopyStep,
    after: int,
    count: int,
    *,
    last: bool = True,
    known: bool = True,
) -> CopyPart:
    return CopyPart(0, run, step, after, count, last, known, [], [], {}, ())


class Model:
    """One partition at an owner and its backups; a key's value is the version that wins.

    A member is killed, or restarted, only while all copies that should be there are, or are being
    brought up to date beside a former one, and no other fault is unrepaired.
    """

    def __init__(self, seed: int, copies: int) -> None:
        self.rng = random.Random(seed)
        self.copies = copies
        self.now = 0
        self.version = 0
        self.runs = 0
        self.states: dict[str, dict[str, int]] = {name: {} for name in NAMES}
        self.kept = {name: KeptCopies() for name in NAMES}
        self.acknowledged: dict[str, int] = {}
        self.flight: dict[str, tuple[CopyPart, dict[str, int]]] = {}
        self.sending: dict[str, Iterator[tuple[CopyPart, dict[str, int]]]] = {}
        self.late: list[tuple[str, str, CopyPart, dict[str, int]]] = []
        self.degraded = self.moved = False
        self._serve("a", ())

    def _serve(self, owner: str, holders: Iterable[str]) -> None:
        self.runs += 1
        self.owner = owner
        self.kept[owner].kept.pop(0, None)
        self.late += [(self.owner, to, *sent) for to, sent in self.flight.items()]
        self.flight.clear()
        self.sending.clear()
        self.log = CopyLog(f"run {self.runs}", self.copies, 1, {*holders} - {owner})
        self._follow()

    def _follow(self) -> None:
        others = [name for name in NAMES if name != self.owner]
        wanted = self.rng.sample(others, self.copies - 1)
        self.log.follow(wanted, others, self.now)

    def _settle(self, settled: Iterable[tuple[Callable[[object], None], object]]) -> None:
        for done, outcome in settled:
            done(outcome)

    def step(self) -> None:
        """Do one thing at random."""
        self.now += 1
        actions = [self.write] * 6 + [self.send] * 8
        actions += [self.deliver] * 10 + [self.deliver_late, self.wait, self._follow]
        actions += [self.kill, self.restart, self.move]
        self.rng.choice(actions)()
        self._settle(self.log.settled())
        if self.log.missing_count <= 0 and not any(b.asks for b in self.log.backups.values()):
            self.degraded = self.moved = False

    def write(self) -> None:
        self.version += 1
        key, version = self.rng.choice(KEYS), self.version
        self.states[self.owner][key] = version
        self.log.note([key])
        self.log.changed(self.now)

        def done(_outcome: object) -> None:
            self.acknowledged[key] = max(version, self.acknowledged.get(key, 0))

        if self.log.hold("done", done) is not None:
            done("done")

    def send(self) -> None:
        name = self.rng.choice(NAMES)
        if name in self.flight:
            return
        if name not in self.sending:
            step = self.log.due(name)
            if step is None:
                return
            self.sending[name] = self._parts(name, step)
        sent = next(self.sending[name], None)
        if sent is None:
            del self.sending[name]
        else:
            self.flight[name] = sent

    def _parts(self, name: str, step: CopyStep) -> Iterator[tuple[CopyPart, dict[str, int]]]:
        log, state = self.log, self.states[self.owner]
        backup = log.backups[name]
        if step is CopyStep.FORGET:
            yield part_of(log.run, step, 0, log.count), {}
            return
        whole = step is CopyStep.WHOLE
        after = 0 if whole else backup.acked or 0
        count = log.begin_whole(name) if whole else log.count
        keys = list(KEYS if whole else log.since(after).keys)
        size = self.rng.choice((1, 2, 6))
        pieces = [keys[at : at + size] for at in range(0, len(keys), size)] or [[]]
        for index, piece in enumerate(pieces):
            if whole and backup.copying != count:
                return
            last = piece is pieces[-1]
            place = index if whole else after
            part = part_of(log.run, step, place, count, last=last, known=backup.known)
            yield part, {key: state[key] for key in piece if key in state}

    def deliver(self) -> None:
        if not self.flight:
            return
        name = self.rng.choice(sorted(self.flight))
        part, content = self.flight.pop(name)
        arrives, returns = self.rng.random() < 0.9, self.rng.random() < 0.9
        said = self._take(self.owner, name, part, content) if arrives else None
        if not arrives or self.rng.random() < 0.1:
            self.late.append((self.owner, name, part, content))
        said = said if returns else None
        self.log.answered(name, part, said, self.now)
        if said is not CopyReply.TAKEN:
            self.sending.pop(name, None)
        self.log.changed(self.now)

    def _take(self, owner: str, name: str, part: CopyPart, content: dict[str, int]) -> CopyReply:
        if name == self.owner:  # what is served is not fed
            return CopyReply.NEEDS_WHOLE
        said = self.kept[name].take(owner, part)
        if said is CopyReply.HANDS_OVER:
            self._merge(self.owner, self.states[name])
            self.log.note(self.states[name])
            self.kept[name].keep(0, self.owner)
        if part.step is CopyStep.FORGET:
            self.states[name] = {}
        elif said is CopyReply.TAKEN:
            self._merge(name, content)
        return said

    def _merge(self, name: str, content: dict[str, int]) -> None:
        state = self.states[name]
        for key, version in content.items():
            state[key] = max(version, state.get(key, 0))

    def deliver_late(self) -> None:
        """What was sent long ago, and whose sender does not wait any more; forgetting is not."""
        if self.late:
            owner, name, part, content = self.rng.choice(self.late)
            if part.step is not CopyStep.FORGET:
                self._take(owner, name, part, content)

    def wait(self) -> None:
        self.now += self.rng.choice((1, SLOW_US // 2, SLOW_US))
        self.degraded |= bool(self.log.advance(self.now))

    def kill(self) -> None:
        if self.degraded:
            return
        dead, self.states[self.owner] = self.owner, {}
        # With three copies two may go, except that writes which wait for a move have two.
        if self.copies == 3 and not self.moved:
            gone = self.rng.choice([name for name in NAMES if name != dead])
            self.states[gone], self.kept[gone] = {}, KeptCopies()
        self._recover(self.rng.choice([name for name in NAMES if name != dead]))
        self.degraded = True

    def _recover(self, name: str) -> None:
        run, count = self.kept[name].position(0)
        holders = [n for n in NAMES if n != name and self.kept[n].kept]
        for holder in holders:
            if self.kept[holder].has_more(0, run, count):
                self._merge(name, self.states[holder])
        lost = {
            key: version
            for key, version in self.acknowledged.items()
            if self.states[name].get(key, 0) < version
        }
        assert not lost, "what was acknowledged is lost"
        self.acknowledged.clear()  # from here on only what is written again
        self._serve(name, holders)

    def restart(self) -> None:
        if self.degraded:
            return
        name = self.rng.choice([name for name in NAMES if name != self.owner])
        self.states[name], self.kept[name] = {}, KeptCopies()
        self.log.ask(name)
        self.degraded = self.degraded or name in self.log.backups

    def move(self) -> None:
        giver, taker = self.owner, self.rng.choice(NAMES)
        if taker == giver or self.degraded:
            return
        self._merge(taker, self.states[giver])
        self.kept[giver].keep(0, taker)
        holders = {giver, *self.log.backups}
        self._settle(self.log.end(None))
        self.moved = True
        self._serve(taker, holders)

    def finish(self) -> None:
        """Check that all copies are there in the end, if nothing more happens."""
        for _ in range(200):
            self.now += 1
            self.log.changed(self.now)
            self.send()
            if self.flight:
                name = next(iter(self.flight))
                part, content = self.flight.pop(name)
                said = self._take(self.owner, name, part, content)
                self.log.answered(name, part, said, self.now)
                if said is not CopyReply.TAKEN:
                    self.sending.pop(name, None)
            self._settle(self.log.settled())
        assert self.log.missing_count <= 0, "copies are missing for ever"
        for name, backup in self.log.backups.items():
            assert backup.wanted, "a former backup is not told to forget"
            state = self.states[name]  # what a late message brought can be newer
            behind = [k for k, v in self.states[self.owner].items() if state.get(k, 0) < v]
            assert not behind, "a copy is incomplete"


def schedules(count: int = SCHEDULES) -> None:
    for seed in range(count):
        model = Model(seed, copies=2 + seed % 2)
        for _ in range(STEPS):
            model.step()
        model.finish()


def test_what_was_acknowledged_survives_any_member() -> None:
    schedules()


# Wrong forms of the rules.


def _confirmed_by_nobody(log: CopyLog) -> int:
    return log.count


def _confirmed_by_one(log: CopyLog) -> int:
    acked = (-1 if b.acked is None else b.acked for b in log.backups.values() if not b.missing)
    return max(acked, default=log.count)


def _changes_of_any_run(self: KeptCopies, part: CopyPart) -> CopyReply:
    copy = self.kept.get(part.number)
    if copy is None:
        return CopyReply.NEEDS_WHOLE
    copy.run, copy.count = part.run, max(copy.count or 0, part.count)
    return CopyReply.TAKEN


def _changes_though_incomplete(self: KeptCopies, part: CopyPart) -> CopyReply:
    if part.number not in self.kept:
        self.keep(part.number, "a")
    copy = self.kept[part.number]
    copy.run, copy.count = part.run, part.count
    return CopyReply.TAKEN


def _whole_by_its_last_part(self: KeptCopies, owner: str, part: CopyPart) -> CopyReply:
    self.keep(part.number, owner)
    if part.last:
        self.kept[part.number].run, self.kept[part.number].count = part.run, part.count
    return CopyReply.TAKEN


def _taken_to_the_present(self: CopyLog, backup: BackupMember, part: CopyPart, _now: int) -> None:
    if part.last:
        backup.acked, backup.copying = self.count, None
        backup.missing = backup.asks = False


def _taken_with_any_part(self: CopyLog, backup: BackupMember, part: CopyPart, _now: int) -> None:
    backup.acked, backup.copying = max(part.count, backup.acked or 0), None
    backup.missing = backup.asks = False
    assert self.backups


def _has_more_by_count(self: KeptCopies, number: int, _run: str, count: int) -> bool:
    return self.position(number)[1] > count


def _always_complete(_log: CopyLog) -> bool:
    return True


def _asks_nobody(_log: CopyLog, _name: str) -> None:
    pass


def _caught_up_with_anything(backup: BackupMember) -> bool:
    return backup.acked is not None and not backup.missing


def _trimmed_to_the_fastest(log: CopyLog) -> int:
    return max((b.acked or 0 for b in log.backups.values()), default=log.count)


@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (CopyLog, "_confirmed", property(_confirmed_by_nobody)),
        (CopyLog, "_confirmed", property(_confirmed_by_one)),
        (CopyLog, "_taken", _taken_to_the_present),
        (CopyLog, "_taken", _taken_with_any_part),
        (CopyLog, "_complete", property(_always_complete)),
        (CopyLog, "ask", _asks_nobody),
        (BackupMember, "complete", property(_caught_up_with_anything)),
        (CopyLog, "_floor", _trimmed_to_the_fastest),
        (KeptCopies, "_take_changes", _changes_of_any_run),
        (KeptCopies, "_take_changes", _changes_though_incomplete),
        (KeptCopies, "_take_whole", _whole_by_its_last_part),
        (KeptCopies, "has_more", _has_more_by_count),
    ],
)
def test_wrong_rules_are_caught(
    where: type[object], name: str, wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, wrong)

    with pytest.raises(AssertionError):
        schedules(4 * SCHEDULES)


# Single rules.


def test_a_copy_that_the_owner_does_not_know_of_is_handed_over_before_it_is_replaced() -> None:
    kept = KeptCopies()
    kept.take("a", part_of("one", CopyStep.WHOLE, 0, 5))

    unknown = kept.take("b", part_of("two", CopyStep.WHOLE, 0, 1, known=False))
    known = kept.take("b", part_of("two", CopyStep.WHOLE, 0, 1))

    assert (unknown, known) == (CopyReply.HANDS_OVER, CopyReply.TAKEN)


def test_a_copy_that_the_owner_does_not_feed_goes_astray() -> None:
    kept = KeptCopies()
    kept.take("a", part_of("one", CopyStep.WHOLE, 0, 5))

    looks = [("b", 1), ("b", ASTRAY_US), ("a", ASTRAY_US + 1), ("b", ASTRAY_US + 2)]
    assert not any(kept.is_astray(0, owner, now) for owner, now in looks)
    assert kept.is_astray(0, "b", 2 * ASTRAY_US + 2)
    assert not kept.is_astray(1, "b", 1)


def test_a_backup_is_waited_for_until_it_is_late_and_with_too_few_copies_nothing_is_written() -> (
    None
):
    log = CopyLog("run", 2, 2)
    with pytest.raises(PartitionUnavailable, match="at 1 members, and copies_min is 2"):
        log.check()
    log.follow(["b"], ["b"], 0)
    log.check()
    log.note(["k"])
    results: list[object] = []
    assert log.changed(1) == ["b"]
    assert log.hold("done", results.append) is None

    assert (log.advance(SLOW_US - 1), log.settled()) == ([], [])
    assert log.advance(SLOW_US) == ["b"]

    ((done, result),) = log.settled()
    assert done == results.append
    assert isinstance(result, OutcomeUnknown)
    with pytest.raises(PartitionUnavailable):
        log.check()


def test_a_backup_that_lacks_too_much_is_sent_the_whole_partition() -> None:
    log = CopyLog("run", 2)
    log.follow(["b"], ["b"], 0)
    log.begin_whole("b")
    log.answered("b", part_of("run", CopyStep.WHOLE, 0, 0), CopyReply.TAKEN, 1)
    assert log.due("b") is None

    log.note([f"k{n}" for n in range(BEHIND_MAX)])
    assert log.due("b") is CopyStep.CHANGES
    assert len(log.since(0).keys) == BEHIND_MAX
    log.note(["more"])

    assert log.due("b") is CopyStep.WHOLE
    assert log.since(0).keys == []
