"""The table of partitions: who should own each, who does, and since which epoch.

The log of a partition says who owns it; the table is what a node has heard of all the logs, from
its own partitions, from the store, and from peers. Rows merge to the same table in whatever order
they arrive, and however often: they form a semilattice.

What *should* be (`TableRow.desired`) is each node's own conclusion from the ring, hence a table
keeps its own and takes nobody else's. That an owner is dead is membership's to say, not a row's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, cast

from ringpop_py.errors import BodyError
from ringpop_py.placing.keys import NOBODY, PARTITIONS_MAX, hash_text
from ringpop_py.slotlog.slots import ORIGIN, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NAME_CHARACTERS_MAX: Final = 4_096
NUMBER_MAX: Final = (1 << 63) - 1
_DIGEST_MASK: Final = (1 << 64) - 1


class PartitionStatus(IntEnum):
    """How far a partition is. Within one epoch it only goes down this list."""

    UNASSIGNED = 0
    """Nobody ever owned it, and nobody is meant to yet."""
    ASSIGNED = 1
    """Nobody ever owned it, but somebody is meant to."""
    ONLINE = 2
    """Its owner serves it, as far as is known."""
    MIGRATING = 3
    """Its owner has sealed it for another, which has not claimed it yet."""
    OFFLINE = 4
    """Its epoch has ended, and nobody in particular is to go on."""

    @property
    def label(self) -> str:
        """The status as tables show it."""
        return self.name.lower()


_UNASSIGNED, _ASSIGNED, _ONLINE, _MIGRATING, _OFFLINE = PartitionStatus
LEGAL_STEPS: Final = frozenset(
    {
        (_UNASSIGNED, _ASSIGNED),
        # Claims. From ONLINE, too: who takes over from a dead owner seals and claims at once.
        (_ASSIGNED, _ONLINE),
        (_ONLINE, _ONLINE),
        (_MIGRATING, _ONLINE),
        (_OFFLINE, _ONLINE),
        (_ONLINE, _MIGRATING),
        (_ONLINE, _OFFLINE),
        (_MIGRATING, _OFFLINE),
    }
)
"""From, to. Each step to ONLINE is a claim, which begins a later epoch; no other step does."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One partition. Names are `NOBODY` where there is none.

    Attributes:
        desired: who should own it, in the view of the node whose table this is.
        owner: who claimed it last, and may serve it no more (see *status*).
        previous: who owned it in the epoch before.
        epoch: of the last claim that is known; 0 before the first.
        checkpoint: the newest that is known of. It only rides along: rows that differ in nothing
            else count as equal, for checkpoints are frequent and whoever needs one lists them.
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
        """It is on its way from one to another, or should be."""
        return self.status is _MIGRATING or NOBODY != self.owner != self.desired != NOBODY

    @property
    def facts(self) -> tuple[int, PartitionStatus, str, str]:
        """What the log says; of two rows, the greater has the later facts."""
        return self.epoch, self.status, self.owner, self.previous

    @property
    def fingerprint(self) -> int:
        """64 bits of the facts. Equal on all nodes for equal facts."""
        owner_length = len(self.owner)  # keeps ("a", "bc") and ("ab", "c") apart
        numbers = f"{self.partition} {self.epoch} {int(self.status)} {owner_length} "
        return hash_text(numbers + self.owner + self.previous)

    # -- steps -----------------------------------------------------------------------------

    def assigned(self, desired: str) -> TableRow:
        """It should be owned by *desired*. Once assigned, it is never unassigned.

        Raises:
            ValueError: *desired* is nobody.
        """
        if desired == NOBODY:
            raise _illegal(self, "cannot be unassigned")
        status = _ASSIGNED if self.status is _UNASSIGNED else self.status
        return replace(self, desired=desired, status=status)

    def claimed(self, owner: str, epoch: int) -> TableRow:
        """*owner* has claimed it, and serves it from now on.

        Raises:
            ValueError: the epoch is not later, or nobody was meant to own it: our bug.
        """
        if epoch <= self.epoch or owner == NOBODY:
            raise _illegal(self, f"cannot be claimed by {owner!r} in epoch {epoch}")
        row = self._step(_ONLINE)
        return replace(row, owner=owner, previous=self.owner, epoch=epoch)

    def sealed(self, to: str = NOBODY) -> TableRow:
        """Its owner serves it no more, *to* is to claim it; anybody may if that is `NOBODY`.

        Raises:
            ValueError: nobody owns it: our bug.
        """
        return self._step(_MIGRATING if to != NOBODY else _OFFLINE)

    def checkpointed(self, checkpoint: Slot) -> TableRow:
        """There is a checkpoint of the state after that slot."""
        return replace(self, checkpoint=max(self.checkpoint, checkpoint))

    def _step(self, status: PartitionStatus) -> TableRow:
        if (self.status, status) not in LEGAL_STEPS:
            raise _illegal(self, f"cannot become {status.label}")
        return replace(self, status=status)


def _illegal(row: TableRow, what: str) -> ValueError:
    return ValueError(f"partition {row.partition} is {row.status.label} and {what}")


def merged(ours: TableRow, theirs: TableRow) -> TableRow:
    """The later facts of the two, the later checkpoint, and our own opinion of who should own it.

    A later epoch wins; within one, the later status. More than that cannot differ, because one
    epoch has one claim, but if it did (a peer lies), the greater name wins everywhere.
    """
    assert ours.partition == theirs.partition
    later = max(ours, theirs, key=lambda row: row.facts)
    checkpoint = max(ours.checkpoint, theirs.checkpoint)
    return replace(later, desired=ours.desired, checkpoint=checkpoint)


class Table:
    """The rows of one generation of a keyspace, one for each partition.

    A node changes the rows of its own partitions with `put`, and takes those of others with
    `merge`. `digest`, `fingerprints` and `delta` are for two nodes that make their tables equal:
    they compare digests; if those differ, one sends its fingerprints, the other answers with the
    `delta`, and gets back those of its rows that were no news.

    Attributes:
        digest: a sum over the rows' fingerprints: equal for equal facts, whoever learnt them when.
    """

    def __init__(self, keyspace: str, generation: int, partitions_count: int) -> None:
        assert 0 < partitions_count <= PARTITIONS_MAX
        self.keyspace = keyspace
        self.generation = generation
        self._rows = [TableRow(partition) for partition in range(partitions_count)]
        self._fingerprints = [row.fingerprint for row in self._rows]
        self.digest = sum(self._fingerprints) & _DIGEST_MASK

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[TableRow]:
        return iter(tuple(self._rows))

    def __getitem__(self, partition: int) -> TableRow:
        return self._rows[partition]

    # -- changes ---------------------------------------------------------------------------

    def desire(self, owners: Sequence[str]) -> list[TableRow]:
        """Who should own each partition from now on; the rows that this changed."""
        assert len(owners) == len(self._rows)
        changed = []
        for row, desired in zip(self._rows, owners, strict=True):
            if row.desired != desired:
                changed.append(row.assigned(desired))
                self._replace(changed[-1])
        return changed

    def put(self, row: TableRow) -> None:
        """*row* follows ours of that partition: a step made on this node.

        Raises:
            ValueError: it does not follow, because ours has later facts: our bug.
        """
        ours = self._rows[row.partition]
        if row.facts < ours.facts:
            raise _illegal(ours, f"in epoch {ours.epoch}, later than {row.status.label}")
        self._replace(row)

    def merge(self, rows: Iterable[TableRow]) -> list[TableRow]:
        """Take what others know. The rows, as they are now, of which they knew later facts.

        Raises:
            BodyError: a row is of a partition that this keyspace does not have. Nothing changed.
        """
        theirs = tuple(rows)
        if not all(0 <= row.partition < len(self._rows) for row in theirs):
            message = f"keyspace {self.keyspace!r} has {len(self._rows)} partitions only"
            raise BodyError(message)
        news: dict[int, None] = {}
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
        self._rows[at] = row
        self._fingerprints[at] = after
        self.digest = (self.digest - before + after) & _DIGEST_MASK

    # -- questions -------------------------------------------------------------------------

    def owner_of(self, partition: int) -> str:
        """Whom to ask about a partition: its owner, or who should be while nobody serves it."""
        row = self._rows[partition]
        return row.owner if row.status is _ONLINE else row.desired

    def owned_by(self, member: str) -> list[int]:
        """The partitions that *member* serves."""
        return [row.partition for row in self._rows if _serves(row) and row.owner == member]

    def owners(self) -> tuple[str, ...]:
        """Who serves each partition; `NOBODY` where none does."""
        return tuple(row.owner if _serves(row) else NOBODY for row in self._rows)

    def counts(self) -> Counter[str]:
        """How many partitions each member serves; members that serve none are not in it."""
        return Counter(owner for owner in self.owners() if owner != NOBODY)

    def busiest_over_mean(self, members_count: int) -> float:
        """The most that one member serves, over the mean of *members_count*; 0 if none does."""
        counts = self.counts()
        return max(counts.values()) * members_count / counts.total() if counts else 0.0

    def statuses(self) -> dict[str, int]:
        """How many partitions have which status, by label, all of them."""
        counts = Counter(row.status for row in self._rows)
        return {status.label: counts[status] for status in PartitionStatus}

    @property
    def moving(self) -> tuple[TableRow, ...]:
        """The partitions on their way from one owner to another; a rebalance waits for them."""
        return tuple(row for row in self._rows if row.moving)

    @property
    def assigned(self) -> bool:
        """Somebody was meant to own a partition once; that is never taken back."""
        return any(row.status is not _UNASSIGNED for row in self._rows)

    # -- exchange --------------------------------------------------------------------------

    def fingerprints(self) -> list[int]:
        """64 bits a row, in order of partitions: all that a peer needs for its `delta`."""
        return list(self._fingerprints)

    def delta(self, fingerprints: Sequence[int]) -> list[TableRow]:
        """Our rows whose facts are other than those with *fingerprints*.

        Raises:
            BodyError: there are not as many of them as partitions.
        """
        if len(fingerprints) != len(self._rows):
            message = f"{len(self._rows)} fingerprints were expected, not {len(fingerprints)}"
            raise BodyError(message)
        pairs = zip(self._rows, self._fingerprints, fingerprints, strict=True)
        return [row for row, ours, theirs in pairs if ours != theirs]


def _serves(row: TableRow) -> bool:
    return row.status is _ONLINE


# -- rows as plain lists -------------------------------------------------------------------


def to_rows(rows: Iterable[TableRow]) -> list[Any]:
    """*rows* as lists, numbers and text: first all names, each once, then a list a row."""
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


def from_rows(value: object, partitions_count: int) -> list[TableRow]:
    """The rows that were made plain.

    Raises:
        BodyError: *value* is no list of rows, or a row cannot be one of this keyspace.
    """
    match value:
        case [[*names], *plain]:
            pass
        case _:
            message = "rows of a table should be a list of names, then rows"
            raise BodyError(message)
    if len(plain) > partitions_count:
        message = f"{len(plain)} rows, but {partitions_count} partitions"
        raise BodyError(message)
    if not all(isinstance(name, str) and len(name) <= NAME_CHARACTERS_MAX for name in names):
        message = f"names in a table should be texts of at most {NAME_CHARACTERS_MAX} characters"
        raise BodyError(message)
    checked = cast(list[str], names)
    return [_row_of(row, checked, partitions_count) for row in plain]


_COLUMNS_COUNT: Final = 8


def _row_of(value: object, names: list[str], partitions_count: int) -> TableRow:
    if not isinstance(value, list) or len(value) < _COLUMNS_COUNT:
        message = f"a row of a table should be a list of {_COLUMNS_COUNT} numbers"
        raise BodyError(message)
    numbers = value[:_COLUMNS_COUNT]  # newer peers may add to its end
    limits = (partitions_count, *[len(names)] * 3, NUMBER_MAX, len(PartitionStatus))
    if not all(type(number) is int and 0 <= number <= NUMBER_MAX for number in numbers) or any(
        number >= limit for number, limit in zip(numbers, limits, strict=False)
    ):
        message = "a row of a table has a number that is none, or out of its range"
        raise BodyError(message)
    partition, desired, owner, previous, epoch, status, *checkpoint = numbers
    row = TableRow(
        partition,
        names[desired],
        names[owner],
        names[previous],
        epoch,
        PartitionStatus(status),
        Slot(*checkpoint),
    )
    if not _is_possible(row):
        message = f"partition {partition} cannot be {row.status.label} like that"
        raise BodyError(message)
    return row


def _is_possible(row: TableRow) -> bool:
    claimed = row.epoch > 0
    return (
        claimed == (row.status >= _ONLINE) == (row.owner != NOBODY)
        and (claimed or row.previous == NOBODY)
        and row.checkpoint.epoch <= row.epoch
    )
