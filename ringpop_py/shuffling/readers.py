"""A shuffle as other libraries read it: an epoch for training, and a lazy frame of polars."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import pyarrow as pa

from ringpop_py.errors import ShuffleConflict, ShuffleRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.shuffle.record import Record

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


class Epoch:
    """Part *rank* of *world* of all rows, batch by batch; it can be interrupted and resumed.

    An epoch is iterated once. The next interval is fetched while this one is used. Without
    *number*, the rows come in the order of the shuffle; with it, its intervals come in another
    order for each number, the same on all ranks. (`ShuffleClient.reorder` reorders all rows.)

    Args:
        opens: opens the shuffle; the epoch closes it in the end.
    """

    def __init__(
        self,
        opens: Opens,
        rank: int,
        world: int,
        *,
        number: int | None = None,
        batch_rows: int = BATCH_ROWS,
        columns: list[str] | None = None,
    ) -> None:
        if not 0 <= rank < world:
            raise ShuffleRefused(f"rank is 0 to {world - 1}, not {rank}")
        if batch_rows < 1:
            raise ShuffleRefused(f"batch_rows is at least 1, not {batch_rows}")
        self._opens = opens
        self._rank = rank
        self._world = world
        self._number = number
        self._batch_rows = batch_rows
        self._columns = columns
        self._uid = 0
        self._place = 0
        self._row = 0

    def state_dict(self) -> dict[str, int]:
        """Return how far it is: what was yielded is not yielded again after `load_state_dict`."""
        return {"uid": self._uid, "place": self._place, "row": self._row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where the epoch was that returned *state*, with the same arguments."""
        self._uid, self._place, self._row = state["uid"], state["place"], state["row"]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches. Raises as `ShuffleClient.interval`."""
        with self._opens() as client, ThreadPoolExecutor(1) as ahead:
            client.wait()
            if self._uid not in (0, client.record.uid):
                raise ShuffleConflict(f"shuffle {client.name!r} was created anew since that state")
            self._uid = client.record.uid
            numbers = self._intervals(client.record.interval_count)
            coming = None
            while self._place < len(numbers):
                if coming is None:
                    coming = ahead.submit(client.interval, numbers[self._place])
                table = coming.result()
                following = numbers[self._place + 1 : self._place + 2]
                coming = ahead.submit(client.interval, following[0]) if following else None
                yield from self._batches(table)
                self._place, self._row = self._place + 1, 0

    def _batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        if self._columns is not None:
            table = table.select(self._columns)
        table = table.combine_chunks()
        while self._row < table.num_rows:
            part = table.slice(self._row, self._batch_rows)
            # Before it is yielded: the caller may ask for the state as soon as it has the batch.
            self._row += part.num_rows
            yield from part.to_batches()

    def _intervals(self, count: int) -> list[int]:
        numbers = list(range(count))
        if self._number is not None:
            random.Random(self._number).shuffle(numbers)
        return numbers[count * self._rank // self._world : count * (self._rank + 1) // self._world]


def torch_dataset(epoch_of: Callable[[int, int], Epoch], rank: int, world: int) -> Any:  # noqa: ANN401 - torch's
    """Return an ``IterableDataset`` of dicts of tensors and lists; see `ShuffleClient.torch`.

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
            self._state: dict[str, int] | None = None

        def __iter__(self) -> Iterator[dict[str, Any]]:
            info = get_worker_info()
            number, count = (0, 1) if info is None else (info.id, info.num_workers)
            self._epoch = epoch_of(rank * count + number, world * count)
            if self._state is not None:
                self._epoch.load_state_dict(self._state)
                self._state = None
            for batch in self._epoch:
                yield tensors_of(batch)

        def state_dict(self) -> dict[str, int]:
            if self._state is not None:
                return self._state
            return self._epoch.state_dict() if self._epoch is not None else {}

        def load_state_dict(self, state: dict[str, int]) -> None:
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
