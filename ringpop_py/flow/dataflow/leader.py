"""Carries out what the leader of a dataflow decides, at the node that is its leader."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import BodyError, CallError, NoOwner, StoreUnavailable
from ringpop_py.base.logs import log
from ringpop_py.base.values.declared import Declared, Natural, Text, decode, encode
from ringpop_py.flow.exchange.epochs import Worker
from ringpop_py.flow.exchange.leader import Leader, Put, Tell, WorkerReport
from ringpop_py.member.swim.member import Status
from ringpop_py.net.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.flow.dataflow.checkpoints import Checkpoints
    from ringpop_py.flow.exchange.epochs import EpochRecord
    from ringpop_py.node.ringpop import Ringpop

TELL: Final = "/dataflow/tell"


class LeaderMessage(Declared, frozen=True):
    """A leader's message to a worker, which answers with a `WorkerReport`.

    Attributes:
        seen: the newest record that the leader knows; None if there is none.
        leader: the name of the leader.
        epoch, last: see `Tell`.
    """

    flow: Text
    leader: Worker
    seen: Natural | None = None
    epoch: Natural | None = None
    last: bool = False

    @property
    def tell(self) -> Tell:
        """The act that the leader wants."""
        return Tell(self.epoch, self.last)


LOOK_S: Final = 0.1
"""The seconds between two rounds of questions of a leader to the workers."""
OTHERS_S: Final = 1.0
"""The seconds between two questions to other members whether they are to be workers."""
CALL_S: Final = 1.0
READ_S: Final = 5.0
"""The seconds between two looks of a leader for records of others."""
TIDY_EPOCHS: Final = 8


class Leading:
    """See the module.

    Args:
        me: this worker.
        newest: returns the newest record that this node knows.
        saw: called with a newer record.
        tell: gives a message to this same worker, and returns its answer.
    """

    def __init__(  # noqa: PLR0913 - the parts of one node
        self,
        ringpop: Ringpop,
        flow: str,
        me: Worker,
        checkpoints: Checkpoints,
        *,
        every_s: float,
        key_groups: int,
        newest: Callable[[], EpochRecord | None],
        saw: Callable[[EpochRecord], None],
        tell: Callable[[LeaderMessage], WorkerReport],
    ) -> None:
        self._ringpop = ringpop
        self._flow = flow
        self._me = me
        self._checkpoints = checkpoints
        self._settings = every_s, key_groups
        self._newest = newest
        self._saw = saw
        self._tell = tell
        self._next = Tell()
        self._lives: dict[str, Worker] = {}
        self._untold: set[str] = set()
        self._asked_others_at = float("-inf")
        self._read_at = float("-inf")

    def leads(self) -> bool:
        """Return whether this node is the leader, as far as it sees.

        That is the first of the workers in the ring's order for the name of the dataflow.
        """
        record, ringpop = self._newest(), self._ringpop
        there = [name for name in (() if record is None else record.names) if self._is_there(name)]
        if not there:
            return True  # a first worker has to begin; several may try
        try:
            # Those whose web application is away work on.
            holders = ringpop.placement.holders
            order = holders.lookup_n(f"dataflow/{self._flow}", len(ringpop.members))
        except NoOwner:
            return False
        return next((name for name in order if name in there), there[0]) == self._me.name

    async def run(self) -> None:
        """Lead whenever this node is the leader, until cancelled."""
        leader: Leader | None = None
        while True:
            # The node that put a record tells its workers, even if one of them leads from now on.
            if not self.leads() and not self._untold:
                leader = None
            else:
                if leader is None:
                    every_s, key_groups = self._settings
                    leader, self._lives, self._next = (
                        Leader(every_s=every_s, key_groups=key_groups),
                        {},
                        Tell(),
                    )
                try:
                    await self._look(leader)
                except StoreUnavailable as error:
                    log.info("dataflow-retries", dataflow=self._flow, why=str(error))
            await trio.sleep(LOOK_S)

    async def _look(self, leader: Leader) -> None:
        """Ask all workers, tell them what to do, and decide what comes next."""
        said, leaving = await self._ask_all()
        record = self._newest()
        epoch = -1 if record is None else record.epoch
        for name, answer in said.items():
            self._lives[name] = Worker(name, answer.life)
            if answer.seen is not None and answer.seen >= epoch:
                self._untold.discard(name)
        self._untold = {name for name in self._untold if self._is_there(name)}
        present = [
            worker
            for name, worker in self._lives.items()
            if name not in leaving and self._is_there(name)
        ]
        now = trio.current_time()
        seen = max((answer.seen for answer in said.values() if answer.seen is not None), default=-1)
        read_s = LOOK_S if leader.waits else READ_S
        if record is None or seen > record.epoch or now - self._read_at >= read_s:
            await self._read()
            record = self._newest()
        step = leader.decide(
            record, sorted(present), said, trio.current_time(), at_ms=int(time.time() * 1_000)
        )
        if isinstance(step, Tell):
            self._next = step
            return
        self._next = Tell()
        was_put = await self._checkpoints.put(step.record)
        if was_put:
            self._log(step)
            self._untold = set(step.record.names)
        await self._read()
        if was_put and step.record.epoch % TIDY_EPOCHS == 0:
            await self._checkpoints.tidy(step.record)

    def _log(self, put: Put) -> None:
        record = put.record
        if record.epoch == record.run:
            log.info(
                "dataflow-begins",
                dataflow=self._flow,
                epoch=record.epoch,
                workers=", ".join(record.names),
                why=record.why,
            )

    async def _read(self) -> None:
        self._read_at = trio.current_time()
        newest = await self._checkpoints.newest(self._newest())
        if newest is not None:
            self._saw(newest)

    async def _ask_all(self) -> tuple[dict[str, WorkerReport], set[str]]:
        """Return the answers of workers, by name, and the names of those that are to leave."""
        record, now = self._newest(), trio.current_time()
        workers = set(self._lives) | set(() if record is None else record.names)
        asked = {name for name in workers if self._is_there(name)}
        if now - self._asked_others_at >= OTHERS_S:
            self._asked_others_at = now
            asked |= {member.name for member in self._ringpop.members if _is_live(member.status)}
        seen = None if record is None else record.epoch
        told = LeaderMessage(self._flow, self._me, seen, self._next.epoch, self._next.last)
        said = {self._me.name: self._tell(told)}
        async with trio.open_nursery() as nursery:
            for name in sorted(asked - {self._me.name}):
                nursery.start_soon(self._ask, name, told, said)
        return said, {name for name, answer in said.items() if answer.leaves}

    async def _ask(self, name: str, told: LeaderMessage, said: dict[str, WorkerReport]) -> None:
        address = self._ringpop.address_of(name)
        if address is None:
            return
        call = Call(NODE_SERVICE, TELL, b"", encode(told), ttl_s=CALL_S)
        try:
            answer = await self._ringpop.channel.call(address, call)
            if answer.ok:  # otherwise this dataflow was not started there
                said[name] = decode(WorkerReport, answer.arg3)
        except (CallError, BodyError):
            pass  # it is asked again

    def _is_there(self, name: str) -> bool:
        status = self._ringpop.status_of(name)
        return status is not None and _is_live(status)


def _is_live(status: Status) -> bool:
    return status in (Status.ALIVE, Status.SUSPECT)
