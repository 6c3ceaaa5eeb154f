"""How the tables of keyspaces become the same on all nodes.

What changes is pushed to others immediately. What is missed on the way is found by comparison: the
pings of membership carry one digest of all that a node knows of keyspaces, and a node that is
pinged with another digest than its own compares with the pinger. The two exchange digests of each
keyspace, then fingerprints of the tables that differ, and then the rows that are not the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import trio

from ringpop_py.errors import BodyError, CallError, ConfigError
from ringpop_py.placing.definition import Definition
from ringpop_py.placing.keys import hash_text
from ringpop_py.placing.table import Table, TableRow, from_rows, to_rows
from ringpop_py.swim.member import Status
from ringpop_py.values.declared import Checksum, Declared, Natural, Text, decode, encode
from ringpop_py.values.requests import GOSSIP
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.steward.view import NodeView

PERIOD_S: Final = 1.0
"""A node begins one comparison in this time at most, however many peers differ from it."""
GATHER_S: Final = 0.002
PUSHED_TO_MAX: Final = 32
"""Members that a change is pushed to; the others find out by comparison."""
SETTLED_MAX: Final = 1_000
"""Peers whose remaining difference is remembered; with more, all are compared with once more."""
ASKED_COUNT: Final = 3
CALL_S: Final = 2.0
KEYSPACES_MAX: Final = 1_000
HASH_MAX: Final = (1 << 64) - 1

_Generation = tuple[str, int]
"""A keyspace's name and its generation: rows of an earlier one say nothing of a later one."""


class _Sheet(Declared, frozen=True):
    """What a node knows of one keyspace, and some rows of its table, as `to_rows` makes them.

    Attributes:
        assignment: see `Known`.
    """

    definition: Any
    generation: Natural
    dropped: bool
    rows: list[Any]
    assignment: Natural


class _Offer(Declared, frozen=True):
    """What a node could tell of one keyspace: its `Known.order`, and the digest of its table.

    Attributes:
        fingerprints: of the table, where the other has shown another digest.
    """

    name: Text
    durable: bool
    generation: Natural
    dropped: bool
    digest: Checksum = 0
    fingerprints: tuple[Checksum, ...] | None = None


class _Told(Declared, frozen=True):
    sheets: tuple[_Sheet, ...]
    offers: tuple[_Offer, ...]
    store_id: Text


class _ToldBack(Declared, frozen=True):
    """The answer.

    Attributes:
        wants: the keyspaces of which sheets are wanted.
        fingerprints: of tables whose digests differ, by keyspace.
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
    """The version of the newest recorded one."""

    @property
    def order(self) -> tuple[bool, int, bool]:
        """See `CatalogEntry`."""
        return self.definition.mode == "durable", self.generation, self.dropped

    @property
    def digest(self) -> int:
        """64 bits of all that others should know, too. Equal on all nodes for equal knowledge."""
        rows = self.table.digest if self.table is not None else 0
        return hash_text(f"{self.definition.name} {self.order} {rows}")


class GossipTarget(Protocol):
    """Who has the keyspaces."""

    def known(self) -> dict[str, Known]:
        """All keyspaces that are known, dropped ones, too, by name."""

    def learn_keyspace(self, definition: Definition, generation: int, *, dropped: bool) -> None:
        """Somebody knows this; it is news, or not."""

    def learn_rows(self, name: str, rows: list[TableRow]) -> None:
        """Somebody knows these rows of the keyspace *name*."""

    def hint_assignment(self, name: str, version: int) -> None:
        """Somebody knows of an assignment of that *version* of the keyspace *name*."""


class TableGossip:
    """Tells others of rows, and compares tables with theirs.

    Args:
        store_id: of this node's store. What others say of durable keyspaces is about logs in
            theirs, so only those with the same store are believed. Empty for a node without one,
            which owns nothing, and may believe anybody.
    """

    def __init__(
        self,
        node: NodeView,
        target: GossipTarget,
        rng: random.Random,
        spawn: Spawn,
        *,
        store_id: str = "",
    ) -> None:
        self._node = node
        self._target = target
        self._rng = rng
        self._spawn = spawn
        self._store_id = store_id
        self._news: dict[_Generation, dict[int, TableRow]] = {}
        self._pushing = False
        self._differing: tuple[str, int] | None = None
        self._differs = trio.Event()
        self._settled: dict[str, tuple[int, int]] = {}

    # Pushing.

    def spread(self, name: str, generation: int, rows: Iterable[TableRow]) -> None:
        """Have others told of *rows*, together with what else changes in this moment.

        They also hear what there is to know of the keyspace, if there are no rows, too.
        """
        self._news.setdefault((name, generation), {}).update({row.partition: row for row in rows})
        if not self._pushing:
            self._pushing = True
            self._spawn(self._push)

    async def _push(self) -> None:
        await trio.sleep(GATHER_S)
        self._pushing = False
        news, self._news = self._news, {}
        groups = {which: list(rows.values()) for which, rows in news.items()}
        body = self._encode(self._sheets(groups))
        targets = self._others()
        if len(targets) > PUSHED_TO_MAX:
            targets = self._rng.sample(targets, PUSHED_TO_MAX)
        async with trio.open_nursery() as nursery:
            for target in targets:
                nursery.start_soon(self._call, target, body)

    def _sheets(self, groups: dict[_Generation, list[TableRow]]) -> tuple[_Sheet, ...]:
        """What is known of the keyspaces in *groups*, with those rows, unless they are outdated."""
        known = self._target.known()
        return tuple(
            _Sheet(of.definition.as_record(), generation, of.dropped, to_rows(rows), of.assignment)
            for (name, generation), rows in groups.items()
            if (of := known.get(name)) is not None and of.generation == generation
        )

    def _others(self) -> list[str]:
        ours = self._node.name
        reachable = (Status.ALIVE, Status.SUSPECT, Status.LEAVE)
        return [m.name for m in self._node.members if m.name != ours and m.status in reachable]

    # Comparing.

    @property
    def digest(self) -> int:
        """A sum over the digests of all keyspaces; 0 while none is known."""
        return sum(known.digest for known in self._target.known().values()) & HASH_MAX

    def differs(self, other: str, digest: int) -> None:
        """Have this node compare with *other* soon, which has shown that *digest*."""
        if not self._is_settled(other, digest):
            self._differing = other, digest  # a peer displaced by it shows its own again soon
            self._differs.set()

    async def run(self) -> None:
        """Compare with nodes that have shown another digest than ours, until cancelled."""
        if self._node.config.dialect != "native":
            await self._compare_without_digests()
        while True:
            await self._differs.wait()
            self._differs = trio.Event()
            assert self._differing is not None
            other, theirs = self._differing
            ours = self.digest
            if ours == theirs or self._is_settled(other, theirs):
                continue
            if await self._compare(other) and self.digest == ours:
                self._settle(other, ours, theirs)
            await trio.sleep(PERIOD_S)

    def _is_settled(self, other: str, theirs: int) -> bool:
        return self._settled.get(other) == (self.digest, theirs)

    def _settle(self, other: str, ours: int, theirs: int) -> None:
        """Remember that a whole comparison has left this difference as it was.

        Two nodes with different stores, or of different versions, never become the same.
        """
        if len(self._settled) >= SETTLED_MAX:
            self._settled.clear()
        self._settled[other] = ours, theirs

    async def _compare_without_digests(self) -> NoReturn:
        """Compare with a random member each quiet period, if there is anything to compare.

        The pings of the ``ringpop`` dialect have no place for a digest.
        """
        while True:
            await trio.sleep(self._node.config.gossip.quiet_period_s)
            others = self._others()
            if others and self._target.known():
                await self._compare(others[self._rng.randrange(len(others))])

    async def ask(self) -> None:
        """Compare with some others immediately, and return when they have answered."""
        others = self._others()
        async with trio.open_nursery() as nursery:
            for other in self._rng.sample(others, min(len(others), ASKED_COUNT)):
                nursery.start_soon(self._compare, other)

    async def _compare(self, other: str) -> bool:
        """Show *other* digests, then fingerprints of what differs, then what it lacks.

        Returns whether that came to its end.
        """
        offers = [
            _Offer(name, *k.order, k.table.digest if k.table is not None else 0)
            for name, k in sorted(self._target.known().items())
        ]
        answer = await self._call(other, self._encode(offers=offers))
        if answer is None:
            return False
        wants = answer.wants
        if not wants:
            return True
        known = self._target.known()
        offers = []
        for name in wants:
            of = known.get(name)
            if of is not None and of.table is not None:
                marks = tuple(of.table.fingerprints())
                offers.append(_Offer(name, *of.order, of.table.digest, marks))
        blank: dict[_Generation, list[TableRow]] = {
            (name, known[name].generation): [] for name in wants if name in known
        }
        answer = await self._call(other, self._encode(self._sheets(blank), offers))
        if answer is None:
            return False
        groups = {}
        for name, marks in answer.fingerprints:
            of = known.get(name)
            if of is not None and of.table is not None and len(marks) == len(of.table):
                groups[name, of.generation] = of.table.delta(marks)
        if not any(groups.values()):
            return True
        return await self._call(other, self._encode(self._sheets(groups))) is not None

    async def _call(self, other: str, body: bytes) -> _ToldBack | None:
        address = self._node.address_of(other)
        if address is None:
            return None
        call = Call(NODE_SERVICE, GOSSIP, b"", body, ttl_s=CALL_S)
        try:
            answer = await self._node.channel.call(address, call)
            told = decode(_ToldBack, answer.arg3)
            self._take(told.sheets, told.store_id)
        except (CallError, BodyError, ConfigError):
            return None  # membership says who is gone; the next ping shows whether we still differ
        return told

    # Answering.

    def answer(self, body: bytes) -> bytes:
        """What to say to another's *body*.

        Raises:
            BodyError: it is no gossip.
            ConfigError: a keyspace in it is defined in a way that we do not know.
        """
        told = decode(_Told, body)
        self._take(told.sheets, told.store_id)
        known = self._target.known()
        wants, marks, groups = [], [], {}
        for offer in told.offers:
            name, ours = offer.name, known.get(offer.name)
            state = offer.durable, offer.generation, offer.dropped
            if ours is None or ours.order < state:
                wants.append(name)
            elif ours.order > state:
                groups[name, ours.generation] = list(ours.table or ())
            elif ours.table is not None and ours.table.digest != offer.digest:
                if offer.fingerprints is None:
                    wants.append(name)
                else:
                    groups[name, ours.generation] = ours.table.delta(offer.fingerprints)
                    marks.append((name, tuple(ours.table.fingerprints())))
        if not told.sheets:  # it is a comparison, and just begins
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
                definition = Definition.of_record(sheet.definition)
            except ConfigError:  # a newer version knows it; what else is here is for us, too
                continue
            if definition.mode == "durable" and not believed:
                continue
            self._target.learn_keyspace(definition, sheet.generation, dropped=sheet.dropped)
            known = self._target.known().get(definition.name)
            if known is None or known.generation != sheet.generation or known.table is None:
                continue
            self._target.learn_rows(definition.name, from_rows(sheet.rows, len(known.table)))
            self._target.hint_assignment(definition.name, sheet.assignment)

    def _encode(self, sheets: tuple[_Sheet, ...] = (), offers: Sequence[_Offer] = ()) -> bytes:
        return encode(_Told(sheets, tuple(offers), self._store_id))
