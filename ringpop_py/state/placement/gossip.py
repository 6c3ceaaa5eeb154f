"""How the tables of keyspaces become the same on all nodes, as a state machine.

A change is pushed to other members immediately. A push that is lost is made up for by comparison:
the pings of membership carry one digest of all that a node knows of keyspaces. If a node is pinged
with a digest other than its own, it compares with the pinger. The two exchange digests of each
keyspace, then fingerprints of the tables that differ, and then the rows that differ.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ringpop_py.base.errors import BodyError, ConfigError
from ringpop_py.base.values.declared import Checksum, Declared, Natural, Text, decode, encode
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.placement.keys import hash_text
from ringpop_py.state.placement.table import Table, TableRow, from_rows, to_rows

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

PERIOD_US: Final = 1_000_000
"""The microseconds from one comparison to the next, however many peers differ from this node."""
GATHER_US: Final = 2_000  # rows of one handoff or one look change together, and share a push
PUSHED_TO_MAX: Final = 32
"""The most members to which a change is pushed; the others find it by comparison."""
SETTLED_MAX: Final = 1_000
"""The most peers whose remaining difference is remembered. At the limit all are forgotten, and are
compared with once more."""
ASKED_COUNT: Final = 3
CALL_S: Final = 2.0
"""The seconds after which a call without an answer has failed."""
KEYSPACES_MAX: Final = 1_000
HASH_MAX: Final = (1 << 64) - 1

_Generation = tuple[str, int]
"""A keyspace's name and generation: rows of one generation say nothing about a later one."""


class _Sheet(Declared, frozen=True):
    """What a node knows of one keyspace, and some rows of its table, as `to_rows` makes them.

    Attributes:
        assignment: see `Known`.
        revision: that of *definition*.
    """

    definition: Any
    generation: Natural
    dropped: bool
    rows: list[Any]
    assignment: Natural
    revision: Natural = 0


class _Offer(Declared, frozen=True):
    """Summarises what a node knows of one keyspace: its `Known.order`, and its table's digest.

    Attributes:
        fingerprints: those of the table, if the other node has shown a different digest.
    """

    name: Text
    durable: bool
    generation: Natural
    dropped: bool
    digest: Checksum = 0
    fingerprints: tuple[Checksum, ...] | None = None
    revision: Natural = 0

    @property
    def order(self) -> tuple[bool, int, bool, int]:
        """See `Known.order`."""
        return self.durable, self.generation, self.dropped, self.revision


class _Told(Declared, frozen=True):
    sheets: tuple[_Sheet, ...]
    offers: tuple[_Offer, ...]
    store_id: Text


class _ToldBack(Declared, frozen=True):
    """The answer to a `_Told`.

    Attributes:
        wants: the keyspaces whose sheets the answering node wants.
        fingerprints: those of the tables whose digests differ, by keyspace.
    """

    sheets: tuple[_Sheet, ...]
    wants: tuple[Text, ...]
    fingerprints: tuple[tuple[Text, tuple[Checksum, ...]], ...]
    store_id: Text


@dataclass(frozen=True, slots=True)
class Known:
    """What a node knows of one keyspace."""

    definition: Definition
    generation: int
    dropped: bool
    table: Table | None
    assignment: int = 0
    """The version of the newest recorded assignment."""

    @property
    def order(self) -> tuple[bool, int, bool, int]:
        """A sort key; see `CatalogEntry.order`."""
        of = self.definition
        return of.mode == "durable", self.generation, self.dropped, of.revision

    @property
    def digest(self) -> int:
        """64 bits of all that other nodes should know, too; equal knowledge has equal digests."""
        rows = self.table.digest if self.table is not None else 0
        # Without the assignment: its version is only a hint, and nodes read the store anyway.
        return hash_text(f"{self.definition.name} {self.order} {rows}")

    def offer(self, *, marked: bool = False) -> _Offer:
        """Return the summary for others; *marked* adds the fingerprints of the table."""
        durable, generation, dropped, revision = self.order
        digest = self.table.digest if self.table is not None else 0
        marks = tuple(self.table.fingerprints()) if marked and self.table is not None else None
        name = self.definition.name
        return _Offer(name, durable, generation, dropped, digest, marks, revision)

    def sheet(self, rows: Iterable[TableRow]) -> _Sheet:
        """Return the sheet for others, with these *rows* of the table."""
        of = self.definition
        about = self.generation, self.dropped, to_rows(rows), self.assignment
        return _Sheet(of.as_record(), *about, of.revision)


class GossipTarget(Protocol):
    """The keyspaces that gossip reads and changes."""

    def known(self) -> dict[str, Known]:
        """Return all known keyspaces by name, dropped ones, too."""

    def learn_keyspace(self, definition: Definition, generation: int, *, dropped: bool) -> None:
        """Learn that another node knows this keyspace; it may be known here already."""

    def learn_rows(self, name: str, rows: list[TableRow]) -> None:
        """Learn *rows* of the keyspace *name*, which another node knows."""

    def hint_assignment(self, name: str, version: int) -> None:
        """Learn that another node knows an assignment of that *version* of the keyspace *name*."""


class GossipAsk(NamedTuple):
    """Duty: call the member *to* with *body*, and pass its answer to `TableGossip.done`."""

    token: int
    to: str
    body: bytes


class _Step(IntEnum):
    """What was sent to a peer in a call that is under way."""

    DIGESTS = 1
    FINGERPRINTS = 2
    ROWS = 3
    """Nothing follows them, neither in a comparison nor in a push."""


class TableGossip:
    """Pushes rows to other members, and compares tables with theirs.

    Calls of `advance`, `ask` and `done` return what to ask of peers. The driver calls `done` once
    for each of these: if that returns another `GossipAsk`, the comparison goes on, otherwise it is
    over. Instants are microseconds of a clock that never goes backwards.

    Args:
        others: returns the names of the other members that can be called, sorted.
        store_id: the id of this node's store. The rows of a durable keyspace are about logs in the
            sender's store, so only senders with the same store are believed. Empty for a node
            without a store: it owns no durable partition, and may believe any sender.
        every_us: the microseconds from one comparison with a random member to the next, if pings
            carry no digest, as those of the ``ringpop`` dialect; None if they carry one.
    """

    def __init__(
        self,
        target: GossipTarget,
        others: Callable[[], Sequence[str]],
        rng: random.Random,
        *,
        store_id: str = "",
        every_us: int | None = None,
    ) -> None:
        self._target = target
        self._others = others
        self._rng = rng
        self._store_id = store_id
        self._every_us = every_us
        self._asked: dict[int, tuple[str, _Step]] = {}
        self._asked_count = 0
        self._news: dict[_Generation, dict[int, TableRow]] = {}
        self._push_at = 0
        self._differing: tuple[str, int] | None = None
        self._settled: dict[str, tuple[int, int]] = {}
        # The one comparison that can be under way: its call, and the two digests.
        self._turn = 0
        self._turn_at = 0
        self._turn_digests: tuple[int, int] | None = None

    def __repr__(self) -> str:
        calls = ", ".join(f"{to} {step.name.lower()}" for to, step in self._asked.values())
        news = sum(map(len, self._news.values()))
        return f"<gossip {self.digest:016x}, {news} rows to push, calls: {calls or 'none'}>"

    @property
    def digest(self) -> int:
        """A sum over the digests of all keyspaces; 0 while none is known."""
        return sum(known.digest for known in self._target.known().values()) & HASH_MAX

    @property
    def calls_count(self) -> int:
        """How many calls have no answer yet."""
        return len(self._asked)

    # When to call whom.

    def start(self, now: int) -> None:
        """Begin. Without digests in pings, the first comparison is `every_us` after *now*."""
        self._turn_at = now + (self._every_us or 0)

    def spread(self, name: str, generation: int, rows: Iterable[TableRow], now: int) -> None:
        """Push *rows* to other members soon, together with other changes of this moment.

        The push also has the definition of the keyspace, even if there are no rows.
        """
        if not self._news:
            self._push_at = now + GATHER_US
        self._news.setdefault((name, generation), {}).update({row.partition: row for row in rows})

    def differs(self, other: str, digest: int) -> None:
        """Compare soon with *other*, which has shown that *digest*."""
        if not self._is_settled(other, digest):
            self._differing = other, digest  # a peer displaced by it shows its own again soon

    @property
    def next_deadline(self) -> int | None:
        """When to call `advance` next, which may have been long ago; None if nothing is due."""
        due = [self._push_at] if self._news else []
        if self._turn not in self._asked and (self._differing or self._every_us):
            due.append(self._turn_at)
        return min(due, default=None)

    def advance(self, now: int) -> list[GossipAsk]:
        """Return the calls that are due by *now*."""
        asks: list[GossipAsk] = []
        if self._news and now >= self._push_at:
            asks += self._push()
        if self._turn not in self._asked and now >= self._turn_at:
            asks += self._take_turn(now)
        return asks

    def ask(self) -> list[GossipAsk]:
        """Return calls to some other members, which compare with them immediately."""
        others = self._others()
        chosen = self._rng.sample(others, min(len(others), ASKED_COUNT))
        return [self._compare(other) for other in chosen]

    def _push(self) -> list[GossipAsk]:
        groups = {which: list(rows.values()) for which, rows in self._news.items()}
        self._news.clear()
        sheets = self._sheets(groups)
        if not sheets:  # all of them were dropped; a peer would take it for a comparison's begin
            return []
        body = self._encode(sheets)
        targets = self._others()
        if len(targets) > PUSHED_TO_MAX:
            targets = self._rng.sample(targets, PUSHED_TO_MAX)
        return [self._ask(target, _Step.ROWS, body) for target in targets]

    def _take_turn(self, now: int) -> list[GossipAsk]:
        differing, self._differing = self._differing, None
        if self._every_us is not None:
            self._turn_at = now + self._every_us
            others = self._others() if self._target.known() else ()
            if not others:
                return []
            other = others[self._rng.randrange(len(others))]
        elif differing is None or self._is_settled(*differing):  # since that ping, perhaps
            return []
        else:
            other, theirs = differing
            self._turn_at = now + PERIOD_US
            self._turn_digests = self.digest, theirs
        ask = self._compare(other)
        self._turn = ask.token
        return [ask]

    def _ask(self, to: str, step: _Step, body: bytes) -> GossipAsk:
        self._asked_count = token = self._asked_count + 1
        self._asked[token] = to, step
        return GossipAsk(token, to, body)

    # Comparing.

    def _compare(self, other: str) -> GossipAsk:
        offers = [known.offer() for _, known in sorted(self._target.known().items())]
        return self._ask(other, _Step.DIGESTS, self._encode(offers=offers))

    def done(self, token: int, answer: bytes | None, now: int) -> list[GossipAsk]:
        """Learn from the *answer* to the call of *token*; None if the call was not answered.

        Return the next call of that comparison, if one follows. A token whose call is over is
        ignored.
        """
        if token not in self._asked:
            return []
        # Removed first: if a bug ends this function, the next comparison has its turn all the same.
        to, step = self._asked.pop(token)
        told = None
        if answer is not None:  # membership detects dead peers; the next ping shows a difference
            with suppress(BodyError, ConfigError):
                told = self._told_back(answer)
        body = self._next_body(step, told) if told is not None else None
        asks = [] if body is None else [self._ask(to, _Step(step + 1), body)]
        if token == self._turn:
            if asks:
                self._turn = asks[0].token
            else:
                self._end_turn(to, complete=told is not None, now=now)
        return asks

    def _told_back(self, answer: bytes) -> _ToldBack:
        told = decode(_ToldBack, answer)
        self._take(told.sheets, told.store_id)
        return told

    def _next_body(self, step: _Step, told: _ToldBack) -> bytes | None:
        """Return what follows after the answer to *step*: what the peer lacks, if anything."""
        known = self._target.known()
        groups: dict[_Generation, list[TableRow]] = {}
        wanted = [(name, known[name]) for name in told.wants if name in known]
        if step is _Step.DIGESTS and wanted:
            offers = [of.offer(marked=True) for _, of in wanted if of.table is not None]
            # Sheets without rows: a node that does not know the keyspace creates its table then.
            groups = {(name, of.generation): [] for name, of in wanted}
            return self._encode(self._sheets(groups), offers)
        if step is _Step.FINGERPRINTS:
            for name, marks in told.fingerprints:
                of = known.get(name)
                # The lengths differ if the keyspace was created anew meanwhile.
                if of is not None and of.table is not None and len(marks) == len(of.table):
                    groups[name, of.generation] = of.table.delta(marks)
        return self._encode(self._sheets(groups)) if any(groups.values()) else None

    def _end_turn(self, other: str, *, complete: bool, now: int) -> None:
        self._turn_at = now + (self._every_us or PERIOD_US)
        digests, self._turn_digests = self._turn_digests, None
        # If our digest has changed, this node has learnt something, and more may be left.
        if digests is None or not complete or self.digest != digests[0]:
            return
        # Nodes with different stores, or of different versions, never have equal digests.
        if len(self._settled) >= SETTLED_MAX:
            self._settled.clear()
        self._settled[other] = digests

    def _is_settled(self, other: str, theirs: int) -> bool:
        ours = self.digest
        return ours == theirs or self._settled.get(other) == (ours, theirs)

    # Answering.

    def heard(self, body: bytes) -> bytes:
        """Return the answer to the *body* that another node sent.

        Raises:
            BodyError: if it is not gossip.
            ConfigError: if a keyspace in it has a definition that this node does not understand.
        """
        told = decode(_Told, body)
        self._take(told.sheets, told.store_id)
        known = self._target.known()
        wants, marks, groups = [], [], {}
        for offer in told.offers:
            name, ours = offer.name, known.get(offer.name)
            if ours is None or ours.order < offer.order:
                wants.append(name)
            elif ours.order > offer.order:
                groups[name, ours.generation] = list(ours.table or ())
            elif ours.table is not None and ours.table.digest != offer.digest:
                if offer.fingerprints is None:
                    wants.append(name)
                else:
                    groups[name, ours.generation] = ours.table.delta(offer.fingerprints)
                    marks.append((name, tuple(ours.table.fingerprints())))
        if not told.sheets:  # the first message of a comparison, whose offers are complete
            offered = {offer.name for offer in told.offers}
            for name, of in known.items():
                if name not in offered:
                    groups[name, of.generation] = list(of.table or ())
        sheets = self._sheets(groups)
        return encode(_ToldBack(sheets, tuple(wants), tuple(marks), self._store_id))

    def _take(self, sheets: Sequence[_Sheet], store_id: str) -> None:
        believed = self._store_id in ("", store_id)
        for sheet in sheets[:KEYSPACES_MAX]:
            try:
                definition = Definition.of_record(sheet.definition, sheet.revision)
            except ConfigError:  # of a newer version; the other sheets are for us, too
                continue
            if definition.mode == "durable" and not believed:
                continue
            self._target.learn_keyspace(definition, sheet.generation, dropped=sheet.dropped)
            # Read again: what was just learnt may have made the table that these rows are for.
            known = self._target.known().get(definition.name)
            if known is None or known.generation != sheet.generation or known.table is None:
                continue
            self._target.learn_rows(definition.name, from_rows(sheet.rows, len(known.table)))
            self._target.hint_assignment(definition.name, sheet.assignment)

    def _encode(self, sheets: tuple[_Sheet, ...] = (), offers: Sequence[_Offer] = ()) -> bytes:
        return encode(_Told(sheets, tuple(offers), self._store_id))

    def _sheets(self, groups: dict[_Generation, list[TableRow]]) -> tuple[_Sheet, ...]:
        """Return sheets of the keyspaces in *groups*, with those rows, unless they are outdated."""
        known = self._target.known()
        return tuple(
            of.sheet(rows)
            for (name, generation), rows in groups.items()
            if (of := known.get(name)) is not None and of.generation == generation
        )
