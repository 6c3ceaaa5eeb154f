"""A shuffle as other libraries read it: an epoch for training, and a lazy frame of polars."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, get_args

import pyarrow as pa

from ringpop_py.base.errors import ShuffleConflict, ShuffleRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ringpop_py.flow.shuffle.protocol.record import Record

BATCH_ROWS: Final = 1_024


class Opened(Protocol):
    """The part of a `ShuffleClient` that readers need."""

    name: str

    @property
    def record(self) -> Record:
        """The record as it was read last."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    def interval(self, number: int) -> pa.Table:
        """Return the rows of an interval, in order."""

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the shuffle can be read."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


Opens = Callable[[], Opened]


Uneven = Literal["keep", "drop", "pad"]
"""If the ranks cannot have equally many rows: all rows are kept, and some ranks have one row more
than others; the last rows are dropped; or the first rows come once more."""
EpochState = dict[str, int | str | None]


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of an epoch that one reader has; readers with other parts have the others.

    Attributes:
        rank, world: which part of all rows.
        number: of the epoch: the order of the intervals; None for that of the shuffle.
        worker, workers: which part of the rows of the rank.

    Raises:
        ShuffleRefused: if there is no such part.
    """

    rank: int
    world: int
    number: int | None
    uneven: Uneven = "keep"
    worker: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        """See the class."""
        if not 0 <= self.rank < self.world:
            raise ShuffleRefused(f"rank is 0 to {self.world - 1}, not {self.rank}")
        if self.uneven not in get_args(Uneven):
            raise ShuffleRefused(f"uneven is one of {get_args(Uneven)}, not {self.uneven!r}")

    def positions(self, total: int) -> range:
        """Return its positions among *total* rows; the first row follows the last one."""
        if self.uneven == "keep":
            first, end = (total * rank // self.world for rank in (self.rank, self.rank + 1))
        else:
            size = total // self.world if self.uneven == "drop" else -(-total // self.world)
            first, end = size * self.rank, size * (self.rank + 1)
        size = end - first
        return range(
            first + size * self.worker // self.workers,
            first + size * (self.worker + 1) // self.workers,
        )

    def slices(self, sizes: Sequence[int], row: int) -> list[tuple[int, int, int]]:
        """Return an interval, its first row and a count of rows, for each that it reads in order.

        Args:
            sizes: the rows of each interval.
            row: how many of its rows were read before.
        """
        numbers = list(range(len(sizes)))
        if self.number is not None:
            random.Random(self.number).shuffle(numbers)
        starts = list(accumulate((sizes[number] for number in numbers), initial=0))
        found = []
        wanted = self.positions(starts[-1])[row:]
        at, left = wanted.start, len(wanted)
        while left:
            at %= starts[-1]
            place = bisect_right(starts, at) - 1
            count = min(left, starts[place + 1] - at)
            found.append((numbers[place], at - starts[place], count))
            at, left = at + count, left - count
        return found


class Epoch:
    """The rows of *part*, batch by batch; it can be interrupted and resumed.

    An epoch is iterated once. The next interval is fetched while this one is used. Without a
    number, the rows come in the order of the shuffle; with it, its intervals come in another
    order for each number, the same on all ranks. (`ShuffleClient.reorder` reorders all rows.)

    Args:
        opens: opens the shuffle; the epoch closes it in the end.
    """

    def __init__(
        self,
        opens: Opens,
        part: Part,
        *,
        batch_rows: int = BATCH_ROWS,
        columns: list[str] | None = None,
    ) -> None:
        if batch_rows < 1:
            raise ShuffleRefused(f"batch_rows is at least 1, not {batch_rows}")
        self._opens = opens
        self._part = part
        self._batch_rows = batch_rows
        self._columns = columns
        self._shuffle = ""  # its name and uid are known when it was opened
        self._uid = 0
        self._row = 0

    def state_dict(self) -> EpochState:
        """Return how far it is: what was yielded is not yielded again after `load_state_dict`.

        It also names the shuffle and the part, as the state of another part is of no use here.
        """
        at: EpochState = {"shuffle": self._shuffle, "uid": self._uid, "row": self._row}
        return at | asdict(self._part)

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on where the epoch was that returned *state*, with the same arguments.

        Raises:
            ShuffleRefused: *state* is not a state of an epoch.
            ShuffleConflict: it is of another rank, world or number. A state of another shuffle is
                noticed when the epoch is iterated.
        """
        ours = asdict(self._part)
        lacking = [name for name in ("shuffle", "uid", "row", *ours) if name not in state]
        if lacking:
            raise ShuffleRefused(f"it is not a state of an epoch: it lacks {', '.join(lacking)}")
        others = [name for name in ours if state[name] != ours[name]]
        if others:
            theirs = ", ".join(f"{name}={state[name]!r}" for name in others)
            here = ", ".join(f"{name}={ours[name]!r}" for name in others)
            raise ShuffleConflict(
                f"the state is of an epoch with {theirs}, and this one has {here}: rows would be "
                "missing or come twice; give each epoch its own state, with the same arguments"
            )
        shuffle, uid, row = state["shuffle"], state["uid"], state["row"]
        if type(shuffle) is not str or type(uid) is not int or type(row) is not int or row < 0:
            said = f"shuffle {shuffle!r}, uid {uid!r} and row {row!r}"
            raise ShuffleRefused(f"it is not a state of an epoch: it says {said}")
        self._shuffle, self._uid, self._row = shuffle, uid, row

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches. Raises as `ShuffleClient.interval`."""
        with self._opens() as client:
            client.wait()
            record = client.record
            if self._shuffle not in ("", client.name):
                raise ShuffleConflict(
                    f"the state is of shuffle {self._shuffle!r}, and this one is {client.name!r}: "
                    "give each epoch its own state"
                )
            if self._uid not in (0, record.uid):
                raise ShuffleConflict(
                    f"shuffle {client.name!r} was created anew since that state: begin the epoch "
                    "without a state"
                )
            self._shuffle, self._uid = client.name, record.uid
            slices = self._part.slices([each.rows for each in record.intervals], self._row)
            yield from self._batches(_tables(client, slices))

    def _batches(self, tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        held: list[pa.Table] = []
        room = self._batch_rows
        for each in tables:
            table = each if self._columns is None else each.select(self._columns)
            while table.num_rows:
                held.append(table.slice(0, room))
                table = table.slice(room)
                room -= held[-1].num_rows
                if not room:
                    yield from self._batch(held)
                    held, room = [], self._batch_rows
        if held:
            yield from self._batch(held)

    def _batch(self, held: list[pa.Table]) -> Iterator[pa.RecordBatch]:
        for batch in pa.concat_tables(held).combine_chunks().to_batches():
            # Before it is yielded: the caller may ask for the state as soon as it has the batch.
            self._row += batch.num_rows
            yield batch


def _tables(client: Opened, slices: Sequence[tuple[int, int, int]]) -> Iterator[pa.Table]:
    with ThreadPoolExecutor(1) as ahead:
        coming = [ahead.submit(client.interval, number) for number, _, _ in slices[:1]]
        for at, (_, first, count) in enumerate(slices, 1):
            table = coming.pop().result()
            coming = [ahead.submit(client.interval, number) for number, _, _ in slices[at : at + 1]]
            yield table.slice(first, count)


def torch_dataset(epoch_of: Callable[[int, int], Epoch]) -> Any:  # noqa: ANN401 - torch's
    """Return an ``IterableDataset`` of dicts of tensors and lists; see `ShuffleClient.torch`.

    Args:
        epoch_of: returns the epoch of a worker, by its number and the count of workers.

    Raises:
        ShuffleRefused: if torch is not installed.
    """
    try:
        from torch.utils.data import IterableDataset, get_worker_info  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise ShuffleRefused("torch is not installed: pip install torch") from None

    class ShuffleDataset(IterableDataset):  # type: ignore[misc] # of any type
        """Batches as dicts. With workers of a DataLoader, each has a part of the rank's part."""

        def __init__(self) -> None:
            self._epoch: Epoch | None = None
            self._state: EpochState | None = None

        def __iter__(self) -> Iterator[dict[str, Any]]:
            info = get_worker_info()
            number, count = (0, 1) if info is None else (info.id, info.num_workers)
            self._epoch = epoch_of(number, count)
            if self._state is not None:
                self._epoch.load_state_dict(self._state)
                self._state = None
            for batch in self._epoch:
                yield tensors_of(batch)

        def state_dict(self) -> EpochState:
            if self._state is not None:
                return self._state
            return self._epoch.state_dict() if self._epoch is not None else {}

        def load_state_dict(self, state: EpochState) -> None:
            self._state = state or None

    return ShuffleDataset()


def tensors_of(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return numbers and booleans of *batch* as tensors, and other columns as lists."""
    import torch  # noqa: PLC0415 - an extra

    found: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = column.type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if (is_number or pa.types.is_boolean(kind)) and not column.null_count:
            # Arrow's memory cannot be written, which torch warns of.
            found[name] = torch.from_numpy(column.to_numpy(zero_copy_only=False).copy())
        else:
            found[name] = column.to_pylist()
    return found


def lazy_frame(opens: Opens) -> Any:  # noqa: ANN401 - of polars
    """Return a ``LazyFrame`` of all rows, in order; see `ShuffleClient.lazy`.

    Raises:
        ShuffleRefused: if polars is not installed.
    """
    try:
        import polars as pl  # noqa: PLC0415 - an extra
        from polars.io.plugins import register_io_source  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ShuffleRefused("polars is not installed: pip install polars") from None
    with opens() as client:
        empty = pl.DataFrame(client.schema.empty_table())

    def frames(
        with_columns: list[str] | None,
        predicate: Any,  # noqa: ANN401 - an expression
        n_rows: int | None,
        batch_size: int | None,  # noqa: ARG001 - an interval is one batch
    ) -> Iterator[Any]:
        left = n_rows
        with opens() as client:
            client.wait()
            for number in range(client.record.interval_count):
                frame = pl.DataFrame(client.interval(number))
                if left is not None:  # polars counts the rows before it filters them
                    frame = frame.head(left)
                    left -= len(frame)
                frame = frame if predicate is None else frame.filter(predicate)
                frame = frame if with_columns is None else frame.select(with_columns)
                yield frame
                if left == 0:
                    return

    return register_io_source(frames, schema=empty.schema)
