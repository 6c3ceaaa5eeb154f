"""The table of partitions: which member should own each, which one does, and since which epoch.

The log of a partition says which node owns it. The table is what a node knows of all the logs: from
its own partitions, from the store, and from peers. Rows merge to the same table in whatever order
they arrive, and however often: they form a semilattice.

The owner that a partition *should* have (`TableRow.desired`) is each node's own conclusion from the
ring. So a table never merges a peer's. Membership, not a row, decides whether an owner is dead.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import Declared, Meta, Natural, Text, astuple, convert
from ringpop_py.base.values.packed import INTEGER_MAX
from ringpop_py.state.journal.records import ORIGIN, Slot
from ringpop_py.state.placement.keys import NOBODY, PARTITIONS_MAX, hash_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_DIGEST_MASK: Final = (1 << 64) - 1


class PartitionStatus(IntEnum):
    """The state of a partition. Within one epoch it only moves down this list."""

    UNASSIGNED = 0
    """No member ever owned it, and none is meant to yet."""
    ASSIGNED = 1
    """No member ever owned it, but one is meant to."""
    ONLINE = 2
    """Its owner serves it, as far as this node knows."""
    MIGRATING = 3
    """Its owner has released it to another member, which has not claimed it yet."""
    OFFLINE = 4
    """Its epoch has ended, and no particular member is meant to go on."""

    @property
    def label(self) -> str:
        """The status as tables show it."""
        return self.name.lower()


_UNASSIGNED, _ASSIGNED, _ONLINE, _MIGRATING, _OFFLINE = PartitionStatus
LEGAL_STEPS: Final = frozenset(
    {
        (_UNASSIGNED, _ASSIGNED),
        # Claims. From ONLINE, too: a successor of a dead owner seals and claims in one go.
        (_ASSIGNED, _ONLINE),
        (_ONLINE, _ONLINE),
        (_MIGRATING, _ONLINE),
        (_OFFLINE, _ONLINE),
        (_ONLINE, _MIGRATING),
        (_ONLINE, _OFFLINE),
        (_MIGRATING, _OFFLINE),
    }
)
"""Allowed steps, (from, to). Only a step to ONLINE, which is a claim, begins a later epoch."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One partition. A name is `NOBODY` if there is no such member.

    Methods that return a later row raise ValueError if that step is illegal, which would be a bug.

    Attributes:
        desired: the member that should own it, in the view of the node whose table this is.
        owner: the member that claimed it last; it may no longer serve it (see *status*).
        previous: the owner in the epoch before.
        epoch: the epoch of the last claim that is known; 0 before the first.
        checkpoint: the newest checkpoint that is known. It does not make rows differ, because
            checkpoints are frequent, and a node that needs one lists them.
    """

    partition: int
    desired: str = NOBODY
    owner: str = NOBODY
    previous: str = NOBODY
    epoch: int = 0
    status: PartitionStatus = PartitionStatus.UNASSIGNED
    checkpoint: Slot = ORIGIN

    @property
    def moving(self) -> bool:
        """Whether the partition is on its way from one member to another, or should be."""
        return self.status is _MIGRATING or NOBODY != self.owner != self.desired != NOBODY

    @property
    def facts(self) -> tuple[int, PartitionStatus, str, str]:
        """What the log says; of two rows, the greater one has the later facts."""
        return self.epoch, self.status, self.owner, self.previous

    @property
    def fingerprint(self) -> int:
        """64 bits of the facts, equal on all nodes for equal facts."""
        owner_length = len(self.owner)  # keeps ("a", "bc") and ("ab", "c") apart
        numbers = f"{self.partition} {self.epoch} {int(self.status)} {owner_length} "
        return hash_text(numbers + self.owner + self.previous)

    # -- steps -----------------------------------------------------------------------------

    def assigned(self, desired: str) -> TableRow:
        """Return the row with the owner that it should have. A row is never unassigned again."""
        if desired == NOBODY:
            raise _illegal(self, "cannot be unassigned")
        status = _ASSIGNED if self.status is _UNASSIGNED else self.status
        return replace(self, desired=desired, status=status)

    def claimed(self, owner: str, epoch: int) -> TableRow:
        """Return the row after *owner* has claimed the partition in a later *epoch*."""
        if epoch <= self.epoch or owner == NOBODY:
            raise _illegal(self, f"cannot be claimed by {owner!r} in epoch {epoch}")
        return replace(self._step(_ONLINE), owner=owner, previous=self.owner, epoch=epoch)

    def released(self, to: str = NOBODY) -> TableRow:
        """Return the row after its owner stopped serving; *to* is to claim it, if not `NOBODY`."""
        return self._step(_MIGRATING if to != NOBODY else _OFFLINE)

    def checkpointed(self, checkpoint: Slot) -> TableRow:
        """Return the row with a checkpoint of the state after that slot."""
        return replace(self, checkpoint=max(self.checkpoint, checkpoint))

    def _step(self, status: PartitionStatus) -> TableRow:
        if (self.status, status) not in LEGAL_STEPS:
            raise _illegal(self, f"cannot become {status.label}")
        return replace(self, status=status)


def _illegal(row: TableRow, what: str) -> ValueError:
    return ValueError(f"partition {row.partition} is {row.status.label} and {what}")


def merged(ours: TableRow, theirs: TableRow) -> TableRow:
    """Merge two rows: the later facts, the later checkpoint, and our own *desired*.

    A later epoch wins; within one epoch, the later status.
    """
    assert ours.partition == theirs.partition
    # Nothing else can differ, because an epoch has one claim. If it differs all the same (a peer
    # lies), the greater name wins everywhere.
    later = max(ours, theirs, key=lambda row: row.facts)
    checkpoint = max(ours.checkpoint, theirs.checkpoint)
    return replace(later, desired=ours.desired, checkpoint=checkpoint)


class PartitionOwners(Declared, frozen=True):
    """Which member serves each partition of a keyspace, as far as one member knows.

    Attributes:
        epoch: rises with each claim of any partition, and so with each change of an owner: from any
            member, of two answers about one generation the one with the greater epoch has the later
            owners. Equal epochs mean equal owners once news have spread, which takes a moment. A
            member that has just started knows less, and so has a lower one: after all members have
            ended, it is above what it was once each partition was claimed again.
        members: by partition; empty where a partition is on its way, or no member serves it.
    """

    epoch: Natural
    members: tuple[Text, ...]

    def of(self, member: str) -> list[int]:
        """Return the partitions that *member* serves."""
        return [number for number, name in enumerate(self.members) if name == member]


class ServedElsewhere(Exception):
    """Another member serves the partition: *row*, as `to_rows` makes it, names that member.

    It is raised so that the usual answer, a partition that is here, costs nothing.
    """

    def __init__(self, row: list[Any]) -> None:
        super().__init__()
        self.row = row


class Table:
    """The rows of one generation of a keyspace, one for each partition.

    A node changes the rows of its own partitions with `put`, and merges those of others with
    `merge`. Two nodes make their tables equal with `digest`, `fingerprints` and `delta`. They
    compare digests. If those differ, one sends its fingerprints, and the other answers with the
    `delta`. The first then sends back those of its rows that the delta did not supersede.

    Attributes:
        digest: a sum over the rows' fingerprints, equal for equal facts, whatever their history.
        epoch: of the assignment: the sum of the rows' epochs; see `PartitionOwners`.
    """

    def __init__(self, keyspace: str, generation: int, partitions_count: int) -> None:
        assert 0 < partitions_count <= PARTITIONS_MAX
        self.keyspace = keyspace
        self.generation = generation
        self._rows = [TableRow(partition) for partition in range(partitions_count)]
        self._fingerprints = [row.fingerprint for row in self._rows]
        self.digest = sum(self._fingerprints) & _DIGEST_MASK
        self.epoch = 0
        self._claimed = False

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[TableRow]:
        return iter(tuple(self._rows))

    def __getitem__(self, partition: int) -> TableRow:
        return self._rows[partition]

    # -- changes ---------------------------------------------------------------------------

    def desire(self, owners: Sequence[str]) -> list[TableRow]:
        """Set the owner that each partition should have; return the rows that this changed."""
        assert len(owners) == len(self._rows)
        changed = []
        for row, desired in zip(self._rows, owners, strict=True):
            if row.desired != desired:
                changed.append(row.assigned(desired))
                self._replace(changed[-1])
        return changed

    def note_claims(self) -> None:
        """Note that the store has claims of partitions: an earlier process had them assigned."""
        self._claimed = True

    def put(self, row: TableRow) -> None:
        """Replace the row of a partition by *row*: a step that this node made."""
        ours = self._rows[row.partition]
        if row.facts < ours.facts:
            raise _illegal(ours, f"in epoch {ours.epoch}, later than {row.status.label}")
        self._replace(row)

    def merge(self, rows: Iterable[TableRow]) -> list[TableRow]:
        """Merge the rows of a peer; return our rows of which the peer knew later facts.

        Raises:
            BodyError: if a row is of a partition that this keyspace does not have. Nothing changed.
        """
        theirs = tuple(rows)
        # All are checked before the first is merged, so that an error leaves the table as it was.
        if not all(0 <= row.partition < len(self._rows) for row in theirs):
            raise BodyError(
                f"keyspace {self.keyspace!r} has {len(self._rows)} partitions, but a row is of"
                " another one; do all members have the same definition?"
            )
        news: dict[int, None] = {}  # a set that keeps the order
        for row in theirs:
            ours = self._rows[row.partition]
            row_now = merged(ours, row)
            if row_now != ours:
                self._replace(row_now)
            if row_now.facts != ours.facts:
                news[row.partition] = None
        return [self._rows[partition] for partition in news]

    def _replace(self, row: TableRow) -> None:
        at = row.partition
        before, after = self._fingerprints[at], row.fingerprint
        self.epoch += row.epoch - self._rows[at].epoch
        self._rows[at] = row
        self._fingerprints[at] = after
        # A sum, so that one row's change costs the same whatever the number of partitions.
        self.digest = (self.digest - before + after) & _DIGEST_MASK

    # -- questions -------------------------------------------------------------------------

    def owned_by(self, member: str) -> list[int]:
        """Return the partitions that *member* serves."""
        return [partition for partition, owner in enumerate(self.owners()) if owner == member]

    def owners(self) -> tuple[str, ...]:
        """Return the member that serves each partition, or `NOBODY`."""
        return tuple(row.owner if row.status is _ONLINE else NOBODY for row in self._rows)

    def counts(self) -> Counter[str]:
        """Return how many partitions each member serves, without members that serve none."""
        return Counter(owner for owner in self.owners() if owner != NOBODY)

    def busiest_over_mean(self, members_count: int) -> float:
        """Return the most that one member serves, over the mean of *members_count*; 0 if none."""
        counts = self.counts()
        return max(counts.values()) * members_count / counts.total() if counts else 0.0

    def statuses(self) -> dict[str, int]:
        """Return how many partitions have each status, by its label."""
        counts = Counter(row.status for row in self._rows)
        return {status.label: counts[status] for status in PartitionStatus}

    @property
    def moving(self) -> tuple[TableRow, ...]:
        """The partitions on their way from one owner to another; a rebalance waits for them."""
        return tuple(row for row in self._rows if row.moving)

    @property
    def assigned(self) -> bool:
        """Whether any partition was ever assigned; this is never taken back."""
        return self._claimed or any(row.status is not _UNASSIGNED for row in self._rows)

    # -- exchange --------------------------------------------------------------------------

    def fingerprints(self) -> list[int]:
        """Return 64 bits a row, in the order of partitions: a peer's input for its `delta`."""
        return list(self._fingerprints)

    def delta(self, fingerprints: Sequence[int]) -> list[TableRow]:
        """Return our rows whose facts differ from those with *fingerprints*.

        Raises:
            BodyError: if their number is not the number of partitions.
        """
        if len(fingerprints) != len(self._rows):
            raise BodyError(
                f"{len(self._rows)} fingerprints were expected, not {len(fingerprints)}"
            )
        pairs = zip(self._rows, self._fingerprints, fingerprints, strict=True)
        return [row for row, ours, theirs in pairs if ours != theirs]


# -- rows as plain lists -------------------------------------------------------------------


def to_rows(rows: Iterable[TableRow]) -> list[Any]:
    """Encode *rows* as lists, numbers and text: first all names, each once, then a list a row."""
    index_of: dict[str, int] = {}

    def index(name: str) -> int:
        return index_of.setdefault(name, len(index_of))

    plain = [
        [
            row.partition,
            index(row.desired),
            index(row.owner),
            index(row.previous),
            row.epoch,
            int(row.status),
            *row.checkpoint,
        ]
        for row in rows
    ]
    return [list(index_of), *plain]


class _Columns(Declared, frozen=True):
    partition: Natural
    desired: Natural
    owner: Natural
    previous: Natural
    epoch: Annotated[int, Meta(ge=0, lt=INTEGER_MAX)]  # it has a successor
    status: PartitionStatus
    checkpoint_epoch: Natural
    checkpoint_sequence: Natural


_Lists = Annotated[list[list[Any]], Meta(min_length=1)]


def from_rows(value: object, partitions_count: int) -> list[TableRow]:
    """Decode rows that `to_rows` encoded.

    Raises:
        BodyError: if *value* is not a list of rows, or a row cannot be one of this keyspace.
    """
    first, *plain = convert(_Lists, value)
    if len(plain) > partitions_count:
        raise BodyError(
            f"a table has {len(plain)} rows for a keyspace of {partitions_count} partitions"
        )
    names = convert(tuple[Text, ...], first)
    found = convert(tuple[_Columns, ...], plain)
    return [_row_of(columns, names, partitions_count) for columns in found]


def _row_of(columns: _Columns, names: Sequence[str], partitions_count: int) -> TableRow:
    partition, desired, owner, previous, epoch, status, *checkpoint = astuple(columns)
    if partition >= partitions_count or max(desired, owner, previous) >= len(names):
        raise BodyError(f"a row of a table has a number out of its range: {columns}")
    row = TableRow(
        partition, names[desired], names[owner], names[previous], epoch, status, Slot(*checkpoint)
    )
    claimed = row.epoch > 0
    # A claim makes the epoch, the owner and the status; so a row has all three, or none of them.
    is_possible = (
        claimed == (row.status >= _ONLINE) == (row.owner != NOBODY)
        and (claimed or row.previous == NOBODY)
        and row.checkpoint.epoch <= row.epoch
    )
    if not is_possible:
        raise BodyError(
            f"partition {partition} is {row.status.label}, which contradicts its row's epoch"
        )
    return row
