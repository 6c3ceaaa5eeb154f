"""What stewards see in tests: members by name, with statuses that a test sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.member.swim.member import Status
from ringpop_py.state.placement.assignment import Assignments
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.placement.table import PartitionStatus, TableRow

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND = 1_000_000


class Members:
    """The members as *name* sees them: those in the ring, and the statuses of others."""

    def __init__(self, name: str, *others: str) -> None:
        self.name = name
        self.ready = True
        self.statuses = dict.fromkeys((name, *others), Status.ALIVE)
        self.left_out: set[str] = set()
        self.silent: set[str] = set()

    def owners(self) -> Sequence[str]:
        """Those that may own partitions."""
        there = (Status.ALIVE, Status.SUSPECT)
        return sorted(n for n, s in self.statuses.items() if s in there and n not in self.left_out)

    def status_of(self, name: str) -> Status | None:
        """The status of a member, if there is one of that name."""
        return self.statuses.get(name)

    def is_silent(self, name: str) -> bool:
        """Whether a member is suspect and not reached."""
        return name in self.silent


def assignments(partitions: int = 1, min_cluster_size: int = 1) -> Assignments:
    """The assignments of a keyspace of so many partitions."""
    definition = Definition(name="k", partitions=partitions, min_cluster_size=min_cluster_size)
    return Assignments(definition)


def served(number: int, owner: str, epoch: int = 1) -> TableRow:
    """The row of a partition that *owner* serves."""
    return TableRow(number, owner=owner, epoch=epoch, status=PartitionStatus.ONLINE)
