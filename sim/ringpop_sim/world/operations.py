"""The faults: what each operation of a plan does to the world, and how it is undone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.member import AWAY, STATUS_BY_LABEL
from ringpop_py.member.swim.messages import MemberChange, Ping
from ringpop_py.member.swim.node import Node
from ringpop_sim.plans import plan as p
from ringpop_sim.world.liar import SOURCE, Liar
from ringpop_sim.world.network import STRANGERS, address_of
from ringpop_sim.world.process import Life, Process
from ringpop_sim.world.world import CLUSTER, FAREWELL_US_MAX

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_sim.world.world import World

Undo = Callable[[], None] | None


def schedule(world: World) -> None:
    """Start the nodes of the world's plan, and schedule its operations."""
    late = {n for o in world.plan.operations if isinstance(o, p.Start) for n in o.nodes}
    for operation in world.plan.operations:
        if isinstance(operation, p.Discovery) and operation.at_us == 0:
            _discover(world, operation, None)  # before the first node reads its hosts
    # Before the operations: those that begin at 0 find processes to act on.
    for number in range(world.plan.nodes):
        if number not in late:
            world.push(0, functools.partial(_start, world), number)
    for operation in world.plan.operations:
        for index, at_us in _instants(operation):
            world.push(at_us, functools.partial(_begin, world, operation), index)


def _instants(operation: p.Operation) -> list[tuple[int | None, int]]:
    """Return (node, instant) of each part; the node is None if all nodes are affected together."""
    stagger_us = getattr(operation, "stagger_us", 0)
    if not isinstance(operation, p.Crash | p.Stop | p.Start):
        return [(None, operation.at_us)]
    return [
        (node, operation.at_us + stagger_us * place) for place, node in enumerate(operation.nodes)
    ]


def _begin(world: World, operation: p.Operation, node: int | None) -> None:
    named = [node] if node is not None else sorted(set(operation.nodes_named()))
    # Before anything else, so that what the fault itself causes counts as disturbed.
    world.disturb(named)
    # Before the fault: `NamesKept` looks at which processes run until then.
    for check in world.checks:
        check.fault_began(operation, named)
    undo = _DO[type(operation)](world, operation, node)

    def end(_argument: object) -> None:
        if undo is not None:
            undo()
        # After the undo, because paused processes have to run again for `NamesKept`.
        for check in world.checks:
            check.fault_ended(operation, named)
        # Last, because the undo itself makes the nodes act.
        world.leave_alone(named)

    if operation.for_us:
        world.push(world.now + operation.for_us, end)
    # These are over when they are done. Any other fault without a duration never ends.
    elif isinstance(operation, p.Start | p.Rumour | p.Rebalance | p.FailShuffler):
        end(None)


def _named(world: World, nodes: p.Nodes) -> list[Process]:
    """Return the processes of *nodes* that have not ended."""
    found = (world.numbered.get(node) for node in nodes)
    return [process for process in found if process is not None and process.running]


def _machines(world: World, nodes: p.Nodes) -> p.Nodes:
    """Return the machines at which *nodes* run, last ran, or will be started."""
    return tuple(
        process.machine if (process := world.numbered.get(node)) else node for node in nodes
    )


def _each(
    processes: list[Process], do: Callable[[Process], None], undo: Callable[[Process], None]
) -> Undo:
    for process in processes:
        do(process)

    def undo_all() -> None:
        for process in processes:
            undo(process)

    return undo_all


def _cut(world: World, operation: p.Cut, _node: int | None) -> Undo:
    left, right = _machines(world, operation.left), _machines(world, operation.right)
    # Kept for the undo: by then nodes may run at other machines.
    network, here = world.network, dataclasses.replace(operation, left=left, right=right)
    network.cut(here)
    return lambda: network.mend(here)


def _impair(world: World, operation: p.Impair, _node: int | None) -> Undo:
    network, machines = world.network, _machines(world, operation.nodes)
    network.impair(operation, machines)
    return lambda: network.repair(operation, machines)


def _slow(world: World, operation: p.Slow, _node: int | None) -> Undo:
    return _each(
        _named(world, operation.nodes),
        lambda process: process.slow(operation.by_us),
        lambda process: process.slow(-operation.by_us),
    )


def _pause(world: World, operation: p.Pause, _node: int | None) -> Undo:
    # A process that is paused already belongs to another pause, which resumes it.
    processes = [o for o in _named(world, operation.nodes) if o.life is Life.RUNNING]
    return _each(processes, world.pause, world.resume)


def _start(world: World, number: int, *, moves: bool = False) -> None:
    """Start node *number* at its machine or, if *moves* or if that is taken, at a new one."""
    before = world.numbered.get(number)
    if before is not None and before.running:
        return  # another operation has started it already
    machine = before.machine if before is not None else number
    if moves or machine in world.at:
        machine = world.network.new_machine()
    world.start(number, machine)


def _start_late(world: World, _operation: p.Start, node: int | None) -> Undo:
    assert node is not None
    _start(world, node)
    return None


def _crash(world: World, operation: p.Crash, node: int | None) -> Undo:
    assert node is not None
    world.wall_offset_us[node] = world.wall_offset_us.get(node, 0) + operation.clock_us
    # Kept for the undo, which revives this very process; by then another may have the number.
    found = _named(world, (node,))
    for process in found:
        world.end(process, silent=operation.silent)

    def undo() -> None:
        if operation.memory == "kept" and found:
            process = found[0]
            # Another fault may have revived or replaced it.
            if not process.running and process.machine not in world.at:
                world.revive(process)
        else:
            _start(world, node, moves=operation.moves)

    return undo


def _stop(world: World, _operation: p.Stop, node: int | None) -> Undo:
    assert node is not None
    for process in _named(world, (node,)):
        if world.farewell is None:
            _evict(world, process)
        else:
            world.farewell(process, functools.partial(_evict, world, process))

    def undo() -> None:
        for process in _named(world, (node,)):
            world.end(process)  # a supervisor that restarts it does not wait for its farewell
        _start(world, node)

    return undo


def _evict(world: World, process: Process) -> None:
    world.do(process, lambda n, now: n.evict_self(now))
    # Normally the node ends itself after its farewell. As in the product, the wait for that is
    # limited.
    world.push(world.now + FAREWELL_US_MAX, world.end, process)


def _twin(world: World, operation: p.Twin, _node: int | None) -> Undo:
    machine, number, over = world.network.new_machine(), operation.about, False
    if operation.beside is not None:
        (place,) = _machines(world, (operation.beside,))
        world.network.place(machine, place)

    def start(_argument: object) -> None:
        if over:  # a start that is on the heap cannot be taken back
            return
        if machine not in world.at:
            world.start(number, machine, second=True)
        if operation.again_us:
            world.push(world.now + operation.again_us, start)

    def undo() -> None:
        nonlocal over
        over = True
        if machine in world.at:
            world.end(world.at[machine])

    start(None)
    return undo


def _replace(world: World, operation: p.Takeover, _node: int | None) -> Undo:
    number = operation.about
    before = world.numbered.get(number)
    if before is None or not before.running:
        return None
    world.end(before)
    world.start(number, before.machine, name=f"{before.name}b")
    return None


def _told(
    to_do: Callable[[Node, int], list[Effect]], to_undo: Callable[[Node, int], list[Effect]]
) -> Callable[..., Undo]:
    def tell(world: World, operation: p.Leave | p.Drain, _node: int | None) -> Undo:
        found = _named(world, operation.nodes)
        return _each(found, lambda o: world.do(o, to_do), lambda o: world.do(o, to_undo))

    return tell


def _away(world: World, operation: p.Away, _node: int | None) -> Undo:
    def with_label(process: Process, *labels: tuple[str, str]) -> None:
        def set_it(node: Node, now: int) -> list[Effect]:
            others = (label for label in node.local.labels if label != AWAY)
            return node.set_labels(tuple(sorted((*others, *labels))), now)

        world.do(process, set_it)

    return _each(_named(world, operation.nodes), lambda at: with_label(at, AWAY), with_label)


def _for_shares(_world: World, _operation: p.Operation, _node: int | None) -> Undo:
    return None  # watchers in `ringpop_sim.whole` see it begin and end


def _clock(world: World, operation: p.Clock, _node: int | None) -> Undo:
    return _each(
        _named(world, operation.nodes),
        lambda process: process.drift(operation.drift_ppm, world.now),
        # Only the speed is right again; the clock keeps its error.
        lambda process: process.drift(0, world.now),
    )


def _jump(world: World, operation: p.Jump, _node: int | None) -> Undo:
    def by(clock_us: int) -> None:
        for node in operation.nodes:
            world.wall_offset_us[node] = world.wall_offset_us.get(node, 0) + clock_us
            process = world.numbered.get(node)
            if process is not None:  # also if it has ended: it may be revived
                process.set_wall(world.wall_offset_us[node])

    by(operation.clock_us)
    return lambda: by(-operation.clock_us)


def _discover(world: World, operation: p.Discovery, _node: int | None) -> Undo:
    strangers = tuple(STRANGERS + i for i in range(operation.strangers))
    hosts = _machines(world, operation.listed) + strangers
    for node in operation.nodes:
        world.hosts_of[node] = hosts

    def undo() -> None:
        for node in operation.nodes:
            world.hosts_of.pop(node, None)

    return undo


def _rumour(world: World, operation: p.Rumour, _node: int | None) -> Undo:
    """Deliver a forged ping, like an old message of an unknown sender; the answer goes nowhere."""
    about = world.numbered.get(operation.about)
    if about is None or (operation.elsewhere and world.dialect.names_are_addresses):
        return None
    # In the present incarnation, because only the member itself issues new ones (S2). So it can
    # refute the lie with the next one.
    row = replace(about.node.local, status=STATUS_BY_LABEL[operation.status])
    if operation.elsewhere:
        host, port = address_of(STRANGERS)
        row = replace(row, host=host, port=port)
    for process in _named(world, operation.nodes):
        cluster = operation.cluster or CLUSTER
        request = Ping(
            cluster,
            None,
            SOURCE,
            *about.address,
            0,
            None,
            (MemberChange(member=row, source=SOURCE, source_incarnation=0),),
        )
        world.exchange.forge(process, request)
    return None


def _lie(world: World, operation: p.Lie, _node: int | None) -> Undo:
    return Liar(world, operation).stop


_DO: Final[dict[type[p.Operation], Callable[..., Undo]]] = {
    p.Cut: _cut,
    p.Impair: _impair,
    p.Slow: _slow,
    p.Pause: _pause,
    p.Crash: _crash,
    p.Stop: _stop,
    p.Start: _start_late,
    p.Takeover: _replace,
    p.Twin: _twin,
    p.Leave: _told(Node.leave, Node.rejoin),
    p.Drain: _told(Node.drain, Node.undrain),
    p.Away: _away,
    p.FailStore: _for_shares,
    p.FailShuffler: _for_shares,
    p.Rebalance: _for_shares,
    p.Clock: _clock,
    p.Jump: _jump,
    p.Discovery: _discover,
    p.Rumour: _rumour,
    p.Lie: _lie,
}
"""The function that does each kind of operation, for one node if nodes follow one another.
It returns what undoes the operation."""
