"""Directed schedules: what chance seldom finds, step by step.

Each is sound with the product as it is. Each breaks for some of the broken variants in the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.records import Group
from tests.sim.state.journal.scripts import Script

if TYPE_CHECKING:
    from ringpop_sim.state.journal.sweep import ScheduleOutcome
    from tests.sim.state.journal.scripts import Scene


def _commits(request: fx.Request) -> bool:
    return isinstance(request, fx.PutSlot) and isinstance(request.record, Group)


def _gets(request: fx.Request) -> bool:
    return isinstance(request, fx.GetSlot)


def _claims(request: fx.Request) -> bool:
    return isinstance(request, fx.PutClaim)


def _claims_the_first(request: fx.Request) -> bool:
    return isinstance(request, fx.PutClaim) and request.partition == 0


def late_reader(script: Script) -> None:
    """A look is answered late; it must not serve a reader that came after it was asked."""
    script.own(0, "a")
    script.write(0)
    look = script.answers("a", _gets)
    script.read(0, "a")
    script.needs(look.has)
    script.steal(0, "b")
    script.write(0)
    script.read(0, "a")
    look.open()


def running_commit(script: Script) -> None:
    """A commit is answered late; it must not serve a reader that came after it was put."""
    script.own(0, "a")
    script.own(1, "a")
    put = script.answers("a", _commits)
    script.begin_write(1, "a")
    script.needs(put.has)
    script.steal(0, "b")
    script.write(0)
    script.read(0, "a")
    put.open()


def open_outcome(script: Script) -> None:
    """Others count, cover and delete the group under way, and a late seal takes its place."""
    script.own(0, "a")
    script.own(1, "a")
    journal = script.process("a").journal.name
    seal = script.late_seal(0, "b")
    put = script.answers("a", _commits)
    script.begin_write(0, "a")
    script.needs(put.has)
    script.steal(0, "b")
    script.checkpoint(0)
    script.sweep("b", journal)
    seal.open()
    script.passes()
    put.fail()
    script.needs(lambda: script.process("a").journal.name != journal)


def deleted_group(script: Script) -> None:
    """The group under way, a release, is counted, covered and deleted while its slot is looked at.

    So the slot is taken, and then it is empty.
    """
    script.own(0, "a")
    script.own(1, "a")
    journal = script.process("a").journal.name
    put, get = script.answers("a", _commits), script.requests("a", _gets)
    script.desired[0] = 1
    script.needs(put.has)
    put.fail()
    script.needs(get.has)
    script.own(0, "b")
    script.write(0)
    script.checkpoint(0)
    script.sweep("b", journal)
    get.open()


def late_seal(script: Script) -> None:
    """A recovery that listed long ago reads a late seal, in a slot that was deleted since."""
    script.own(0, "a")
    seal = script.late_seal(0, "b")
    get = script.requests("b", _gets)
    script.contend(0, "b")
    script.needs(get.has)
    script.write(0)
    script.checkpoint(0)
    script.trim("a")
    seal.open()
    script.passes()
    get.open()


def fenced_twice(script: Script) -> None:
    """A journal is sealed while a claim of it is still under way."""
    script.own(0, "a")
    script.own(1, "a")
    slow, late = script.requests("b", _claims), script.answers("a", _claims_the_first)
    script.contend(1, "b")
    script.needs(slow.has)  # the journal is sealed, and a is faster with the next claim
    script.begin_write(1, "a")
    script.needs(late.has)
    script.needs(lambda: script.process("a").parts[1].online)
    slow.open()
    script.steal(1, "b")
    third = script.process("a").journal.name
    script.begin_write(1, "a")
    script.needs(lambda: script.process("a").journal.name != third)
    late.open()


def late_checkpoint(script: Script) -> None:
    """A checkpoint is finished after its owner has gone on in a new journal."""
    script.own(0, "a")
    script.own(1, "a")
    former = script.process("a").journal.name
    for _ in range(3):
        script.write(0)
    put = script.answers("a", lambda request: isinstance(request, fx.PutCheckpoint))
    script.process("a").parts[0].checkpoint(whole=True, lag=False)
    script.steal(1, "b")
    script.write(0)
    script.needs(lambda: script.process("a").journal.name != former)
    script.write(0)
    put.open()
    script.passes()
    script.trim("a")


def late_trim(script: Script) -> None:
    """A journal is sealed while it is being trimmed, and the next one grows longer than it was."""
    script.own(0, "a")
    script.own(1, "a")
    former = script.process("a").journal.name
    script.own(0, "b")
    script.write(1)
    lists = script.requests("a", lambda request: isinstance(request, fx.ListPartition))
    script.process("a").trim()
    script.needs(lists.has)
    script.steal(1, "b")
    script.begin_write(1, "a")
    script.needs(lambda: script.process("a").journal.name != former)
    script.own(1, "a")
    for _ in range(4):
        script.write(1)
    script.checkpoint(0)
    script.checkpoint(1)
    lists.open()
    script.passes()


DIRECTED: Final[tuple[Scene, ...]] = (
    late_reader,
    running_commit,
    open_outcome,
    deleted_group,
    late_seal,
    fenced_twice,
    late_checkpoint,
    late_trim,
)


def run_directed(scene: Scene, *, traced: bool = False) -> ScheduleOutcome:
    """Run the directed schedule *scene*."""
    return Script(scene, traced=traced).run()
