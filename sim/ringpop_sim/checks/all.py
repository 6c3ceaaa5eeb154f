"""All oracles, in the order of the invariants that they watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim.checks.damped import DampingIsFair
from ringpop_sim.checks.forgotten import EvictedForgotten
from ringpop_sim.checks.liveness import Converges, CrashesFound, HealsGently
from ringpop_sim.checks.load import MessagesBounded, RestIsQuiet
from ringpop_sim.checks.names import NamesKept
from ringpop_sim.checks.placement import EqualListsEqualRings
from ringpop_sim.checks.probes import NobodySuspected, PausesEndWell, ProbesFail
from ringpop_sim.checks.requests import OwnersHandle, RequestsEnd, RequestsSucceed
from ringpop_sim.checks.rows import IncarnationsIssued, Refutations, RowsRise, StatusesLast

if TYPE_CHECKING:
    from ringpop_sim.checks import Check

ALL: Final[tuple[type[Check], ...]] = (
    RowsRise,
    IncarnationsIssued,
    Refutations,
    StatusesLast,
    NamesKept,
    ProbesFail,
    NobodySuspected,
    PausesEndWell,
    EqualListsEqualRings,
    OwnersHandle,
    RequestsEnd,
    RequestsSucceed,
    MessagesBounded,
    RestIsQuiet,
    Converges,
    CrashesFound,
    HealsGently,
    DampingIsFair,
    EvictedForgotten,
)
