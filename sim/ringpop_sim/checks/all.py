"""All oracles, in the order of the invariants that they watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ringpop_sim.checks import Check

ALL: Final[tuple[type[Check], ...]] = ()
