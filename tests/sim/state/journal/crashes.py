"""Crash points: small scenes, played again with a disturbance before each of their events.

Each scene is played without a fault to count its events. Then it is played once for each event and
each node, which crashes just before that event; and once more with a node that handles no event for
a while from there on, and is taken for dead. All invariants are checked, and to the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.state.journal.scripts import Script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringpop_sim.state.journal.sweep import ScheduleOutcome
    from tests.sim.state.journal.scripts import Scene


def writes(script: Script) -> None:
    """One node owns both partitions, writes to them, and reads."""
    script.own(0, "a")
    script.own(1, "a")
    script.write(0)
    script.write(1)
    script.read(0, "a")
    script.write(0)


def trims(script: Script) -> None:
    """Checkpoints, of which one builds on another, and the slots that they cover."""
    script.own(0, "a")
    script.own(1, "a")
    script.write(0)
    script.write(1)
    script.checkpoint(0)
    script.write(0)
    script.checkpoint(0, whole=False)
    script.trim("a")
    script.checkpoint(1)
    script.trim("a")


def hands_over(script: Script) -> None:
    """A partition goes to another node and back; each trims its journal."""
    script.own(0, "a")
    script.write(0)
    script.own(0, "b")
    script.write(0)
    script.checkpoint(0)
    script.trim("a")
    script.own(0, "a")
    script.write(0)
    script.trim("b")


def takes_over(script: Script) -> None:
    """A node crashes, and another takes what it owned and trims its journal."""
    script.own(0, "a")
    script.own(1, "a")
    script.write(0)
    script.write(1)
    former = script.process("a").journal.name
    script.desired = [1, 1]
    script.crash(script.node("a"), script.process("a"))
    script.own(0, "b")
    script.own(1, "b")
    script.write(0)
    script.checkpoint(0)
    script.checkpoint(1)
    script.sweep("b", former)


def seals_the_living(script: Script) -> None:
    """A node is taken for dead wrongly: it loses a partition, and claims the other again."""
    script.own(0, "a")
    script.own(1, "a")
    script.write(0)
    script.write(1)
    script.send_away("a")
    script.own(0, "b")
    script.write(0)
    script.write(1)
    script.checkpoint(1)
    script.trim("a")


SCENES: Final[tuple[Scene, ...]] = (writes, trims, hands_over, takes_over, seals_the_living)


def _crash(script: Script, name: str) -> None:
    node = script.node(name)
    if node.process is not None:
        script.crash(node, node.process)


def _send_away(script: Script, name: str) -> None:
    """The other node takes over what is owned by one that handles no event."""
    script.send_away(name)
    place = script.nodes.index(script.node(name))
    script.desired = [1 - node if node == place else node for node in script.desired]


DISTURBANCES: Final[tuple[Callable[[Script, str], None], ...]] = (_crash, _send_away)


def event_count(scene: Scene) -> int:
    """Return how many events *scene* has when nothing disturbs it."""
    script = Script(scene)
    script.run()
    return script.scene_count


def play(
    scene: Scene,
    disturbance: Callable[[Script, str], None],
    name: str,
    at: int,
    *,
    traced: bool = False,
) -> ScheduleOutcome:
    """Play *scene* with a *disturbance* of the node *name* just before the event *at*."""

    def disturb(script: Script, event: int) -> None:
        if event == at:
            disturbance(script, name)

    return Script(scene, disturb, traced=traced).run()


def crash_points(scene: Scene) -> Iterator[tuple[str, ScheduleOutcome]]:
    """Play *scene* with each disturbance of each node before each event."""
    for at in range(event_count(scene)):
        for disturbance in DISTURBANCES:
            for name in "ab":
                where = f"{scene.__name__}, {disturbance.__name__} of {name} before event {at}"
                yield where, play(scene, disturbance, name, at)
