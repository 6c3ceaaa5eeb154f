"""One node of the harness: a member with one keyspace, which clients reach by calls.

It is run in a process that was forked from `nursery.py`, which has imported all this already.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.config.settings import PRESETS, StateConfig
from ringpop_py.base.errors import ConfigError, KeyspaceError
from ringpop_py.base.logs import log
from ringpop_py.base.values.operations import OperationId
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.edge.cli.logs import Logs

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall
    from ringpop_py.state.keyspaces.keyspace import Keyspace

PARTITIONS = 16
GOSSIP = replace(
    PRESETS["local"],
    quiet=False,
    period_s=0.1,
    ping_timeout_s=0.15,
    ping_req_timeout_s=0.3,
    suspect_s=0.4,
    suspect_factor=2.0,
    evidence_s=0.1,
    heal_fast_s=0.5,
    damping=False,  # the plans are nothing but flapping
)
STATE = StateConfig(wait_s=1.0, timeout_s=2.0, checkpoint_slots_max=60)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What one process is told.

    Attributes:
        clock_ahead_s: how wrong the clock of its machine is.
    """

    name: str
    listen: Address
    hosts: tuple[Address, ...]
    store: str
    keyspace: str
    strategy: str = "balanced"
    clock_ahead_s: float = 0.0


def run(settings: NodeSettings) -> None:
    """Be that node until SIGTERM."""
    real_time = time.time
    time.time = lambda: real_time() + settings.clock_ahead_s
    Logs("console", "info")
    trio.run(_serve, settings)


async def _serve(settings: NodeSettings) -> None:
    config = Config(
        name=settings.name,
        listen=settings.listen,
        hosts=settings.hosts,
        store=settings.store,
        create_store=True,
        gossip=GOSSIP,
        state=STATE,
    )
    async with trio.open_nursery() as nursery:
        ended = trio.Event()
        await nursery.start(_heed_sigterm, ended)
        while not ended.is_set():
            opened = False
            try:
                async with open_ringpop(config) as ringpop:
                    opened = True
                    keyspace = await _opened(ringpop, settings, ended)
                    if keyspace is not None:
                        _Service(ringpop, keyspace).add_handlers()
                    await ended.wait()
            except ConfigError as error:
                if opened or "Permission denied" not in str(error):
                    raise
                # The store is in trouble, as the plan wants it; a supervisor would try again.
                await trio.sleep(0.05)


async def _heed_sigterm(ended: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            ended.set()
            return


async def _opened(ringpop: Ringpop, settings: NodeSettings, ended: trio.Event) -> Keyspace | None:
    while not ended.is_set():
        try:
            return await ringpop.open_keyspace(
                settings.keyspace,
                partitions=PARTITIONS,
                strategy=settings.strategy,
                checkpoint_interval_s=0.5,
            )
        except KeyspaceError as error:  # the store is in trouble, as the plan wants it
            log.info("not-opened-yet", text=str(error))
            await trio.sleep(0.1)
    return None


class _Service:
    """What clients can ask of this node."""

    def __init__(self, ringpop: Ringpop, keyspace: Keyspace) -> None:
        self._ringpop = ringpop
        self._keyspace = keyspace

    def add_handlers(self) -> None:
        self._ringpop.handler("/do")(self.do)
        self._ringpop.handler("/tell")(self.tell)
        self._ringpop.handler("/membership")(self.membership)

    async def do(self, call: AppCall) -> bytes:
        """One operation; its outcome, or the name of the error."""
        key, name, argument, source, sequence, timeout_s = decode_value("msgpack", call.body)
        try:
            if name == "get":
                found = await self._keyspace.get_many([key], timeout_s=timeout_s)
                answer: list[Any] = ["done", [found[key]] if key in found else [], False]
            else:
                (outcome,) = await self._keyspace.update_many(
                    [(key, name, argument)],
                    operation_id=OperationId(source, sequence),
                    timeout_s=timeout_s,
                )
                if isinstance(outcome, KeyspaceError):
                    raise outcome
                answer = ["done", list(outcome.values), outcome.repeated]
        except KeyspaceError as error:
            answer = [type(error).__name__, str(error)]
        return encode_value("msgpack", answer)

    def tell(self, _call: AppCall) -> bytes:
        """What this node knows."""
        table = self._keyspace.table
        driver = self._ringpop.keyspaces.here(self._keyspace.name).host.driver
        return encode_value(
            "msgpack",
            {
                "name": self._ringpop.name,
                "members": [[m.name, m.status.name] for m in self._ringpop.members],
                "owners": list(table.owners()),
                "moving": bool(table.moving),
                "online": [partition.number for partition in driver.online()],
                "pauses_s": [us / 1e6 for us in driver.steward.handoff_pauses_us],
            },
        )

    def membership(self, call: AppCall) -> bytes:
        """Have the node ``drain``, ``undrain``, ``leave`` or ``rejoin``."""
        getattr(self._ringpop, call.body.decode())()
        return b""
