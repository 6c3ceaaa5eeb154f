"""The story of Fixed Partitions: athens, byzantium and cyrene, and then ephesus joins.

Nine partitions that never change, for three servers. Nothing is assigned before all three are
members. A fourth server gets nothing by itself: an operator first looks at the plan, then has it
carried out, while a client goes on writing.

    python examples/fixed_partitions.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from workers import Story, Task, all_at, open_workers, until

from ringpop_py import Client, NotEnoughMembers

if TYPE_CHECKING:
    from typing import Any

    from ringpop_py import Address, Keyspace, Table

PARTITIONS = 9
ISLANDS = ["delos", "ithaca", "kos", "lesbos", "naxos", "paros", "rhodes", "samos", "thera"]


def tell_table(story: Story, table: Table) -> None:
    """Print which partitions each server serves."""
    for name in sorted(table.counts()):
        story.tell(f"    {name:10} serves {table.owned_by(name)}")


class Shipping(Task):
    """Writes at a constant rate, and keeps count of its writes."""

    def __init__(self, keyspace: Keyspace) -> None:
        super().__init__()
        self.written: dict[str, int] = {}
        self.slowest_s = 0.0
        self._keyspace = keyspace

    async def step(self) -> None:
        """Count a ship at each island."""
        for island in ISLANDS:
            began_at = trio.current_time()
            await self._keyspace.update(island, "add", 1)
            self.written[island] = self.written.get(island, 0) + 1
            self.slowest_s = max(self.slowest_s, trio.current_time() - began_at)
            await trio.sleep(0.005)


async def rebalance(node: Address, *, dry_run: bool) -> dict[str, Any]:
    """Request what ``ringpopctl rebalance ships`` requests from a node; return the plan."""

    def ask() -> dict[str, Any]:
        with Client(node) as client:
            plan: dict[str, Any] = client.admin(
                "/admin/keyspaces/rebalance", {"name": "ships", "dry_run": dry_run}
            )
            return plan

    # `Client` blocks, and the nodes share this thread.
    return await trio.to_thread.run_sync(ask)


async def main() -> None:
    """Tell the story, and exit with an error if it does not end as it should."""
    story = Story()
    async with open_workers() as workers, trio.open_nursery() as nursery:
        athens = await workers.start("athens")
        ships = await athens.open_keyspace(
            "ships", partitions=PARTITIONS, strategy="average", automatic=False, min_cluster_size=3
        )
        try:
            await ships.put("samos", 0)
        except NotEnoughMembers as error:
            story.tell(f"athens is alone: {error}")

        await workers.start("byzantium")
        await workers.start("cyrene")
        await until(all_at(ships, "athens", "byzantium", "cyrene"), "the first assignment")
        story.tell("byzantium and cyrene have come; the first assignment deals round")
        tell_table(story, ships.table)
        for island in ("samos", "rhodes"):
            number = ships.partition_of(island)
            story.tell(f"{island} is in partition {number}, at {ships.owner_of(island)}")

        client = Shipping(ships)
        nursery.start_soon(client.run)
        ephesus = await workers.start("ephesus")
        await trio.sleep(1.5)  # long enough for a rebalance that nobody requested
        assert "ephesus" not in ships.table.counts(), "nobody has asked for it"
        story.tell("ephesus has come, and serves nothing yet; what would a rebalance do?")
        plan = await rebalance(ephesus.address, dry_run=True)  # any node will do
        for line in plan["lines"]:
            story.tell(f"    {line}")

        story.tell("so be it")
        client.slowest_s = 0.0  # from here on, partitions move
        await rebalance(ephesus.address, dry_run=False)
        await until(all_at(ships, *workers.running), "ephesus has its share")
        tell_table(story, ships.table)
        story.tell(f"the client's slowest write took {client.slowest_s * 1_000:.0f} ms")

        await client.stop()
        found = await ships.get_many(ISLANDS)
        owners = ships.table.owners()
        planned = all(owners[move["partition"]] == move["to"] for move in plan["moves"])
        if found != dict(client.written) or not planned:
            raise SystemExit("this is not what was written, or planned")
        total = sum(client.written.values())
        story.tell(f"{total} ships were counted meanwhile: none lost, none twice")


if __name__ == "__main__":
    trio.run(main)
