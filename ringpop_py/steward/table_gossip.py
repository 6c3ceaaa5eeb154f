"""How the tables of keyspaces become the same on all nodes.

A change is pushed to other members immediately. A push that is lost is made up for by comparison:
the pings of membership carry one digest of all that a node knows of keyspaces. If a node is pinged
with another digest than its own, it compares with the pinger. The two exchange digests of each
keyspace, then fingerprints of the tables that differ, and then the rows that differ.
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
"""The seconds from one comparison to the next, however many peers differ from this node."""
GATHER_S: Final = 0.002  # rows of one handoff or one look change together, and share a push
PUSHED_TO_MAX: Final = 32
"""The most members to which a change is pushed; the others find it by comparison."""
SETTLED_MAX: Final = 1_000
"""The most peers whose remaining difference is remembered. At the limit all are forgotten, and
compared with once more."""
ASKED_COUNT: Final = 3
CALL_S: Final = 2.0
KEYSPACES_MAX: Final = 1_000
HASH_MAX: Final = (1 << 64) - 1

_Generation = tuple[str, int]
"""A keyspace's name and generation: rows of one generation say nothing about a later one."""


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
    """Summarises what a node knows of one keyspace: its `Known.order`, and its table's digest.

    Attributes:
        fingerprints: those of the table, if the other node has shown another digest.
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
    def order(self) -> tuple[bool, int, bool]:
        """A sort key; see `CatalogEntry.order`."""
        return self.definition.mode == "durable", self.generation, self.dropped

    @property
    def digest(self) -> int:
        """64 bits of all that other nodes should know, too; equal knowledge has equal digests."""
        rows = self.table.digest if self.table is not None else 0
        # Without the assignment: its version is only a hint, and nodes read the store anyway.
        return hash_text(f"{self.definition.name} {self.order} {rows}")


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


class TableGossip:
    """Pushes rows to other members, and compares tables with theirs.

    Args:
        store_id: the id of this node's store. The rows of a durable keyspace are about logs in the
            sender's store, so only senders with the same store are believed. Empty for a node
            without a store: it owns no durable partition, and may believe any sender.
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
        """Push *rows* to other members, together with other changes of this moment.

        The push also has the definition of the keyspace, even if there are no rows.
        """
        self._news.setdefault((name, generation), {}).update({row.partition: row for row in rows})
        if not self._pushing:
            self._pushing = True
            self._spawn(self._push)

    async def _push(self) -> None:
        await trio.sleep(GATHER_S)
        self._pushing = False
        # As the flag, before the first wait: rows that change during the calls need a new push.
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
        """Return sheets of the keyspaces in *groups*, with those rows, unless they are outdated."""
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
        """Compare soon with *other*, which has shown that *digest*."""
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
            if ours == theirs or self._is_settled(other, theirs):  # since that ping, perhaps
                continue
            # If our digest has changed, this node has learnt something, and more may be left.
            if await self._compare(other) and self.digest == ours:
                self._settle(other, ours, theirs)
            await trio.sleep(PERIOD_S)

    def _is_settled(self, other: str, theirs: int) -> bool:
        return self._settled.get(other) == (self.digest, theirs)

    def _settle(self, other: str, ours: int, theirs: int) -> None:
        """Remember that a complete comparison has not changed this difference.

        Nodes with different stores, or of different versions, never have equal digests.
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
        """Compare with some other members immediately; return when they have answered."""
        others = self._others()
        async with trio.open_nursery() as nursery:
            for other in self._rng.sample(others, min(len(others), ASKED_COUNT)):
                nursery.start_soon(self._compare, other)

    async def _compare(self, other: str) -> bool:
        """Send *other* digests, then fingerprints of what differs, then what it lacks.

        Return whether the comparison was completed.
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
        # Sheets without rows: from them, a node that does not know the keyspace begins its table.
        blank: dict[_Generation, list[TableRow]] = {
            (name, known[name].generation): [] for name in wants if name in known
        }
        answer = await self._call(other, self._encode(self._sheets(blank), offers))
        if answer is None:
            return False
        groups = {}
        for name, marks in answer.fingerprints:
            of = known.get(name)
            # The lengths differ if the keyspace was created anew, with other partitions, meanwhile.
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
            return None  # membership detects dead peers; the next ping shows a difference
        return told

    # Answering.

    def answer(self, body: bytes) -> bytes:
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
                definition = Definition.of_record(sheet.definition)
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
