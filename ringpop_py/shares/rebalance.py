"""Rebalancing by hand: from any node, of keyspaces whose partitions do not move by themselves.

There is nothing to command: the next assignment is put into the store, if nobody else has put one,
and each node follows it as it follows the members. So a rebalance that was begun goes on whoever
dies, and a second one is refused while partitions are still on their way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ringpop_py.catalog.assignments import read_assignment, read_newest, record
from ringpop_py.errors import (
    ConfigError,
    KeyspaceUnknown,
    PartitionUnavailable,
    RebalanceUnderWay,
)
from ringpop_py.logs import log
from ringpop_py.placing.assignment import (
    Assignment,
    check_cluster_size,
    effective_owners,
    plan_moves,
)
from ringpop_py.placing.strategies import assign
from ringpop_py.placing.table import PartitionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.placing.assignment import MovePlan
    from ringpop_py.shares.durable_host import DurableHost

BY_ITSELF: Final = "partitions of this keyspace move by themselves; there is nothing to do by hand"
NOT_DONE: Final = "nothing was changed: this was a dry run"


async def rebalance(
    host: DurableHost, *, max_moves: int | None = None, dry_run: bool = False
) -> MovePlan:
    """Have the keyspace's partitions spread over the members that are there now.

    The plan says what moves; when this returns the moves were recorded, and have begun or are about
    to. Where partitions move by themselves the plan is what is still to move, and nothing is done.

    Args:
        max_moves: make no more than these now.
        dry_run: say what would be done, and do nothing.

    Raises:
        ConfigError: *max_moves* is no number of moves.
        RebalanceUnderWay: partitions are moving, or somebody else was faster.
        NotEnoughMembers: nothing was assigned yet, since too few members are there.
        PartitionUnavailable: nothing was assigned yet, but is about to be.
        NoOwner: no member that can own a partition is there.
        StoreUnavailable: perhaps it was recorded; the assignment's version says so.
    """
    if max_moves is not None and (type(max_moves) is not int or max_moves < 0):
        raise ConfigError(f"max_moves is a whole number from 0, not {max_moves!r}")
    members = host.members()
    if not host.assignments.recorded:
        check_cluster_size(members, host.definition.min_cluster_size, assigned=host.table.assigned)
        target = assign(host.definition.strategy, host.definition.partitions, members)
        plan = plan_moves(host.table.owners(), target, max_moves=max_moves)
        return replace(plan, note=BY_ITSELF)
    newest = await _settled(host, members)
    current = effective_owners(newest, members)
    plan = plan_moves(current, host.assignments.target(members, current), max_moves=max_moves)
    return await _carry_out(host, newest, plan, dry_run=dry_run)


async def restore_assignment(host: DurableHost, version: int, *, dry_run: bool = False) -> MovePlan:
    """Undo rebalances: have partitions where the assignment *version* had them.

    It becomes the next version. Partitions of members that are gone are with their heirs.

    Raises:
        ConfigError: partitions of this keyspace move by themselves, so it would not last.
        KeyspaceUnknown: there is no such assignment.
        RebalanceUnderWay: and the others, as in `rebalance`.
    """
    if host.definition.automatic:
        raise ConfigError(f"{BY_ITSELF}, and no assignment to go back to would last")
    members = host.members()
    newest = await _settled(host, members)
    wanted = await host.worker.run(read_assignment, host.store, host.keys, version, len(host.table))
    if wanted is None:
        raise KeyspaceUnknown(
            f"keyspace {host.definition.name!r} has no assignment of version {version};"
            f" the newest is {newest.version}"
        )
    plan = plan_moves(effective_owners(newest, members), effective_owners(wanted, members))
    return await _carry_out(host, newest, plan, dry_run=dry_run)


async def _settled(host: DurableHost, members: Sequence[str]) -> Assignment:
    """The newest assignment, once all that it says is done."""
    newest = await host.worker.run(read_newest, host.store, host.keys, len(host.table))
    if newest is None:
        check_cluster_size(members, host.definition.min_cluster_size, assigned=False)
        raise PartitionUnavailable(
            "the first assignment is not recorded yet; it will be in a moment"
        )
    host.keeper.learn(newest)
    host.ownership.look()
    moving = [row.partition for row in host.table if row.moving]
    # A node that has just come knows of nothing yet; to it nothing seems to move.
    absent = [row.partition for row in host.table if row.status is not PartitionStatus.ONLINE]
    on_the_way = sorted({*moving, *absent})
    if on_the_way:
        raise RebalanceUnderWay(
            f"{len(on_the_way)} of {len(host.table)} partitions are on their way already"
            f" (the first is {on_the_way[0]}); try again when they are online"
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
            f"somebody else has just recorded version {wanted.version} of the assignment"
        )
    host.keeper.learn(wanted)
    name = host.definition.name
    log.info("rebalance", keyspace=name, version=wanted.version, moves=len(plan.moves))
    return replace(
        plan, note=f"recorded as version {wanted.version}; version {newest.version} was before it"
    )
