"""A run's facts as lines of JSON: the plan, what each node told of itself, what broke."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ringpop_sim.planfile import plan_text
from ringpop_sim.trace import plain
from ringpop_sim.units import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from ringpop_sim.run import Result, Run


def write_trace(run: Run, result: Result, file: TextIO) -> None:
    """Write all that *run*, which kept its trace, has to tell: one object a line."""
    file.writelines(
        json.dumps(record, separators=(",", ":")) + "\n" for record in _records(run, result)
    )


def _records(run: Run, result: Result) -> Iterator[dict[str, Any]]:
    world = run.world
    plan = plan_text(world.plan)
    yield {"kind": "Plan", "time": 0.0, "seed": world.seed, "nodes": world.plan.nodes, "plan": plan}
    for at_us, process, effect in world.trace.records:
        yield {
            "kind": type(effect).__name__,
            "time": seconds(at_us),
            "observer": process.name,
            "process": process.serial,
            "address": str(process.address),
            "fact": plain(effect),
        }
    for broken in result.broken:
        yield {
            "kind": "Broken",
            "time": seconds(broken.at_us),
            "invariant": broken.invariant,
            "detail": broken.detail,
        }
    yield {"kind": "Result", "time": seconds(world.now), "result": result.as_json()}
