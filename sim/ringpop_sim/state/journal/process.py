"""One life of a node: the product's `Journal`, its recoveries, and a driver that obeys."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.journal import Journal
from ringpop_py.state.journal.records import Group, Release
from ringpop_py.state.journal.recovery import Recovery, Stage
from ringpop_py.state.journal.sweep import Sweep
from ringpop_sim.state.journal.owners import REFUSED, SERVED, Items, OwnerRequests, OwnerSnapshots
from ringpop_sim.state.journal.sweep import ScheduleWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringpop_py.state.journal.asker import Asker
    from ringpop_py.state.journal.records import Claim, Record, Slot
    from ringpop_sim.state.journal.odds import Odds
    from ringpop_sim.state.journal.owners import AskedWrite, Checkpoint, Done
    from ringpop_sim.state.journal.truth import PartitionTruth, Truth


class JournalSurroundings(ScheduleWorld):
    """What processes, clients, and the road to the store need from their world.

    Attributes:
        odds: how much goes wrong.
    """

    truth: Truth
    odds: Odds

    def ask(self, line: Line, request: fx.Request, body: Checkpoint | None) -> None:
        """Send *request* to the store, which carries it out at some time."""
        raise NotImplementedError

    def may_take(self, claim: Claim) -> bool:
        """Return whether a node believes that the owner with *claim* may be replaced."""
        raise NotImplementedError

    def some_partition(self, client: int) -> int:
        """Return the partition of the next request of the client with that number."""
        raise NotImplementedError

    def some_server(self, partition: int, client: int) -> Part | None:
        """Return a node to send to; None means that the node that was tried does not answer."""
        raise NotImplementedError

    def crash_all(self) -> None:
        """Crash all processes."""
        raise NotImplementedError

    def when_awake(self, process: JournalProcess, what: Callable[[], None]) -> None:
        """Call *what* as soon as *process* handles events, unless it crashes before."""
        if process.frozen_until > self.now:
            wakes = process.frozen_until - self.now
            self.after(wakes, partial(self.when_awake, process, what))
        elif process.up:
            what()


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """The requests of one state machine, *asker*, of a process."""

    process: JournalProcess
    asker: Asker
    label: str

    @property
    def online(self) -> bool:
        """Whether the process asks as an owner."""
        return self.asker is self.process.journal

    @property
    def stalled_until(self) -> int:
        """See `JournalProcess`."""
        return self.process.stalled_until

    def answered(self, request: fx.Request, reply: fx.Reply) -> None:
        """Handle the store's *reply* to *request*."""
        self.process.awake(partial(self.process.answered, self, request, reply))


class Part:
    """One partition at one node: on its way, held, or being claimed again.

    Attributes:
        wants: whether the node believes that it should own the partition; set from outside.
        pursued: whether the node has to go on until it holds the partition or knows that another
            node does: a claim of its own may be in the store.
        damaged: whether it stopped, and said so, because the last thing it read was damaged.
        follows: whether the recovery reads, and does not try to become the owner.
        holds: whether the node was told that it owns the partition, and not yet that it does not.
        release_to: the node for which it is about to be released.
    """

    def __init__(self, process: JournalProcess, number: int) -> None:
        self.number = number
        self.wants = False
        self.pursued = False
        self.damaged = False
        self.follows = False
        self.holds = False
        self.reclaiming = False
        self.release_to: str | None = None
        self.fold = Items()
        self.requests = OwnerRequests()
        self.snapshots = OwnerSnapshots()
        self._process = process
        self._recovery: Recovery | None = None
        self._follows_count = 0
        self._sure_count: int | None = None
        """How many operations were sure when the copy in progress began."""

    @property
    def online(self) -> bool:
        """Whether the node believes that it owns the partition."""
        return self.number in self._process.journal.held

    @property
    def stage(self) -> Stage:
        """What the recovery is doing."""
        return self._recovery.stage if self._recovery is not None else Stage.IDLE

    @property
    def under_way(self) -> dict[str, int]:
        """How much of each kind has begun and not ended."""
        return {
            "requests of a recovery": 0 if self._recovery is None else self._recovery.open_count,
            "requests of clients": self.requests.count,
            "pursued claims": int(self.pursued and not self.online),
            "claims again": int(self.reclaiming),
            "releases": int(self.release_to is not None),
        }

    @property
    def position(self) -> Slot:
        """The slot at which a checkpoint of the present state would stand."""
        return self._process.journal.position(self.number)

    @property
    def truth(self) -> PartitionTruth:
        """The true content of the partition's log."""
        return self._process.world.truth.partitions[self.number]

    # Decisions of the driver.

    def _way(self) -> Recovery:
        if self._recovery is None:
            self._recovery = Recovery(self.number, self.fold, self._process.journal)
        return self._recovery

    def acquire(self) -> None:
        """Try to become the owner."""
        self.follows, self._sure_count = False, None
        recovery, process = self._way(), self._process
        process.do(recovery, recovery.acquire(lambda claim, _: process.world.may_take(claim)))

    def follow(self) -> None:
        """Read; every other time like a reader that never owns."""
        self.follows = True
        self._follows_count += 1
        copies = self._follows_count % 2
        self._sure_count = self.truth.sure_count if copies else None
        recovery = self._way()
        self._process.do(recovery, recovery.follow(miss_nothing=bool(copies)))

    def drop(self) -> None:
        """Abandon the way here, unless a claim may be in the store."""
        if self._recovery is not None and not self.pursued:
            self._sure_count = None
            self._recovery.drop()

    def release(self, to: str) -> None:
        """Stop serving, and release with the next group."""
        self.release_to = to
        self._process.serve()

    def leave(self) -> None:
        """Stop holding without a release, and acquire again: the epoch is still open."""
        self._process.journal.leave(self.number)
        self.gone()
        self.pursued = True

    def gone(self) -> None:
        """Note that the node holds the partition no longer."""
        self.reclaiming = False
        self.epoch_ended()
        self.requests.refuse()

    def epoch_ended(self) -> None:
        """Note that the epoch has ended, and leave all requests as they are."""
        self.holds = False
        self.release_to = None
        self.snapshots.forget()

    def checkpoint(self, *, whole: bool, lag: bool) -> None:
        """Take a snapshot; with *lag*, put it only later (`put_checkpoint`)."""
        snapshots = self.snapshots
        if not self.online or snapshots.body is not None:
            return  # a snapshot of an earlier epoch may be on its way
        if snapshots.chain and snapshots.chain[-1] == self.position:
            return  # this checkpoint is in the store already
        snapshots.take(self.fold.items, self.position, whole=whole)
        if not lag:
            self.put_checkpoint()

    def put_checkpoint(self) -> None:
        """Put the snapshot that was taken, if there is one that is not put yet."""
        journal, snapshots = self._process.journal, self.snapshots
        waits = snapshots.body is not None and not snapshots.putting
        if waits and self.online and not journal.checkpointing(self.number):
            snapshots.putting = True
            effects = journal.checkpoint(self.number, snapshots.slot, snapshots.keeps)
            self._process.do(journal, effects)

    # Requests of clients.

    def write(self, asked: AskedWrite) -> None:
        """Accept a write of a client."""
        self._process.awake(partial(self._write, asked))

    def _write(self, asked: AskedWrite) -> None:
        if not self._serves:
            asked.done(REFUSED)
        # An earlier attempt of the client has landed, at this owner or at one before it.
        elif asked.op in self.fold.seen:
            asked.done(SERVED)
        else:
            self.requests.writes.append(asked)
            self._process.serve()

    def read(self, sure_count: int, done: Done) -> None:
        """Accept a read; *sure_count* operations were sure before it began."""
        self._process.awake(partial(self._read, sure_count, done))

    def _read(self, sure_count: int, done: Done) -> None:
        if not self._serves:
            done(REFUSED)
        else:
            self.requests.reads.append((sure_count, done))
            self._process.serve()

    @property
    def _serves(self) -> bool:
        return self.online and self.release_to is None

    def offer(self) -> object:
        """Return what the next group has to do in this partition; None if nothing."""
        requests = self.requests
        if requests.writes:
            body = requests.new_ops(self.fold)
            if body:
                return body
            requests.end_batch(SERVED)
        return Release(self.release_to) if self.release_to is not None else None

    def answer(self, readers: list[tuple[int, Done]]) -> None:
        """Answer *readers* with the fold."""
        for sure_count, done in readers:
            self.truth.answered(self._process.label, sure_count, self.fold.items)
            done(SERVED)

    # Facts.

    def told_of_way(self, fact: fx.TryFact) -> None:
        """Note how a try of the recovery has ended."""
        label, truth, items = self._process.label, self.truth, self.fold.items
        self.damaged = isinstance(fact, fx.Damaged)
        match fact:
            case fx.Acquired():
                self._recovery, self.pursued = None, False
                self._begin(fact.epoch)
            case fx.Followed():
                truth.folded(label, fact.position, items)
                if self._sure_count is not None:
                    truth.copied(label, self._sure_count, items)
            case fx.ClaimRefused():
                self.pursued = False
            case fx.NotAcquired():
                self.pursued = False
                truth.folded(label, fact.position, items)
            case fx.Damaged():
                self._process.world.truth.damaged(label, fact.what)
        self._sure_count = None

    def _begin(self, epoch: int) -> None:
        journal = self._process.journal
        self.holds = True
        self.truth.acquired(
            self._process.label, epoch, journal.name, journal.next_slot, self.fold.items
        )

    def fenced(self) -> None:
        """Note that the journal was sealed, and that the partition is claimed again."""
        self.reclaiming = True
        self.epoch_ended()
        requests = self.requests
        # Nothing of the group is in the journal, so all requests can wait for the next one.
        requests.writes = requests.batch + requests.writes
        requests.reads = requests.riding + requests.asking + requests.reads
        requests.batch, requests.riding, requests.asking = [], [], []

    def reclaimed(self, epoch: int) -> None:
        """Note that the partition is held again."""
        self.reclaiming = False
        self._begin(epoch)

    def told_of_checkpoint(self, fact: fx.CheckpointFact) -> None:
        """Note how a checkpoint has ended."""
        if isinstance(fact, fx.Collected):
            return
        if isinstance(fact, fx.Checkpointed):
            self.snapshots.stands(fact.slot)
        self.snapshots.ended()


class JournalProcess:
    """A node from its start to its crash.

    Attributes:
        name: the name of the node, the same in all its lives.
        label: the name with the number of this life.
        parts: all partitions, by number.
        stalled_until: its road to the store is slow and lossy until then; set from outside.
        lags_until: what its journal asks is answered only then; set from outside.
        frozen_until: it handles no event until then; set from outside.
        up: whether it has not crashed; set from outside.
        damaged: whether its journal waits for something that is damaged.
        journals: all journals that it has seen in claims.
    """

    def __init__(self, world: JournalSurroundings, name: str, life: int, part_count: int) -> None:
        self.name = name
        self.label = f"{name}.{life}"
        self.world = world
        self.stalled_until = 0
        self.lags_until = 0
        self.frozen_until = 0
        self.up = True
        self.damaged = False
        self.journals: dict[str, None] = {}
        self._names = 0
        self.journal = Journal(name, self._make_name)
        self.parts = [Part(self, number) for number in range(part_count)]
        self._sweep: Sweep | None = None
        self._group: tuple[str, int, Group] | None = None
        """The group under way."""
        self._known: dict[tuple[str, int], Record] = {}

    def _make_name(self) -> str:
        self._names += 1
        return f"{self.label}.{self._names}"

    @property
    def under_way(self) -> dict[str, int]:
        """How much of each kind has begun and not ended."""
        found = Counter({"requests of the journal": self.journal.open_count})
        found["requests of a sweep"] = 0 if self._sweep is None else self._sweep.open_count
        for part in self.parts:
            found.update(part.under_way)
        return found

    @property
    def silent_until(self) -> int:
        """Until then it appears not to be up, or may not know that others believe so."""
        return max(self.stalled_until, self.lags_until, self.frozen_until)

    def awake(self, what: Callable[[], None]) -> None:
        """Call *what* as soon as the process handles events."""
        self.world.when_awake(self, what)

    def known(self, request: fx.Request) -> Record | None:
        """Return the record that *request* looks for, if one was found there before."""
        if not isinstance(request, fx.GetSlot):
            return None
        return self._known.get((request.journal, request.slot))

    @property
    def sweeping(self) -> bool:
        """Whether a sweep is under way."""
        return self._sweep is not None

    # Decisions of the driver.

    def trim(self) -> None:
        """Trim the journal."""
        if not self.journal.trimming:
            self.do(self.journal, self.journal.trim())

    def sweep(self, journal: str) -> None:
        """Trim *journal*, of whatever node; one at a time."""
        if self._sweep is None:
            self._sweep = Sweep(journal)
            self.do(self._sweep, self._sweep.begin())

    def serve(self) -> None:
        """Commit what waits in all partitions as one group; without any, ask for readers."""
        if self.journal.committing or not self.journal.held:
            return
        held = [part for part in self.parts if part.online]
        bodies = {part.number: body for part in held if (body := part.offer()) is not None}
        waiting = [part.requests for part in held if part.requests.reads]
        if bodies:
            # Reads that came before this commit are answered when it ends.
            for requests in waiting:
                requests.riding, requests.reads = requests.reads, []
            self.do(self.journal, self.journal.commit(bodies))
        elif waiting and not self.journal.reading:
            for requests in waiting:
                requests.asking, requests.reads = requests.reads, []
            self.do(self.journal, self.journal.read())

    # Answers of the store and effects of the state machines.

    def answered(self, line: Line, request: fx.Request, reply: fx.Reply) -> None:
        """Handle the store's *reply* to *request*."""
        if isinstance(reply, fx.Found):
            if isinstance(request, fx.GetSlot):
                self._known[request.journal, request.slot] = reply.value  # type: ignore[assignment]
            elif isinstance(request, fx.GetClaim):
                self.journals[reply.value.journal] = None  # type: ignore[attr-defined]
        if line.online:
            self.damaged = isinstance(reply, fx.Unreadable)
        self.do(line.asker, line.asker.answered(request.id, reply))

    def do(self, asker: Asker, effects: Iterable[fx.Effect]) -> None:
        """Carry out *effects* of *asker*."""
        line = Line(self, asker, self.label)
        for effect in effects:
            self.world.note(self.label, effect)
            if isinstance(effect, fx.Request):
                self._ask(line, effect)
            else:
                self._told(effect, asker)
        self.serve()

    def _ask(self, line: Line, request: fx.Request) -> None:
        body = None
        if isinstance(request, fx.PutCheckpoint):
            body = self.parts[request.partition].snapshots.body
        elif isinstance(request, fx.PutSlot) and isinstance(request.record, Group):
            self._group = request.journal, request.slot, request.record
        elif isinstance(request, fx.PutClaim) and isinstance(line.asker, Recovery):
            self.parts[request.partition].pursued = True
        self.world.ask(line, request, body)

    def _told(self, fact: fx.Fact, asker: Asker) -> None:
        match fact:
            case (
                fx.Acquired() | fx.NotAcquired() | fx.Followed() | fx.Damaged() | fx.ClaimRefused()
            ):
                self.parts[fact.partition].told_of_way(fact)
            case fx.Checkpointed() | fx.CheckpointFailed() | fx.Collected():
                self.parts[fact.partition].told_of_checkpoint(fact)
            case fx.Fenced():
                self._fenced(fact)
            case fx.Reclaimed():
                self.world.truth.tally["reclaims"] += 1
                self.parts[fact.partition].reclaimed(fact.epoch)
            case fx.Lost():
                self.parts[fact.partition].gone()
            case fx.Sealed():
                pass  # the truth has seen it
            case fx.Trimmed():
                if asker is self._sweep:
                    self._sweep = None
            case _:
                self._told_of_request(fact)

    def _told_of_request(self, fact: fx.CommitFact) -> None:
        match fact:
            case fx.Committed():
                self._committed()
            case fx.NotCommitted():
                self._not_committed()
            case fx.MayRead():
                for part in self.parts:
                    asking, part.requests.asking = part.requests.asking, []
                    part.answer(asking)
            case fx.ReadFailed():
                for part in self.parts:
                    asking, part.requests.asking = part.requests.asking, []
                    for _, done in asking:
                        done(REFUSED)

    def _committed(self) -> None:
        assert self._group is not None
        self._group = None
        for part in self.parts:
            requests = part.requests
            requests.end_batch(SERVED)
            riding, requests.riding = requests.riding, []
            part.answer(riding)
            if part.holds and not part.online:
                part.epoch_ended()  # the readers that are asking are answered in a moment
                requests.refuse_waiting()

    def _not_committed(self) -> None:
        self._refuse_group()
        for part in self.parts:
            requests = part.requests
            requests.reads = requests.riding + requests.reads  # those came first
            requests.riding = []
            requests.end_batch(REFUSED)

    def _refuse_group(self) -> None:
        """Note that the group under way, if there is one, was refused for good."""
        if self._group is not None:
            self.world.truth.refused(*self._group)
        self._group = None

    def _fenced(self, fact: fx.Fenced) -> None:
        self.world.truth.fenced(self.label, fact.name, self.journal.ends.get(fact.name))
        if fact.outcome_open:
            self._group = None
            for number in fact.lost:
                self.parts[number].gone()
            return
        self._refuse_group()
        for part in self.parts:
            if part.holds:
                part.fenced()
