"""What a node does with the partitions of one durable keyspace (pure).

```
PENDING ─► QUEUED ─┬─► FOLLOWING ─► ASKING ─┬─► ACQUIRING ─► CHECKING ─► OWNED ─► RELEASING ─► LOST
   ▲               └────────────────────────┘       │            │       ▲   │        │
   └──────────────────── a try has failed ──────────┘            ▼       │   ▼        ▼
                                                        a fence: RECLAIMING ─┴─► UNWANTED ─► LOST
```

Each partition that is wanted or here has a record (`LocalPartition`) with one state; `record.py`
has the chart of the states, with what leads from each to the next.

**How a partition moves.** The member that should own it does the work (`arrivals.py`). While its
owner is there, that is a hand-over: follow the log while the owner serves, ask the owner to release
the partition (`releases.py`, at the owner), read the rest, claim. If the owner is gone, or there
never was one, it is a take-over: read, seal the owner's journal, claim. In the end the log decides
which member is the owner. Views that differ cost time here, and nothing else.

**When the journal of this node is sealed** (a fence), all that it has is claimed again in the next
journal, with the states in memory, and jobs wait. What another member was faster to claim is lost.

**What is given up** while the journal holds it is released to nobody in particular, before it can
come here again.

Three other machines do the work: a `Recovery` reads and claims a partition, the one `Journal`
writes for all that are held, and the `Desk` has the jobs of callers. Each method is an event; it
returns what there is to do, or leaves that until `take`. The driver carries it out, in order. The
steps of the desk go another way, because nothing else happens so often: `desk.begin` returns a
request, `step_answered` the next one, until the step ends. Requests with an `attempt` wait before
they are made (`pause_us`). At `next_deadline` the driver calls `advance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from ringpop_py.base.errors import (
    KeyspaceError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import is_failure
from ringpop_py.state.partition.arrivals import Arrivals
from ringpop_py.state.partition.chart import COMING, HERE, Presence
from ringpop_py.state.partition.expiry import Expiry
from ringpop_py.state.partition.parts import Parts
from ringpop_py.state.partition.record import (
    Came,
    CameBack,
    JournalLost,
    LocalPartition,
    Perform,
    TakenOver,
)
from ringpop_py.state.partition.releases import Releases
from ringpop_py.state.placement.duties import Changed
from ringpop_py.state.placement.keys import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringpop_py.base.config.settings import StateConfig
    from ringpop_py.state.journal.records import Slot
    from ringpop_py.state.placement.assignment import Assignments
    from ringpop_py.state.placement.duties import ReleaseSaid
    from ringpop_py.state.placement.holdings import Sight
    from ringpop_py.state.placement.table import TableRow

_OWNED: Final = Presence.OWNED  # looked up once: each request asks

P = TypeVar("P", bound=LocalPartition)


class Machine(Parts[P]):
    """See the module.

    Args:
        make_name: returns a text that no process anywhere has used before.
        make_part: makes a partition of that number.

    Attributes:
        arrivals, releases: how partitions come, and go.
        expiry: when to look which of their keys are due.
        refusal: why the store has refused the last group or claim, unless for lack of room.
        full: why the store has refused the last group or claim, if for lack of room.
        failed_parts: those whose state could not apply what the present step has committed.
    """

    def __init__(
        self,
        keyspace: str,
        generation: int,
        assignments: Assignments,
        sight: Sight,
        config: StateConfig,
        make_name: Callable[[], str],
        make_part: Callable[[int], P],
    ) -> None:
        super().__init__(keyspace, generation, assignments, sight, config, make_name)
        self.refusal: StoreRefused | None = None
        self.full: StoreFull | None = None
        self.failed_parts: list[LocalPartition] = []
        self.expiry: Expiry[P] = Expiry(
            lambda: [self.parts[number] for number in self.serving], self.desk.expire
        )
        self.releases = Releases(self, config.handoffs_max)
        self.arrivals = Arrivals(self, config, make_part, self._came, self.releases.give_up)

    def __repr__(self) -> str:
        return f"<Machine {self.table.keyspace!r} at {self.name}: {list(self.parts.values())}>"

    # What is known.

    @property
    def under_way(self) -> dict[str, int]:
        """See `Holdings.under_way`."""
        at_rest = len(self.serving) - sum(p.release is not None for p in self.parts.values())
        return {
            "partitions that come or go": len(self.parts) - at_rest,
            "releases": self.releases.count,
            **{way.value: count for way, count in self.taken.items()},
        }

    @property
    def next_deadline(self) -> int:
        """When to call `advance`."""
        at, repeat_at = min(super().next_deadline, self.expiry.at), self.releases.repeat_at
        return at if repeat_at is None else min(at, repeat_at)

    # What happens.

    def take(self, now: int) -> list[Any]:
        """Return what there is to do; the driver has it now."""
        while self.ended:
            self.ended.pop(0)(now)
        return self._out(now)

    def advance(self, now: int) -> list[Any]:
        """Do what is due at *now*."""
        self.releases.advance(now)
        if now >= self.expiry.at:
            self.expiry.look(now)
        return super().advance(now)

    def members_changed(self, now: int) -> list[Any]:
        """Decide anew which member should own what: the members or the assignment changed."""
        self.look_soon(now)
        for part in tuple(self.arriving.values()):  # an owner may be gone
            self.arrivals.news(part, now)
        return self.advance(now)

    @property
    def _acts(self) -> bool:
        return not self.closing

    def _follow_desire(self, number: int, owner: str, now: int) -> None:
        # What is given up here has to be released first.
        if owner == self.name and number not in self.parts:
            self.arrivals.want(number, now)

    def _learnt(self, row: TableRow, now: int) -> None:
        self.unclaimed.discard(row.partition)
        part = self.parts.get(row.partition)
        if part is None:
            return
        if part.presence in HERE and row.epoch > part.claimed_epoch > 0:
            # Another node has claimed it. The next commit here would be fenced.
            self.stop_serving(part)
            self.releases.give_up(part)
        else:
            self.arrivals.news(part, now)

    def _due(self, number: int, now: int) -> None:
        part = self.parts.get(number)
        if part is not None:
            self.arrivals.due(part, now)

    def _fill(self, now: int) -> None:
        self.arrivals.fill(now)

    # Events of a partition that comes.

    def asked(self, number: int, said: ReleaseSaid, now: int) -> list[Any]:
        """Go on after the owner of a partition was asked to release it."""
        self.arrivals.asked(self.parts[number], said, now)
        return self._out(now)

    def looked(self, part: LocalPartition, now: int, *, dropped: bool | None) -> list[Any]:
        """Go on after a look whether the keyspace was dropped; None if the store did not answer."""
        self.arrivals.looked(part, now, dropped=dropped)
        return self._out(now)

    def answered(
        self, asked: Perform, reply: fx.Reply, now: int, error: KeyspaceError | None = None
    ) -> list[Any]:
        """Go on after the store's *reply*; *error* is what it has raised, if that is known."""
        request, part = asked
        if isinstance(request, fx.PutClaim):
            if reply is fx.StoreAnswer.WON:
                self.refusal = self.full = None
            else:
                self._note_refusal(error)
        if part is not None:
            self.arrivals.answered(asked, reply, now, error)
            return self._out(now)
        (effect,) = self.journal.answered(request.id, reply)
        assert isinstance(request, fx.PutClaim | fx.GetClaim)
        again = self.parts.get(request.partition)
        if again is None:  # all was stopped meanwhile
            return []
        self.tasks.append(Perform(effect, None) if isinstance(effect, fx.Request) else effect)
        if isinstance(effect, fx.Lost):
            self._lost(again, effect.owner, now)
        elif isinstance(effect, fx.Reclaimed):
            self._reclaimed(again, effect.epoch, now)
        return self._out(now)

    def _came(self, part: LocalPartition) -> None:
        """Serve a partition that the journal holds."""
        epoch = part.epoch
        if self.table[part.number].epoch > epoch:
            # While we asked, another member has claimed the next epoch, and its row has come.
            self.releases.give_up(part)
            return
        self._serve(part, epoch)
        self.tasks.append(Came(part, epoch))
        self._announce(part)

    def _serve(self, part: LocalPartition, epoch: int) -> None:
        self.to(part, Presence.OWNED)
        part.claimed_epoch = epoch
        self.unclaimed.discard(part.number)
        if epoch > 1 and part.state.changes is not None:
            part.state.changes.expect()  # perhaps somebody watches it where it was
        if part.state.due:
            self.ended.append(self.expiry.look)

    def _announce(self, part: LocalPartition) -> None:
        row = self.table[part.number]
        if part.claimed_epoch > row.epoch:
            self.put(row.claimed(self.name, part.claimed_epoch))
        self.tasks.append(Changed())
        if self.closing and part.release is None:  # `leave` released what was here
            self.releases.begin(part, NOBODY)

    # One step of the desk after the other.

    def step_answered(
        self, request: fx.Request, reply: fx.Reply, error: KeyspaceError | None = None
    ) -> fx.Request | None:
        """Go on after the store's *reply*; return the next request, or None at the step's end.

        Args:
            error: what the store has raised, if its error is known.
        """
        effects = self.journal.answered(request.id, reply)
        fact, *claims = effects
        if isinstance(fact, fx.Request):
            assert not claims, "a step has one request at a time"
            failed = is_failure(reply)
            silent = error or StoreUnavailable("the store does not answer")
            self.desk.trouble = silent if failed else None
            return fact
        self.desk.trouble = why = None
        if isinstance(fact, fx.Committed):
            self.refusal = self.full = None
            if self.desk.expiring:
                if self.expiry.is_sooner(self.desk.expiring):
                    self.ended.append(self.expiry.look)
                self.desk.expiring.clear()
        elif isinstance(fact, fx.Fenced):
            self._fenced(fact, claims)
        elif isinstance(fact, fx.NotCommitted):
            why = self._note_refusal(error)
        self.desk.ended(fact, why)
        if self.failed_parts:
            self.ended.append(self._give_up_failed)
        return None

    def stop(self) -> None:
        """Lose all partitions: the node ends, or has a bug. The step's outcome is unknown."""
        for part in tuple(self.parts.values()):
            if part.presence not in COMING:
                if part.number in self.holding:
                    self.stop_serving(part)
                self.gone(part)
        self.desk.stop()

    def _note_refusal(self, error: KeyspaceError | None) -> StoreRefused | None:
        """Note that the store refuses what this node writes, if *error* says so; return why."""
        if not isinstance(error, StoreRefused):
            return None
        why = type(error)(str(error))
        if isinstance(why, StoreFull):  # it is full for all members
            self.full = why
        else:
            self.refusal = why
        return why

    # Fences.

    def _fenced(self, fact: fx.Fenced, claims: Iterable[fx.Effect]) -> None:
        again_count = 0
        requests: list[Perform] = []
        for claim in claims:
            assert isinstance(claim, fx.PutClaim)
            part = self.parts[claim.partition]
            if part.presence is not Presence.UNWANTED:
                self.to(part, Presence.RECLAIMING)
                again_count += 1
            requests.append(Perform(claim, None))
        self.tasks += [JournalLost(fact, again_count), *requests, Changed()]

        def go_on(now: int) -> None:
            self.arrivals.wait_longer(now)
            for number in fact.lost:
                self._lost(self.parts[number], fact.by, now)

        self.ended.append(go_on)

    def _reclaimed(self, part: LocalPartition, epoch: int, now: int) -> None:
        if part.presence is Presence.UNWANTED:  # given up meanwhile
            self.releases.release_unwanted(part)
            return
        if part.coming is not None:
            self.arrivals.reclaimed(part, now)
            return
        self._serve(part, epoch)
        self.desk.claimed_again(part)
        if part.release is not None:  # it goes on
            self.to(part, Presence.RELEASING)
        self.tasks.append(CameBack(part, epoch))
        self._announce(part)
        self.look_soon(now)  # its owner may be another by now

    def _lost(self, part: LocalPartition, to: str, now: int) -> None:
        """Forget a partition that the journal has lost, to the node *to* if that is known."""
        self._tell_lost(part, to, now)
        self.gone(part)
        self.look_soon(now)

    def _tell_lost(self, part: LocalPartition, to: str, now: int) -> None:
        if part.number in self.holding:
            self.tasks.append(TakenOver(part.number, to))
            if not to:
                self.arrivals.wait_longer(now)  # perhaps the disk here is full
            self.mark_released(part, to)
            self.stop_serving(part)

    def give_up(self, part: LocalPartition, now: int) -> list[Any]:
        """Give *part* up, whose state cannot go on here."""
        self.failed_parts.append(part)
        self._give_up_failed(now)
        return self._out(now)

    def _give_up_failed(self, now: int) -> None:
        """Give up partitions whose state could not apply what is in the journal: a full disk."""
        failed = self.failed_parts[:]
        self.failed_parts.clear()
        for part in failed:
            if part.presence in HERE:
                self._tell_lost(part, "", now)
                self.releases.give_up(part)

    # Ends.

    def checkpointed(self, number: int, slot: Slot) -> None:
        """Note a checkpoint of a partition of this node, for readers of the table."""
        # Not spread: a row with a new checkpoint only is not news (`TableRow.checkpoint`).
        self.table.put(self.table[number].checkpointed(slot))

    def leave(self, now: int) -> list[Any]:
        """Release all partitions here, so that others need not detect that this node is gone."""
        self.closing = True
        for number in sorted(self.serving):
            part = self.parts[number]
            if part.release is None:
                self.releases.begin(part, NOBODY)
        return self._out(now)

    def drop(self, now: int) -> list[Any]:
        """As `leave`, because the keyspace was dropped: requests that wait fail."""
        self.dropped = True
        self.tasks.append(Changed())  # before the releases, which take long if the store is slow
        return self.leave(now)

    def failed(self, why: str, now: int) -> list[Any]:
        """Serve nothing from now on; partitions that are here may still be released."""
        self.closing = True
        return super().failed(why, now)

    def forget(self, now: int) -> list[Any]:
        """Give up all partitions that are here."""
        for number in sorted(self.holding):
            part = self.parts[number]
            self.stop_serving(part)
            self.releases.give_up(part)
        return self._out(now)
