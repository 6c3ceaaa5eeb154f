"""Oracles that break on purpose, for tests of what is done about broken invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from ringpop_py.member.swim.effects import StatusChanged
from ringpop_py.member.swim.member import Status
from ringpop_sim.checks import Check
from ringpop_sim.runs.run import Run

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_sim.world.process import Process


class NobodyIsFaulty(Check):
    """Breaks as soon as anyone is declared faulty."""

    invariants: ClassVar[tuple[str, ...]] = ("T1",)

    def fact(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, StatusChanged) and effect.via == "timer" and effect.after is not None:
            row = effect.after
            if row.status is Status.FAULTY:
                self.broke("T1", f"{process.name} holds {row.name} for faulty")


@pytest.fixture
def nobody_is_faulty(monkeypatch: pytest.MonkeyPatch) -> type[Check]:
    """An oracle that a crash breaks, among those that every run is held against."""
    monkeypatch.setattr(Run, "ORACLES", (NobodyIsFaulty,))
    return NobodyIsFaulty
