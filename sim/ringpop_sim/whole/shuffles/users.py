"""The clients of a shuffle: they run the product's own one, each call in a thread."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import trio

from ringpop_py.base.errors import (
    ShuffleDamaged,
    ShuffleFull,
    ShuffleIncomplete,
    ShuffleUnavailable,
)
from ringpop_py.flow.shuffle.client.client import ShuffleClient
from ringpop_sim.flow.shuffle.truth import DAMAGE
from ringpop_sim.units import s
from ringpop_sim.whole.stage.scheduling import TrioProcess
from ringpop_sim.world.network import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.flow.shuffle.client.puts import Receipt
    from ringpop_py.flow.shuffle.protocol.calls import Durability
    from ringpop_sim.plans.plan import ShufflePlan
    from ringpop_sim.whole.shuffles.beside import Shufflers
    from ringpop_sim.whole.shuffles.rows import ShuffleRows

T = TypeVar("T")

SCHEMA: Final = pa.schema([("key", pa.int64()), ("task", pa.int64()), ("place", pa.int64())])
KEYS: Final = 30
"""Few, so that many rows have the same one."""
TIMEOUT_S: Final = 10.0
AGAIN_S: Final = 0.5
READ_S: Final = 1.0
PASSES: Final = 3
"""How often a shuffle is read before it is deleted."""


class ShuffleUsers:
    """The driver and the tasks of shuffle *name*, in one process.

    Args:
        stays: whether it is never deleted, but read until the end.

    Attributes:
        read_at: when all of it was read last.
    """

    def __init__(
        self, shufflers: Shufflers, truth: ShuffleRows, plan: ShufflePlan, name: str, *, stays: bool
    ) -> None:
        self._cluster = cluster = shufflers.cluster
        self.read_at = -1
        self._truth = truth
        self._name = name
        self._stays = stays
        self._plan = plan
        self._peers = [str(address_of(number)) for number in range(cluster.plan.nodes)]
        self.body = TrioProcess(cluster.stage, f"the user of {name}", self._main)
        machine = cluster.network.new_machine()
        cluster.network.connect(machine)
        shufflers.machines[self.body] = machine

    async def _main(self, _: TrioProcess) -> None:
        for turn in count():
            await trio.to_thread.run_sync(self._again, self._create)
            receipts: dict[int, Receipt] = {}

            async def put(task: int, turn: int = turn, to: dict[int, Receipt] = receipts) -> None:
                to[task] = await trio.to_thread.run_sync(self._put, turn, task)

            async with trio.open_nursery() as nursery:
                for task in range(self._plan.tasks):
                    nursery.start_soon(put, task)
            await trio.to_thread.run_sync(self._end, list(receipts.values()))

    def _again(self, work: Callable[[ShuffleClient], T]) -> T:
        """Return the result of *work*, which is tried until it succeeds."""
        while True:
            with ShuffleClient(self._peers, self._name, timeout_s=TIMEOUT_S, cluster_key="") as it:
                try:
                    return work(it)
                except (ShuffleUnavailable, ShuffleFull):
                    time.sleep(AGAIN_S)
                except ShuffleDamaged as error:
                    if self._truth.is_single:
                        self._truth.breaks(DAMAGE, str(error))
                    time.sleep(TIMEOUT_S)

    def _create(self, client: ShuffleClient) -> None:
        durability: Durability = "store" if self._plan.in_store else "replica"
        client.create(SCHEMA, ["key"], intervals=self._plan.intervals, durability=durability)

    def _put(self, turn: int, task: int) -> Receipt:
        plan, rng = self._plan, self.body.rng
        tables = []
        for number in range(plan.puts):
            places = range(number * plan.rows, (number + 1) * plan.rows)
            keys = [rng.randrange(KEYS) for _ in places]
            columns = [keys, [turn * plan.tasks + task] * plan.rows, list(places)]
            tables.append(pa.table(columns, schema=SCHEMA))

        def attempt(client: ShuffleClient) -> Receipt:
            with client.attempt() as attempt:
                rows = [row for table in tables for row in _rows_of(table)]
                self._truth.put[attempt.number] = rows
                for table in tables:
                    attempt.put(table)
                    time.sleep(rng.uniform(0, 2 * plan.every_us) / s)
            return attempt.receipt

        return self._again(attempt)

    def _end(self, receipts: list[Receipt]) -> None:
        """End it and read it, and delete it in the end unless it stays."""
        try:
            self._again(lambda client: client.end(receipts, wait=False))
        except ShuffleIncomplete as error:
            self._truth.refused(error.attempts)
        else:
            passes = count() if self._stays else range(PASSES)
            for _ in passes:
                self._again(self._read)
                time.sleep(READ_S)
        self._truth.to_delete.add(self._again(lambda client: client.record.uid))
        self._again(ShuffleClient.delete)

    def _read(self, client: ShuffleClient) -> None:
        client.wait(TIMEOUT_S)
        for number in range(self._plan.intervals):
            self._truth.read(client.record, number, _rows_of(client.interval(number)))
        self.read_at = self._cluster.now


def _rows_of(table: pa.Table) -> list[tuple[int, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
