"""What an owner keeps: the state, the requests of its clients, and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.state.journal.records import ORIGIN, Slot

if TYPE_CHECKING:
    from ringpop_sim.state.journal.promises import Op

SERVED: Final = "served"
REFUSED: Final = "refused"
UNMET: Final = "unmet"
Done = Callable[[str], None]
"""Called once with the result of a client's request: SERVED, REFUSED, or UNMET of a condition."""
Checkpoint = tuple["Slot | None", tuple["Op", ...]]
"""A checkpoint: the slot of the one that it builds on, if any, and the operations it adds."""


class AskedWrite(NamedTuple):
    """A write that a client asks for, and what is called with its result.

    Attributes:
        parity: its condition: the number of operations in the log, modulo 2; None if it has none.
        repeats: whether an earlier copy of it may be on its way.
    """

    op: Op
    done: Done
    parity: int | None = None
    repeats: bool = False


def refusal_of(op: Op) -> Op:
    """Return what stands in the log if *op* was refused for good."""
    return (op[0], -1 - op[1])


class Items:
    """A fold that keeps the operations in the order of the log, and their set."""

    def __init__(self) -> None:
        self.items: list[Op] = []
        self.seen: set[Op] = set()

    def reset(self) -> None:
        self.items, self.seen = [], set()

    def restore(self, checkpoint: object) -> None:
        assert isinstance(checkpoint, list)
        self.items, self.seen = list(checkpoint), set(checkpoint)

    def apply(self, body: object) -> None:
        """See `Fold`. It does not look for repetitions, because the owner must have found them."""
        assert isinstance(body, tuple)
        self.items.extend(body)
        self.seen.update(body)


@dataclass(slots=True)
class OwnerRequests:
    """The requests of clients to an owner, by progress.

    Attributes:
        writes, reads: the requests that wait.
        batch: the writes of the commit in progress.
        unmet: those of them whose condition does not hold.
        riding: reads that are answered when that commit ends.
        asking: reads that wait while the store is asked whether this node is still the owner.
    """

    writes: list[AskedWrite] = field(default_factory=list)
    reads: list[tuple[int, Done]] = field(default_factory=list)
    batch: list[AskedWrite] = field(default_factory=list)
    unmet: set[AskedWrite] = field(default_factory=set)
    riding: list[tuple[int, Done]] = field(default_factory=list)
    asking: list[tuple[int, Done]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of all requests."""
        waiting = len(self.writes) + len(self.reads)
        return waiting + len(self.batch) + len(self.riding) + len(self.asking)

    def new_ops(self, fold: Items) -> tuple[Op, ...]:
        """Take the waiting writes for the next commit; return those that *fold* has not, once.

        If the condition of one does not hold, that is its outcome if it repeats: see `Write`.
        """
        self.batch, self.writes = self.writes, []
        self.unmet = set()
        new: dict[Op, None] = {}
        for asked in self.batch:
            op, _, parity, repeats = asked
            refusal = refusal_of(op)
            if op in fold.seen or op in new:
                continue
            if refusal in fold.seen or refusal in new:
                self.unmet.add(asked)
            elif parity is None or (len(fold.items) + len(new)) % 2 == parity:
                new[op] = None
            else:
                self.unmet.add(asked)
                if repeats:
                    new[refusal] = None
        return tuple(new)

    def end_batch(self, said: str) -> None:
        """Tell the clients of the commit how it has ended."""
        batch, self.batch = self.batch, []
        for asked in batch:
            asked.done(UNMET if said == SERVED and asked in self.unmet else said)

    def refuse_waiting(self) -> None:
        """Refuse the requests that wait for the next commit or look: there will be none."""
        dones = [asked.done for asked in self.writes] + [done for _, done in self.reads]
        self.writes, self.reads = [], []
        for done in dones:
            done(REFUSED)

    def refuse(self) -> None:
        """Refuse all requests."""
        dones = [asked.done for asked in [*self.writes, *self.batch]]
        dones += [done for _, done in [*self.reads, *self.asking, *self.riding]]
        self.writes, self.batch = [], []
        self.reads, self.asking, self.riding = [], [], []
        for done in dones:
            done(REFUSED)


@dataclass(slots=True)
class OwnerSnapshots:
    """An owner's checkpoints: the latest one taken, and those in the store.

    Attributes:
        body: the checkpoint taken after *slot*, of *count* operations; it builds on *keeps*.
        putting: whether it is on its way to the store.
        chain: the last checkpoint in the store, after those that it builds on; together they have
            *chain_count* operations.
    """

    body: Checkpoint | None = None
    slot: Slot = ORIGIN
    count: int = 0
    keeps: tuple[Slot, ...] = ()
    putting: bool = False
    chain: tuple[Slot, ...] = ()
    chain_count: int = 0

    def take(self, items: list[Op], slot: Slot, *, whole: bool) -> None:
        """Take a checkpoint of *items* after *slot*, based on the last one unless *whole*."""
        if self.chain and not whole:
            self.body = (self.chain[-1], tuple(items[self.chain_count :]))
            self.keeps = self.chain
        else:
            self.body = (None, tuple(items))
            self.keeps = ()
        self.count, self.slot = len(items), slot

    def stands(self, slot: Slot) -> None:
        """Note that the checkpoint after *slot* is in the store; ignore one of a former epoch.

        No other may build on that: a former owner may delete what its own checkpoints build on.
        """
        if slot == self.slot:
            self.chain, self.chain_count = (*self.keeps, slot), self.count

    def ended(self) -> None:
        """Note that the checkpoint is no longer on its way."""
        self.body, self.putting = None, False

    def forget(self) -> None:
        """Forget the checkpoints of an epoch that is over; one on its way stays on its way."""
        self.chain, self.chain_count, self.slot = (), 0, ORIGIN
        if not self.putting:
            self.body = None
