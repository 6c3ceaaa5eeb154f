"""One life of a node: the product's `SlotLog`, a fold, and a driver that decides at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.slotlog import effects as fx
from ringpop_py.slotlog.slotlog import SlotLog, Stage
from ringpop_py.slotlog.slots import ORIGIN
from ringpop_sim.schedules.owners import REFUSED, SERVED, Items, OwnerRequests, OwnerSnapshots

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from ringpop_py.slotlog.slots import Claim
    from ringpop_sim.schedules.owners import Checkpoint, Done
    from ringpop_sim.schedules.truth import Op
    from ringpop_sim.slotlog.truth import Truth

    class ProcessSurroundings(Protocol):
        """What a process needs from its world."""

        truth: Truth

        def ask(self, process: LogProcess, request: fx.Request, body: Checkpoint | None) -> None:
            """Send *request* to the store, which carries it out at some time."""

        def may_take(self, process: LogProcess, claim: Claim) -> bool:
            """Return whether *process* believes that the owner with *claim* may be replaced."""

        def note(self, who: str, what: object) -> None:
            """Add *what* to the trace."""


class LogProcess:
    """A node from its start to its crash.

    Attributes:
        name: the name of the node, the same in all its lives.
        label: the name with the number of this life.
        wants: whether it believes that it should own the partition; set from outside.
        stalled_until: its road to the store is slow and lossy until then; set from outside.
        damaged: whether it stopped, and said so, because the last thing it read was damaged.
    """

    def __init__(self, world: ProcessSurroundings, name: str, life: int) -> None:
        self.name = name
        self.label = f"{name}.{life}"
        self.wants = False
        self.stalled_until = 0
        self.damaged = False
        self.fold = Items()
        self._nonces = 0
        self.log = SlotLog(name, self.fold, self._nonce)
        self._world = world
        self._requests = OwnerRequests()
        self._snapshots = OwnerSnapshots()
        self._put = (ORIGIN, "")
        """The slot and the nonce of the commit in progress."""
        self._release_to: str | None = None
        self._epoch = 0
        self._follows_count = 0
        self._sure_count: int | None = None
        """How many operations were sure when the copy in progress began."""

    def _nonce(self) -> str:
        self._nonces += 1
        return f"{self.label}.{self._nonces}"

    @property
    def online(self) -> bool:
        """Whether the process believes that it is the owner."""
        return self.log.stage is Stage.ONLINE

    def holds(self, claim: Claim) -> bool:
        """Return whether the process is the owner by *claim*, or may be about to become it."""
        if self.log.stage in {Stage.ONLINE, Stage.RELEASING}:
            return self.log.holder == claim
        return self.log.stage is Stage.CLAIMING and claim.owner == self.name

    # Decisions of the driver.

    def acquire(self) -> None:
        """Try to become the owner."""
        self._sure_count = None
        self.do(self.log.acquire(lambda claim, _: self._world.may_take(self, claim)))

    def follow(self) -> None:
        """Continue to read; every other time like a reader that never owns."""
        self._follows_count += 1
        copies = self._follows_count % 2
        self._sure_count = self._world.truth.sure_count if copies else None
        self.do(self.log.follow(miss_nothing=bool(copies)))

    def release(self, to: str) -> None:
        """Stop serving once no request is in progress."""
        self._release_to = to
        self._serve()

    def drop(self) -> None:
        """Abandon all that is in progress. Clients may then wait for answers that never come."""
        self._sure_count = None
        self.do(self.log.drop())
        self._forget_epoch()

    def checkpoint(self, *, whole: bool, lag: bool) -> None:
        """Take a snapshot; with *lag*, put it only later (`put_checkpoint`)."""
        log, snapshots = self.log, self._snapshots
        if not self.online or log.checkpointing or snapshots.body is not None:
            return  # a snapshot of an earlier epoch may be on its way
        if snapshots.chain and snapshots.chain[-1] == log.position:
            return  # this checkpoint is in the store already
        snapshots.take(self.fold.items, log.position, whole=whole)
        if not lag:
            self.put_checkpoint()

    def put_checkpoint(self) -> None:
        """Put the snapshot that was taken."""
        if self.snapshot_waits:
            snapshots = self._snapshots
            snapshots.putting = True
            self.do(self.log.checkpoint(snapshots.slot, snapshots.keeps))

    @property
    def snapshot_waits(self) -> bool:
        """Whether a snapshot was taken and is not put yet."""
        ready = self.online and not self.log.checkpointing
        return ready and self._snapshots.body is not None and not self._snapshots.putting

    # Requests of clients.

    def write(self, op: Op, done: Done) -> None:
        """Accept the write *op* of a client."""
        if not self._serves:
            done(REFUSED)
        # An earlier attempt of the client has landed, at this owner or at one before it.
        elif op in self.fold.seen:
            done(SERVED)
        else:
            self._requests.writes.append((op, done))
            self._serve()

    def read(self, sure_count: int, done: Done) -> None:
        """Accept a read; *sure_count* operations were sure before it began."""
        if not self._serves:
            done(REFUSED)
        else:
            self._requests.reads.append((sure_count, done))
            self._serve()

    @property
    def _serves(self) -> bool:
        return self.online and self._release_to is None

    def _serve(self) -> None:
        requests = self._requests
        if not self.online or requests.batch:
            return
        if requests.writes:
            self._commit()
        elif requests.reads and not requests.asking:
            requests.asking, requests.reads = requests.reads, []
            self.do(self.log.read())
        elif self._release_to is not None and not requests.asking:
            self.do(self.log.release(self._release_to))

    def _commit(self) -> None:
        """Commit the waiting writes as one group, in which a repeated write is only once."""
        requests = self._requests
        body = requests.new_ops(self.fold)
        if not body:
            requests.end_batch(SERVED)
            self._serve()
            return
        # Reads that came before this commit are answered when it ends.
        requests.riding, requests.reads = requests.reads, []
        assert self.log.holder is not None
        self._put = self.log.next_slot, self.log.holder.nonce
        self.do(self.log.commit(body))

    # Answers of the store and effects of the log.

    def answered(self, request: fx.Request, reply: fx.Reply) -> None:
        """Handle the store's *reply* to *request*."""
        self.damaged = isinstance(reply, fx.Unreadable)
        self.do(self.log.answered(request.id, reply))

    def do(self, effects: Iterable[fx.Effect]) -> None:
        """Carry out *effects*."""
        for effect in effects:
            self._world.note(self.label, effect)
            if isinstance(effect, fx.Request):
                self._world.ask(self, effect, self._snapshots.body)
            else:
                self._told(effect)
        self._serve()

    def _told(self, fact: fx.Fact) -> None:
        match fact:
            case fx.Acquired(epoch):
                self._epoch = epoch
                holder = self.log.holder
                nonce = holder.nonce if holder else ""
                self._world.truth.acquired(self.label, epoch, nonce, self.fold.items)
                self._forget_epoch()
            case fx.Followed(position=position):
                self._world.truth.folded(self.label, position, self.fold.items)
                if self._sure_count is not None:
                    self._world.truth.copied(self.label, self._sure_count, self.fold.items)
                self._sure_count = None
            case fx.NotAcquired(position=position):
                self._world.truth.folded(self.label, position, self.fold.items)
            case fx.Damaged(what):
                self._world.truth.damaged(self.label, what)
                self.damaged = True
                self._forget_epoch()
            case fx.Fenced():
                self._world.truth.fenced(self.label, self._epoch)
                # If the outcome is open, the commit may have been in the log, folded and deleted.
                if self._requests.batch and not fact.commit_open:
                    self._world.truth.refused(*self._put)
                self._forget_epoch()
            case fx.Released():
                self._forget_epoch()
            case fx.Checkpointed() | fx.CheckpointFailed() | fx.Collected():
                self._told_of_checkpoint(fact)
            case _:
                self._told_of_request(fact)

    def _told_of_request(self, fact: fx.OwnerFact) -> None:
        match fact:
            case fx.Committed():
                self._committed()
            case fx.NotCommitted():
                self._not_committed()
            case fx.MayRead():
                self._answer(self._requests.asking)
                self._requests.asking = []
            case fx.ReadFailed():
                for _, done in self._requests.asking:
                    done(REFUSED)
                self._requests.asking = []

    def _told_of_checkpoint(self, fact: fx.CheckpointFact) -> None:
        if isinstance(fact, fx.Collected):
            return
        if isinstance(fact, fx.Checkpointed):
            self._snapshots.stands(fact.slot)
        self._snapshots.ended()

    def _committed(self) -> None:
        requests = self._requests
        requests.end_batch(SERVED)
        self._answer(requests.riding)
        requests.riding = []

    def _not_committed(self) -> None:
        requests = self._requests
        requests.reads = requests.riding + requests.reads  # those came first
        requests.riding = []
        requests.end_batch(REFUSED)

    def _answer(self, readers: list[tuple[int, Done]]) -> None:
        for sure_count, done in readers:
            self._world.truth.answered(self.label, sure_count, self.fold.items)
            done(SERVED)

    def _forget_epoch(self) -> None:
        self._release_to = None
        self._snapshots.forget()
        self._requests.refuse()
