"""`Sim`: a plan written in Python, instant by instant.

```python
sim = Sim(seed=7, nodes=9, link=Link(loss=0.05, delay=exponential(5 * ms)))
left, right = sim.split(2)
sim.at(10 * s).cut(left, right, one_way=True).heal(after=40 * s)
sim.at(15 * s).pause(right[0], for_=12 * s)
sim.at(20 * s).restart(left[1], memory="lost", clock=-3600 * s)
sim.traffic(keys=1000, per_second=200, retry_schedule_s=(0, 0.5, 2))
result = sim.run(until=120 * s)
```

Instants and durations are numbers with a unit of `ringpop_sim.units`. Nodes are given as one number
or several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ringpop_sim.errors import PlanError
from ringpop_sim.plans import plan as p
from ringpop_sim.plans.plan import OPERATIONS
from ringpop_sim.plans.planfile import replay_command
from ringpop_sim.runs.run import run
from ringpop_sim.units import s

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_sim.plans.plan import Nodes, Operation, Plan
    from ringpop_sim.runs.run import Result

RESTART_US: Final = 1 * s
"""How long a restarted process is down, in microseconds, unless another time is given."""


def _us(value: float) -> int:
    """Return *value* in whole microseconds: ``0.5 * s`` is a float."""
    return round(value)


def _nodes(value: int | Iterable[int]) -> Nodes:
    return tuple(value) if isinstance(value, Iterable) else (value,)


class Sim:
    """A cluster, what happens to it, and after `run` the result.

    Attributes:
        result: that of the last `run`; None before.
    """

    def __init__(self, seed: int = 1, nodes: int = 8, **plan: Any) -> None:  # noqa: ANN401
        """Begin a plan. *plan* has other attributes of `Plan`; its settings may be a dictionary.

        Raises:
            PlanError: the plan cannot be run.
        """
        self.seed = seed
        self.result: Result | None = None
        self._operations: list[Operation] = []
        self._until_us: int | None = None
        if isinstance(plan.get("settings"), Mapping):
            plan["settings"] = tuple(plan["settings"].items())
        try:
            self._plan = p.Plan(nodes=nodes, **{"name": "sim", **plan})
        except TypeError as error:
            raise PlanError(str(error)) from None

    @property
    def nodes(self) -> Nodes:
        """All nodes."""
        return tuple(range(self._plan.nodes))

    def split(self, parts: int) -> list[Nodes]:
        """Divide all nodes into *parts* parts of equal size, or nearly."""
        count = self._plan.nodes
        if not 1 <= parts <= count:
            raise PlanError(f"{count} nodes make 1 to {count} parts, not {parts}")
        bounds = [count * part // parts for part in range(parts + 1)]
        return [tuple(range(a, b)) for a, b in pairwise(bounds)]

    def at(self, instant: float) -> Moment:
        """Return the moment *instant*, whose methods add operations to the plan."""
        return Moment(self._operations, _us(instant))

    def traffic(
        self,
        *,
        retry_schedule_s: Iterable[float] = (0, 1, 3.5),
        timeout: float = 2 * s,
        **more: Any,  # noqa: ANN401
    ) -> None:
        """Add traffic; *more* has other attributes of `ringpop_sim.plans.plan.Traffic`."""
        delays_us = tuple(_us(delay_s * s) for delay_s in retry_schedule_s)
        traffic = p.Traffic(retry_schedule_us=delays_us, timeout_us=_us(timeout), **more)
        self._plan = replace(self._plan, traffic=traffic)

    @property
    def plan(self) -> Plan:
        """The plan so far. It ends at `run`'s *until*, or when all should agree.

        Raises:
            PlanError: the plan cannot be run.
        """
        operations = tuple(self._operations)
        if self._until_us is not None:
            return replace(self._plan, until_us=self._until_us, operations=operations)
        last_us = max((operation.at_us for operation in operations), default=0)
        # With an end for now, because only a plan says when its last fault ends.
        plan = replace(self._plan, until_us=max(last_us, 1), operations=operations)
        return replace(plan, until_us=plan.quiet_at_us + plan.settle_us)

    def run(self, until: float | None = None) -> Result:
        """Run the plan from its beginning to *until*, under all oracles."""
        if until is not None:
            self._until_us = _us(until)
        self.result = run(self.plan, self.seed)
        return self.result

    def replay_command(self) -> str:
        """Return one shell command that repeats the run without this program."""
        return replay_command(self.plan, self.seed)


class Fault:
    """An operation of the plan, which may be undone later."""

    def __init__(self, operations: list[Operation], operation: Operation) -> None:
        self._operations = operations
        self._place = len(operations)
        operations.append(operation)

    @property
    def operation(self) -> Operation:
        """The operation as data."""
        return self._operations[self._place]

    def heal(self, *, after: float) -> Fault:
        """Undo the operation *after* its beginning."""
        # Operations are frozen, so another one takes the place, which never changes.
        self._operations[self._place] = replace(self.operation, for_us=_us(after))
        return self


class Moment:
    """An instant of a plan. Each kind of operation is a method, which adds one: ``cut``, ``crash``.

    Its arguments are the attributes of the operation (see `plans.plan`), in their order or by name,
    and *for_*. Those that end in ``_us`` there are given without: ``delay=5 * ms``.
    """

    def __init__(self, operations: list[Operation], at_us: int) -> None:
        self._operations = operations
        self._at_us = at_us

    def __getattr__(self, kind: str) -> Callable[..., Fault]:
        """Return what adds an operation of *kind*."""
        if kind not in OPERATIONS:
            raise AttributeError(
                f"there is no operation {kind!r}; there is {', '.join(OPERATIONS)}"
            )
        return partial(self._do, OPERATIONS[kind])

    def __dir__(self) -> Iterable[str]:
        """Return the names of all methods."""
        return [*OPERATIONS, "restart"]

    def restart(self, *nodes: int | Iterable[int], for_: float = RESTART_US, **more: Any) -> Fault:  # noqa: ANN401
        """See `Crash`; the nodes are restarted *for_* later."""
        return self._do(p.Crash, *nodes, for_=for_, **more)

    def _do(
        self,
        kind: type[Operation],
        *values: object,
        for_: float = p.FOR_EVER,
        **named: Any,  # noqa: ANN401
    ) -> Fault:
        names = [field.name for field in fields(kind)]
        given = dict(zip(names[2:], values, strict=False))  # after `at_us` and `for_us`
        for name, value in {**given, **named}.items():
            if f"{name}_us" in names:
                given[f"{name}_us"] = _us(value)
            else:
                given[name] = (
                    _nodes(value) if name in ("nodes", "left", "right", "listed") else value
                )
        try:
            operation = kind(at_us=self._at_us, for_us=_us(for_), **given)
        except TypeError as error:
            raise PlanError(str(error)) from None
        return Fault(self._operations, operation)
