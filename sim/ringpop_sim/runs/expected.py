"""E: the expectations of a plan for its own run (`ringpop_sim.plans.expect`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, ClassVar

from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Status
from ringpop_sim.checks import Check
from ringpop_sim.plans.expect import parse_expectation

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_sim.runs.measures import Measures
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.watcher import RequestEnded
    from ringpop_sim.world.world import World


class Expected(Check):
    """Counts what plans may expect, and compares the counts when the plan has ended."""

    invariants: ClassVar = ("E",)

    def __init__(self, world: World, measures: Measures) -> None:
        super().__init__(world)
        self._measures = measures
        self._expectations = [parse_expectation(text) for text in world.plan.expect]
        self._number_of: dict[str, int] = {}
        self._nodes: defaultdict[str, set[int]] = defaultdict(set)
        self._joined: Counter[int] = Counter()
        self._counts = {"failed": 0, "answered": 0, "repeated": 0}

    def started(self, process: Process) -> None:
        self._number_of[process.name] = process.number

    def fact(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, fx.Ready):
            self._joined[process.number] += 1
        if isinstance(effect, fx.Refuted):
            self._nodes["refuted"].add(process.number)
        if not isinstance(effect, fx.StatusChanged) or effect.after is None:
            return
        after = effect.after
        number = self._number_of.get(after.name)
        if number is None:
            return
        if effect.before is not None and effect.before.address != after.address:
            self._nodes["moved"].add(number)
        if after.damped:
            self._nodes["damped"].add(number)
        if after.status is Status.FAULTY:
            self._nodes["deaths"].add(number)
        elif after.status is Status.SUSPECT and effect.via == "probe":
            self._nodes["suspects"].add(number)

    def request_ended(self, ended: RequestEnded) -> None:
        if ended.request.caller.running:  # a caller that ended does not wait for an answer
            self._counts["failed" if ended.error else "answered"] += 1
        self._counts["repeated"] += max(ended.request.runs.values(), default=0) > 1

    def finish(self) -> None:
        for expectation in self._expectations:
            nodes = expectation.nodes or tuple(range(self.world.plan.nodes))
            found = self._found(expectation.measure, nodes)
            if not expectation.holds(found):
                text = "nothing" if found is None else f"{found:g}"
                self.broke("E", f"expected {expectation}, found {text}")

    def _found(self, measure: str, nodes: tuple[int, ...]) -> float | None:
        if measure in self._counts:
            return self._counts[measure]
        if measure in ("false_faulty", "detected_s", "converged_s"):
            found: float | None = getattr(self._measures, measure)
            return found
        if measure == "views":
            return len({self.world.numbered[n].node.members.checksum for n in self._running(nodes)})
        if measure == "joined":
            return sum(self._joined[number] for number in nodes)
        if measure == "syncs":
            return sum(self._sync_count(number) for number in self._running(nodes))
        counted = {"left_out": self._is_left_out, "running": self._runs}
        return sum(map(counted.get(measure, self._nodes[measure].__contains__), nodes))

    def _runs(self, number: int) -> bool:
        process = self.world.numbered.get(number)
        return process is not None and process.running

    def _running(self, nodes: tuple[int, ...]) -> list[int]:
        return [number for number in nodes if self._runs(number)]

    def _sync_count(self, number: int) -> int:
        counts = self.world.numbered[number].node.counts
        return counts.delta_syncs + counts.full_syncs + counts.reverse_full_syncs

    def _is_left_out(self, number: int) -> bool:
        process = self.world.numbered.get(number)
        if process is None:
            return True
        # A node that runs alone is in no other ring, so it counts as left out.
        others = (other.node.members for other in self.world.at.values() if other is not process)
        for members in others:
            row = members.get(process.name)
            if row is not None and members.in_ring(row):
                return False
        return True
