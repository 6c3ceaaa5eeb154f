"""Shrinking: the smallest plan that still breaks the same invariant.

The search makes simpler plans from a failing one and runs them. A plan that still breaks the
invariant takes its place. Moves are tried from the boldest to the finest: fewer operations (halves
first), no traffic, a perfect network, fewer nodes, the usual settings, shorter times, plainer
operations. A smaller plan takes another course with the same seed, so each is tried with a few
seeds.
"""

from __future__ import annotations

import time
from dataclasses import MISSING, dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from ringpop_sim.errors import PlanError
from ringpop_sim.plans.expect import parse_expectation
from ringpop_sim.plans.plan import Link
from ringpop_sim.runs.run import run
from ringpop_sim.units import ms, s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ringpop_sim.checks import Broken, Check
    from ringpop_sim.plans.plan import Nodes, Operation, Plan

SHRINK_S: Final = 10.0
OTHER_SEEDS: Final = 3
AFTER_US: Final = 100 * ms
"""How long a plan continues after the violation, unless another rule says how long."""
IN_TIME: Final = ("L", "E")
"""The first letters of invariants that say what must be true by when."""
NODES_FIELDS: Final = ("nodes", "left", "right", "listed")
MAY_BE_EMPTY: Final = ("listed",)  # a node that finds no hosts is a case of its own


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest plan found, and a seed with which it breaks the invariant.

    Attributes:
        tried_count: how many runs the search took.
        finished: whether every simpler plan was tried before the time was over.
    """

    plan: Plan
    seed: int
    broken: Broken
    tried_count: int
    wall_s: float
    finished: bool


def shrink(
    plan: Plan,
    seed: int,
    invariant: str,
    *,
    budget_s: float = SHRINK_S,
    checks: Sequence[type[Check]] | None = None,
    progress: Callable[[Plan], None] | None = None,
) -> Shrunk | None:
    """Return the smallest plan found that breaks *invariant*; None if *plan* does not."""
    search = _Search(plan, seed, invariant, budget_s, checks)
    if not search.accepts(plan):
        return None
    search.progress = progress
    finished = search.go()
    assert search.broken is not None
    return Shrunk(
        search.plan, search.seed, search.broken, search.tried_count, search.wall_s, finished
    )


class _Search:
    def __init__(
        self,
        plan: Plan,
        seed: int,
        invariant: str,
        budget_s: float,
        checks: Sequence[type[Check]] | None,
    ) -> None:
        self.plan = plan
        self.seed = seed
        self.broken: Broken | None = None
        self.tried_count = 0
        self.progress: Callable[[Plan], None] | None = None
        self._invariant = invariant
        self._checks = checks
        self._budget_s = budget_s
        self._began = time.perf_counter()
        self._seeds = (seed, *range(OTHER_SEEDS))

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._began

    def accepts(self, plan: Plan) -> bool:
        """Return whether *plan* breaks the invariant with some seed; if so, keep it as the best."""
        # The seed that broke the last plan first, because it is the likeliest; and each only once.
        for seed in dict.fromkeys((self.seed, *self._seeds)):
            self.tried_count += 1
            outcome = run(plan, seed, self._checks)
            for broken in outcome.broken:
                if broken.invariant == self._invariant:
                    self.plan, self.seed, self.broken = plan, seed, broken
                    if self.progress is not None:
                        self.progress(plan)
                    return True
            if self.wall_s > self._budget_s:
                break
        return False

    def go(self) -> bool:
        """Simplify until no move helps (True) or the time is over (False)."""
        simpler = True
        while simpler:
            simpler = False
            for move in self._moves():
                while self._one_step(move):
                    simpler = True
                if self.wall_s > self._budget_s:
                    return False
        return True

    def _moves(self) -> tuple[Callable[[Plan], Iterator[Plan]], ...]:
        """Return the moves to try."""
        # If the invariant is about time, the protocol's own times stay as they are: with slower
        # ones, any plan would break it.
        timely = self._invariant.startswith(IN_TIME)
        return tuple(move for move in _MOVES if not (timely and move is _usual_settings))

    def _one_step(self, move: Callable[[Plan], Iterator[Plan]]) -> bool:
        for candidate in _sound(move, self.plan):
            if self.wall_s > self._budget_s:
                return False
            if candidate != self.plan and self.accepts(candidate):
                return True
        return False


def _sound(move: Callable[[Plan], Iterator[Plan]], plan: Plan) -> Iterator[Plan]:
    """Yield the plans that *move* makes of *plan*; an invalid plan ends the move."""
    candidates = move(plan)
    while True:
        try:
            yield next(candidates)
        except (StopIteration, PlanError):
            return


def _shortened(before: Plan, after: Plan) -> Plan:
    """Return *after*, a simpler *before*, with the same quiet time at its end."""
    quiet_us = max(before.until_us - before.quiet_at_us, AFTER_US)
    return replace(after, until_us=min(before.until_us, after.quiet_at_us + quiet_us))


def _fewer_operations(plan: Plan) -> Iterator[Plan]:
    """Leave out ever shorter stretches of the operations."""
    operations = plan.operations
    # From all of them on: often much of a random plan does not matter, and one run shows it.
    size = len(operations)
    while size > 0:
        for first in range(0, len(operations), size):
            rest = operations[:first] + operations[first + size :]
            yield _shortened(plan, replace(plan, operations=rest))
        size //= 2


def _without_chance(plan: Plan) -> Iterator[Plan]:
    """Leave out traffic, loss and the codec together, then each of them alone."""
    calm = {"traffic": None, "link": Link(), "codec_share": 0.0}
    yield replace(plan, **calm)  # type: ignore[arg-type]
    for name, value in calm.items():
        yield replace(plan, **{name: value})  # type: ignore[arg-type]
    link = plan.link
    for field in fields(Link):
        value = getattr(Link(), field.name)
        yield replace(plan, link=replace(link, **{field.name: value}))


def _fewer_nodes(plan: Plan) -> Iterator[Plan]:
    """Leave out the nodes that no operation names, then each other node."""
    named = {node for o in plan.operations for node in o.nodes_named()}
    unnamed = [node for node in range(plan.nodes) if node not in named]
    # Nodes that no operation names may still be needed, as observers and helpers.
    for kept in (0, 1, 2):
        if plan.nodes - len(unnamed[kept:]) >= 1 and len(unnamed[kept:]) > 1:
            yield _without_nodes(plan, unnamed[kept:])
    if plan.nodes > 1:
        for node in reversed(range(plan.nodes)):
            yield _without_nodes(plan, [node])


def _without_nodes(plan: Plan, gone: Sequence[int]) -> Plan:
    left = [node for node in range(plan.nodes) if node not in gone]
    number_of = {node: number for number, node in enumerate(left)}
    operations = [_renumbered(operation, number_of) for operation in plan.operations]
    found = tuple(operation for operation in operations if operation is not None)
    seeds = min(plan.seeds, len(left))
    expectations = [parse_expectation(text).renumbered(number_of) for text in plan.expect]
    expect = tuple(str(expectation) for expectation in expectations if expectation is not None)
    fewer = replace(plan, nodes=len(left), seeds=seeds, operations=found, expect=expect)
    return _shortened(plan, fewer)


def _renumbered(operation: Operation, number_of: dict[int, int]) -> Operation | None:
    """Return *operation* without nodes that have no new number; None if no node is left."""
    changed: dict[str, Nodes | int] = {}
    for field in fields(operation):
        value = getattr(operation, field.name)
        if field.name in NODES_FIELDS:
            rest = tuple(number_of[node] for node in value if node in number_of)
            # Without nodes the fault would do nothing.
            if not rest and field.name not in MAY_BE_EMPTY:
                return None
            changed[field.name] = rest
        elif field.name == "about" or (field.name == "beside" and value is not None):
            if value not in number_of:
                return None
            changed[field.name] = number_of[value]
    return replace(operation, **changed)  # type: ignore[arg-type]


def _usual_settings(plan: Plan) -> Iterator[Plan]:
    for name, value in (("settings", ()), ("dialect", "native"), ("seeds", 0)):
        yield replace(plan, **{name: value})  # type: ignore[arg-type]
    for number in range(len(plan.settings)):
        yield replace(plan, settings=plan.settings[:number] + plan.settings[number + 1 :])


def _shorter(plan: Plan) -> Iterator[Plan]:
    """Begin operations earlier, end them sooner, and end the plan soon after."""
    operations = plan.operations
    first_us = min((o.at_us for o in operations if o.at_us), default=0)
    for by_us in (first_us, first_us // 2):
        earlier = tuple(replace(o, at_us=max(0, o.at_us - by_us)) for o in operations)
        if by_us > s // 2:
            yield _shortened(plan, replace(plan, operations=earlier))
    quiet_us = plan.until_us - plan.quiet_at_us
    for share in (0.25, 0.5, 0.75):
        until_us = plan.quiet_at_us + int(quiet_us * share)
        if quiet_us > s and until_us >= max((o.at_us for o in operations), default=0) + 1:
            yield replace(plan, until_us=until_us)


def _plainer_operations(plan: Plan) -> Iterator[Plan]:
    """Give each operation fewer nodes, default values and round numbers."""
    for place, operation in enumerate(plan.operations):
        for plainer in _plainer(operation):
            operations = (*plan.operations[:place], plainer, *plan.operations[place + 1 :])
            yield _shortened(plan, replace(plan, operations=operations))


def _plainer(operation: Operation) -> Iterator[Operation]:
    for field in fields(operation):
        value = getattr(operation, field.name)
        if field.name in NODES_FIELDS and len(value) > 1:
            for node in value:
                rest = tuple(other for other in value if other != node)
                yield replace(operation, **{field.name: rest})  # type: ignore[arg-type]
        elif field.name in ("at_us", "for_us"):
            for unit_us in (s, 100 * ms):
                rounded = value // unit_us * unit_us
                # A duration of 0 would be for ever.
                if rounded != value and (rounded or field.name == "at_us"):
                    yield replace(operation, **{field.name: rounded})
        elif field.default is not MISSING and value != field.default:
            yield replace(operation, **{field.name: field.default})


_MOVES: Final = (
    _fewer_operations,
    _without_chance,
    _fewer_nodes,
    _usual_settings,
    _shorter,
    _plainer_operations,
)
