"""Rebalancing by hand: from any node, of keyspaces whose partitions do not move automatically.

No node is commanded: the next assignment is put into the store if it is absent, and each node
follows it. So a rebalance goes on whichever node dies, and a second one is refused while partitions
still move.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import (
    ConfigError,
    KeyspaceUnknown,
    PartitionUnavailable,
    RebalanceUnderWay,
)
from ringpop_py.base.logs import log
from ringpop_py.state.catalog.assignments import read_assignment, read_newest, record
from ringpop_py.state.placement.assignment import (
    Assignment,
    check_cluster_size,
    effective_owners,
    placed,
    plan_moves,
)
from ringpop_py.state.placement.table import PartitionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.state.durable.host import DurableHost
    from ringpop_py.state.placement.assignment import MovePlan

BY_ITSELF: Final = "partitions of this keyspace move automatically; there is nothing to do by hand"
NOT_DONE: Final = "nothing was changed: this was a dry run"


async def rebalance(
    host: DurableHost, *, max_moves: int | None = None, dry_run: bool = False
) -> MovePlan:
    """Spread the keyspace's partitions over the present members; return the moves.

    When this returns, the moves are recorded, and begin soon. If partitions move automatically, the
    plan has the moves that are still to come, and nothing is done.

    Args:
        max_moves: the most moves that are made now.
        dry_run: return the plan, and do nothing.

    Raises:
        ConfigError: if *max_moves* is not a whole number from 0.
        RebalanceUnderWay: if partitions are moving, or another caller was faster.
        NotEnoughMembers: if nothing was assigned yet, because there are too few members.
        PartitionUnavailable: if nothing was assigned yet, but soon will be.
        NoOwner: if there is no member that can own a partition.
        StoreUnavailable: if the store fails. The assignment's version says whether it was recorded.
    """
    if max_moves is not None and (type(max_moves) is not int or max_moves < 0):
        raise ConfigError(f"max_moves is a whole number from 0, not {max_moves!r}")
    members = host.members()
    if not host.assignments.recorded:
        check_cluster_size(members, host.definition.min_cluster_size, assigned=host.table.assigned)
        target = placed(host.definition, members)
        plan = plan_moves(host.table.owners(), target, max_moves=max_moves)
        return replace(plan, note=BY_ITSELF)
    newest = await _settled(host, members)
    current = effective_owners(newest, members)
    plan = plan_moves(current, host.assignments.target(members, current), max_moves=max_moves)
    return await _carry_out(host, newest, plan, dry_run=dry_run)


async def restore_assignment(host: DurableHost, version: int, *, dry_run: bool = False) -> MovePlan:
    """Undo rebalances: record the assignment *version* again, as the next version.

    Partitions of members that are gone go to their successors.

    Raises:
        ConfigError: if partitions of this keyspace move automatically, so it would not last.
        KeyspaceUnknown: if there is no such assignment.
        RebalanceUnderWay: this and the others as in `rebalance`.
    """
    if host.definition.automatic:
        raise ConfigError(f"{BY_ITSELF}, and an assignment that is restored would not last")
    members = host.members()
    newest = await _settled(host, members)
    key = host.keys.assignment(version)
    wanted = await host.worker.run(read_assignment, host.store, key, len(host.table))
    if wanted is None:
        raise KeyspaceUnknown(
            f"keyspace {host.definition.name!r} has no assignment of version {version};"
            f" the newest is {newest.version}"
        )
    plan = plan_moves(effective_owners(newest, members), effective_owners(wanted, members))
    return await _carry_out(host, newest, plan, dry_run=dry_run)


async def _settled(host: DurableHost, members: Sequence[str]) -> Assignment:
    """Return the newest assignment. Raises RebalanceUnderWay until all its moves are done."""
    newest = await host.worker.run(read_newest, host.store, host.keys, len(host.table))
    if newest is None:
        check_cluster_size(members, host.definition.min_cluster_size, assigned=False)
        raise PartitionUnavailable(
            "the first assignment is not recorded yet; try again in a moment"
        )
    host.driver.learn_assignment(newest)
    host.driver.look()  # marks in the table what the newest assignment moves
    # A node that has just started knows of no owners yet; to it, nothing seems to move. So
    # partitions count as moving as well until they are online.
    online = PartitionStatus.ONLINE
    moving = [row.partition for row in host.table if row.moving or row.status is not online]
    if moving:
        raise RebalanceUnderWay(
            f"{len(moving)} of {len(host.table)} partitions are still moving"
            f" (the first is {moving[0]}); try again when they are online"
        )
    return newest


async def _carry_out(
    host: DurableHost, newest: Assignment, plan: MovePlan, *, dry_run: bool
) -> MovePlan:
    if not plan.moves:
        return replace(plan, note="nothing has to move")
    if dry_run:
        return replace(plan, note=NOT_DONE)
    wanted = Assignment(newest.version + 1, plan.owners)
    if not await host.worker.run(record, host.store, host.keys, wanted):
        raise RebalanceUnderWay(
            f"another caller has just recorded version {wanted.version} of the assignment"
        )
    host.driver.learn_assignment(wanted)  # begins the moves from here; others learn it by gossip
    name = host.definition.name
    log.info("rebalance", keyspace=name, version=wanted.version, moves=len(plan.moves))
    return replace(
        plan, note=f"recorded as version {wanted.version}; version {newest.version} was before it"
    )
