"""One life of a node: the product's `SlotLog`, a fold, and a driver with opinions of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.slotlog.effects import (
    Acquired,
    Checkpointed,
    CheckpointFailed,
    Collected,
    Committed,
    Damaged,
    Delete,
    Effect,
    Fact,
    Fenced,
    Followed,
    GetCheckpoint,
    GetSlot,
    ListLog,
    MayRead,
    NotAcquired,
    NotCommitted,
    PutCheckpoint,
    PutMark,
    PutSlot,
    ReadFailed,
    Released,
    Reply,
    Unreadable,
)
from ringpop_py.slotlog.slotlog import SlotLog, Stage
from ringpop_py.slotlog.slots import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from ringpop_py.slotlog.effects import Request
    from ringpop_py.slotlog.slots import Claim, Slot
    from ringpop_sim.slotlog.shelf import Checkpoint
    from ringpop_sim.slotlog.truth import Op, Truth

    Done = Callable[[str], None]
    """Told once what became of a client's request: SERVED or REFUSED."""

    class ProcessSurroundings(Protocol):
        """What a process sees of its world."""

        truth: Truth

        def ask(self, process: LogProcess, request: Request, body: Checkpoint | None) -> None:
            """Have the store carry *request* out, some time."""

        def may_take(self, process: LogProcess, claim: Claim) -> bool:
            """Whether, in the view of *process*, the owner that made *claim* may be replaced."""

        def note(self, who: str, what: object) -> None:
            """For the trace."""


SERVED: Final = "served"
REFUSED: Final = "refused"
REQUESTS: Final = (PutSlot, GetSlot, ListLog, GetCheckpoint, PutCheckpoint, PutMark, Delete)


class Items:
    """A fold: the operations in the order of the log, and which there are."""

    def __init__(self) -> None:
        self.items: list[Op] = []
        self.seen: set[Op] = set()

    def reset(self) -> None:
        """See `Fold`."""
        self.items, self.seen = [], set()

    def restore(self, checkpoint: object) -> None:
        """See `Fold`."""
        assert isinstance(checkpoint, list)
        self.items, self.seen = list(checkpoint), set(checkpoint)

    def apply(self, body: object) -> None:
        """See `Fold`. Whether it is a repetition was the owner's to find out."""
        assert isinstance(body, tuple)
        self.items.extend(body)
        self.seen.update(body)


class LogProcess:
    """A node from its start to its crash.

    Attributes:
        name: the node's, and the same in all its lives.
        label: which of its lives.
        wants: it should own the partition, in its own view; set from outside.
        stalled_until: its road to the store is a bad one until then; set from outside.
        damaged: it cannot go on, for what it read last was damaged; and says so.
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
        self._queue: list[tuple[Op, Done]] = []
        self._batch: list[tuple[Op, Done]] = []
        self._waiting: list[tuple[int, Done]] = []
        self._asking: list[tuple[int, Done]] = []
        self._riding: list[tuple[int, Done]] = []
        self._release_to: str | None = None
        self._body: Checkpoint | None = None
        self._body_slot = ORIGIN
        self._putting = False
        self._epoch = 0
        self._follows_count = 0
        self._sure_count: int | None = None
        """How many operations were sure when the copy began that is under way."""
        self._commit_slot, self._commit_nonce = ORIGIN, ""
        self._keeps: tuple[Slot, ...] = ()
        self._chain: tuple[Slot, ...] = ()
        self._chain_count = 0
        self._body_count = 0

    def _nonce(self) -> str:
        self._nonces += 1
        return f"{self.label}.{self._nonces}"

    @property
    def online(self) -> bool:
        """Whether it calls itself the owner."""
        return self.log.stage is Stage.ONLINE

    def holds(self, claim: Claim) -> bool:
        """Whether it is the owner by *claim*, or may be about to be."""
        if self.log.stage in {Stage.ONLINE, Stage.RELEASING}:
            return self.log.holder == claim
        return self.log.stage is Stage.CLAIMING and claim.owner == self.name

    # What its driver decides.

    def acquire(self) -> None:
        """Try to become the owner."""
        self._sure_count = None
        self.do(self.log.acquire(lambda claim: self._world.may_take(self, claim)))

    def follow(self) -> None:
        """Read on; every other time as for a reader that never owns."""
        self._follows_count += 1
        copies = self._follows_count % 2
        self._sure_count = self._world.truth.sure_count if copies else None
        self.do(self.log.copy() if copies else self.log.follow())

    def release(self, to: str) -> None:
        """Stop serving, when nothing is under way."""
        self._release_to = to
        self._serve()

    def drop(self) -> None:
        """Give up whatever is under way. Clients may wait for what nobody will tell them."""
        self._sure_count = None
        self.do(self.log.drop())
        self._forget_epoch()

    def checkpoint(self, *, whole: bool, lag: bool) -> None:
        """Take a snapshot; with *lag* it is put later only (`put_checkpoint`)."""
        log = self.log
        if not self.online or log.checkpointing or self._body is not None:
            return  # one of an earlier epoch may be under way
        if self._chain and self._chain[-1] == log.position:
            return  # it is there already
        items = self.fold.items
        if self._chain and not whole:
            self._body = (self._chain[-1], tuple(items[self._chain_count :]))
            self._keeps = self._chain
        else:
            self._body = (None, tuple(items))
            self._keeps = ()
        self._body_count, self._body_slot = len(items), log.position
        if not lag:
            self.put_checkpoint()

    def put_checkpoint(self) -> None:
        """Put the snapshot that was taken."""
        if self.snapshot_waits:
            self._putting = True
            self.do(self.log.checkpoint(self._body_slot, self._keeps))

    @property
    def snapshot_waits(self) -> bool:
        """Whether a snapshot was taken and not put yet."""
        ready = self.online and not self.log.checkpointing
        return ready and self._body is not None and not self._putting

    # What clients ask.

    def write(self, op: Op, done: Done) -> None:
        """A client asks for *op*."""
        if not self._serves:
            done(REFUSED)
        elif op in self.fold.seen:
            done(SERVED)
        else:
            self._queue.append((op, done))
            self._serve()

    def read(self, sure_count: int, done: Done) -> None:
        """A client asks to read; *sure_count* operations were sure before."""
        if not self._serves:
            done(REFUSED)
        else:
            self._waiting.append((sure_count, done))
            self._serve()

    @property
    def _serves(self) -> bool:
        return self.online and self._release_to is None

    def _serve(self) -> None:
        if not self.online or self._batch:
            return
        if self._queue:
            self._commit()
        elif self._waiting and not self._asking:
            self._asking, self._waiting = self._waiting, []
            self.do(self.log.read())
        elif self._release_to is not None and not self._asking:
            self.do(self.log.release(self._release_to))

    def _commit(self) -> None:
        """One group: what was asked for twice is in it once."""
        batch, self._queue = self._queue, []
        body = tuple(dict.fromkeys(op for op, _ in batch if op not in self.fold.seen))
        if not body:
            for _, done in batch:
                done(SERVED)
            self._serve()
            return
        self._batch = batch
        # Whoever asked to read before this is told with it.
        self._riding, self._waiting = self._waiting, []
        assert self.log.holder is not None
        self._commit_slot, self._commit_nonce = self.log.next_slot, self.log.holder.nonce
        self.do(self.log.commit(body))

    # What its log says.

    def answered(self, request_id: int, reply: Reply) -> None:
        """The store answered."""
        self.damaged = isinstance(reply, Unreadable)
        self.do(self.log.answered(request_id, reply))

    def do(self, effects: Iterable[Effect]) -> None:
        """Carry *effects* out."""
        for effect in effects:
            self._world.note(self.label, effect)
            if isinstance(effect, REQUESTS):
                self._world.ask(self, effect, self._body)
            else:
                self._told(effect)
        self._serve()

    def _told(self, fact: Fact) -> None:
        match fact:
            case Acquired(epoch):
                self._epoch = epoch
                holder = self.log.holder
                nonce = holder.nonce if holder else ""
                self._world.truth.acquired(self.label, epoch, nonce, self.fold.items)
                self._forget_epoch()
            case Followed(position=position):
                self._world.truth.folded(self.label, position, self.fold.items)
                if self._sure_count is not None:
                    self._world.truth.copied(self.label, self._sure_count, self.fold.items)
                self._sure_count = None
            case NotAcquired(position=position):
                self._world.truth.folded(self.label, position, self.fold.items)
            case Damaged(what):
                self._world.truth.damaged(self.label, what)
                self.damaged = True
                self._forget_epoch()
            case Fenced():
                self._world.truth.fenced(self.label, self._epoch)
                if self._batch and not fact.commit_open:
                    self._world.truth.refused(self._commit_slot, self._commit_nonce)
                self._forget_epoch()
            case Released():
                self._forget_epoch()
            case Checkpointed() | CheckpointFailed() | Collected():
                self._told_of_checkpoint(fact)
            case _:
                self._told_of_request(fact)

    def _told_of_request(self, fact: Committed | NotCommitted | MayRead | ReadFailed) -> None:
        match fact:
            case Committed():
                self._committed()
            case NotCommitted():
                self._not_committed()
            case MayRead():
                self._answer(self._asking)
                self._asking = []
            case ReadFailed():
                self._refuse(self._asking)
                self._asking = []

    def _told_of_checkpoint(self, fact: Checkpointed | CheckpointFailed | Collected) -> None:
        if isinstance(fact, Collected):
            return
        if isinstance(fact, Checkpointed) and self.online and fact.slot.epoch == self.log.epoch:
            self._chain = (*self._keeps, fact.slot)
            self._chain_count = self._body_count
        self._body, self._putting = None, False

    def _committed(self) -> None:
        batch, self._batch = self._batch, []
        for _, done in batch:
            done(SERVED)
        self._answer(self._riding)
        self._riding = []

    def _not_committed(self) -> None:
        batch, self._batch = self._batch, []
        self._waiting = self._riding + self._waiting
        self._riding = []
        for _, done in batch:
            done(REFUSED)

    def _answer(self, readers: list[tuple[int, Done]]) -> None:
        for sure_count, done in readers:
            self._world.truth.answered(self.label, sure_count, self.fold.items)
            done(SERVED)

    def _refuse(self, requests: Iterable[tuple[object, Done]]) -> None:
        for _, done in requests:
            done(REFUSED)

    def _forget_epoch(self) -> None:
        requests = [*self._queue, *self._batch, *self._waiting, *self._asking, *self._riding]
        self._queue, self._batch = [], []
        self._waiting, self._asking, self._riding = [], [], []
        self._release_to = None
        self._chain, self._chain_count = (), 0
        if not self._putting:
            self._body = None
        self._refuse(requests)
