"""Bringing requests to owners: which error a request ends with."""

from __future__ import annotations

import pytest

from ringpop_py.errors import (
    KeyspaceError,
    KeyspaceUnknown,
    NotEnoughMembers,
    OutcomeUnknown,
    PartitionUnavailable,
    StateDamaged,
    StoreFull,
    StoreUnavailable,
)
from ringpop_py.steward.router import _Journey

OPEN = OutcomeUnknown("lost")
GONE = PartitionUnavailable("gone")
FULL = StoreFull("full")
TROUBLE = StoreUnavailable("trouble")
FEW = NotEnoughMembers("few")
DROPPED = KeyspaceUnknown("dropped")
DAMAGED = StateDamaged("damaged")


@pytest.mark.parametrize(
    ("met", "ends_with"),
    [
        ([GONE], PartitionUnavailable),
        ([OPEN], OutcomeUnknown),
        ([OPEN, GONE], OutcomeUnknown),
        ([TROUBLE], StoreUnavailable),
        ([TROUBLE, GONE], OutcomeUnknown),
        ([FULL], StoreFull),
        ([FULL, GONE], PartitionUnavailable),
        ([OPEN, FULL], OutcomeUnknown),
        ([TROUBLE, FULL], OutcomeUnknown),
        ([FEW], NotEnoughMembers),
        ([OPEN, FEW], OutcomeUnknown),
        ([GONE, DAMAGED], StateDamaged),
        ([OPEN, DAMAGED], OutcomeUnknown),
        ([OPEN, DROPPED], OutcomeUnknown),
        ([GONE, DROPPED], KeyspaceUnknown),
    ],
)
def test_a_write_is_said_not_to_have_run_only_if_no_attempt_may_have(
    met: list[KeyspaceError], ends_with: type[KeyspaceError]
) -> None:
    journey = _Journey()
    for error in met:
        journey.meet(error)

    assert type(journey.end(changes_state=True)) is ends_with


def test_a_read_that_met_a_full_store_last_says_so() -> None:
    journey = _Journey()
    for error in (OPEN, FULL):
        journey.meet(error)

    assert type(journey.end(changes_state=False)) is StoreFull
