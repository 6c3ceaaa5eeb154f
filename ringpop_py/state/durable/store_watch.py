"""A member whose store fails it alone gives its partitions to members whose store does not.

A mount that has turned read-only, or the network between one machine and the store, has to be
repaired, and concerns one machine. So the member says by its label that it owns nothing, as after a
failure of its share, and tries the store now and then. It does so if the store refuses its writes,
or if the store does not answer it and another member says that it answers there. While no other
member can take its partitions, it keeps them: if nobody reaches the store, nothing moves.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.base.errors import BodyError, CallError, StoreUnavailable
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import one_line
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.base.values.requests import KeyspaceRequest
from ringpop_py.net.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.state.catalog.catalog import CatalogEntry
    from ringpop_py.state.catalog.journalstore import StoreHealth
    from ringpop_py.state.catalog.layout import KeyspaceKeys
    from ringpop_py.state.partition.machine import Machine
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.tasks import Worker

STORE_ANSWERS: Final = "/keyspace/store-answers"
LOOK_S: Final = 1.0
PROBE_S: Final = 5.0
"""The seconds from one try of a store that fails here to the next."""
SILENT_LOOKS: Final = 3
"""After so many looks without an answer of the store, other members are asked for theirs."""
ASKED: Final = 3
"""How many members are asked at a time: all may lack the store, and then all ask."""
ANSWER_S: Final = 1.0
"""The seconds within which a store that works answers."""
ASK_S: Final = 2.0


class StoreAnswersRequest(KeyspaceRequest, frozen=True):
    """Asks a member whether the store of the keyspace answers it; the answer is a truth value."""


class StoreAccess:
    """How one member reaches the store of the keyspace of *entry*, and asks others whether they do.

    Attributes:
        health: of the store, as this member has it.
    """

    def __init__(
        self,
        node: NodeView,
        entry: CatalogEntry,
        keys: KeyspaceKeys,
        worker: Worker,
        health: StoreHealth,
    ) -> None:
        self.keyspace = entry.name
        self.health = health
        self._request = StoreAnswersRequest(entry.name, entry.generation)
        self._node = node
        self._keys = keys
        self._worker = worker

    async def write(self) -> None:
        """Write something, and delete it. Raises StoreUnavailable."""
        worker, key = self._worker, f"{self._keys.root}probe/{secrets.token_hex(8)}"
        await worker.run(worker.store.put_if_absent, key, b"")
        await worker.run(worker.store.delete, [key])

    async def answers(self) -> bool:
        """Return whether the store answers a read in time."""
        with trio.move_on_after(ANSWER_S):
            try:
                await self._worker.run(self._worker.store.get, self._keys.dropped)
            except StoreUnavailable:
                return False
            return True
        return False

    async def answers_at(self, member: str) -> bool:
        """Return whether the store answers *member*, as far as that answers."""
        address = self._node.address_of(member)
        if address is None:
            return False
        call = Call(NODE_SERVICE, STORE_ANSWERS, b"", encode(self._request), ttl_s=ASK_S)
        try:
            return decode(bool, (await self._node.channel.call(address, call)).arg3)
        except (CallError, BodyError):
            return False  # an older version, perhaps


@dataclass(eq=False)
class StoreWatch:
    """Watches whether the store fails *machine* at the node *name*.

    Args:
        members: returns the members that may own partitions now.

    Attributes:
        why: why this member owns nothing; empty while it may own partitions.
        on_change: called when `away` has changed; set from outside.
    """

    name: str
    machine: Machine[Any]
    access: StoreAccess
    members: Callable[[], Sequence[str]]
    why: str = field(default="", init=False)
    on_change: Callable[[], None] = field(default=lambda: None, init=False)
    _rng: random.Random = field(default_factory=lambda: random.Random(secrets.randbits(64)))
    _silent_looks: int = field(default=0, init=False)
    _asked: int = field(default=0, init=False)
    _is_full: bool = field(default=False, init=False)

    @property
    def away(self) -> bool:
        """Whether this member owns nothing because the store fails it."""
        return bool(self.why)

    async def run(self) -> None:
        """Watch until cancelled."""
        probe_at = 0.0
        while True:
            await trio.sleep(LOOK_S)
            self._look_for_room()
            others = [name for name in self.members() if name != self.name]
            if not others:
                self._go("")
            elif not self.away:
                probe_at = 0.0
                self._go(await self._trouble_here_alone(others))
            elif trio.current_time() >= probe_at:
                probe_at = trio.current_time() + PROBE_S
                if await self._works():
                    self._go("")

    async def _works(self) -> bool:
        """Return whether the store takes writes again."""
        try:
            await self.access.write()
        except StoreUnavailable:
            return False
        self.machine.refusal = None
        return True

    async def _trouble_here_alone(self, others: Sequence[str]) -> str:
        """Return why this member is to own nothing; empty if that helps nobody."""
        refusal = self.machine.refusal
        if refusal is not None:
            return f"the store refuses its writes: {refusal}"
        self._silent_looks = self._silent_looks + 1 if self._is_silent() else 0
        if self._silent_looks < SILENT_LOOKS:
            return ""
        reached = await self._reached_by(self._rng.sample(others, min(ASKED, len(others))))
        if not reached or await self.access.answers():
            return ""
        trouble = self.access.health.trouble
        about = "it does not answer" if trouble is None else one_line(trouble)
        return f"the store answers {reached}, but not this member: {about}"

    def _is_silent(self) -> bool:
        """Return whether the store has answered nothing since the last look, though it should."""
        journal, asked = self.machine.journal, self._asked
        self._asked = journal.asked_count
        hangs = journal.open_count > 0 and self._asked == asked
        return self.access.health.only_fails() or hangs

    async def _reached_by(self, members: Sequence[str]) -> str:
        """Return the first of *members* whom the store answers; empty if it answers none."""
        found: list[str] = []

        async def ask(member: str) -> None:
            if await self.access.answers_at(member):
                found.append(member)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(ask, member)
        return found[0] if found else ""

    def _go(self, why: str) -> None:
        was_away, self.why = self.away, why
        # A release needs the store. Who asks for one is told to take the partition over instead.
        self.machine.releases.cut_off = bool(why) and self.machine.refusal is None
        if was_away == self.away:
            return
        self._silent_looks, keyspace = 0, self.access.keyspace
        if why:
            text = f"other members take over what this one has of keyspace {keyspace!r}: {why}"
            log.warning("store-fails-here", text=text, keyspace=keyspace)
        else:
            text = f"this member may own partitions of keyspace {keyspace!r} again"
            log.info("store-works-here", text=text, keyspace=keyspace)
        self.on_change()

    def _look_for_room(self) -> None:
        # Nobody can take over, so the operator alone can help.
        full = self.machine.full
        if (full is not None) != self._is_full:
            self._is_full, keyspace = full is not None, self.access.keyspace
            if full is not None:
                text = f"the store has no room for writes of keyspace {keyspace!r}: {full}"
                log.warning("store-full", text=text, keyspace=keyspace)
            else:
                text = f"the store has room for writes of keyspace {keyspace!r} again"
                log.info("store-has-room", text=text, keyspace=keyspace)
