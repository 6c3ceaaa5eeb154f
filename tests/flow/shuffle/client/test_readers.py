"""Which rows each reader of a shuffle has, and states that it takes back. No cluster, no torch."""

from __future__ import annotations

import json
import sys
from itertools import islice
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa
import pytest

from ringpop_py.base.errors import ShuffleConflict, ShuffleRefused
from ringpop_py.flow.shuffle.client.client import ShuffleClient
from ringpop_py.flow.shuffle.client.readers import Epoch, Part, torch_dataset
from ringpop_py.flow.shuffle.protocol.record import Interval

if TYPE_CHECKING:
    from ringpop_py.flow.shuffle.client.readers import Uneven

SIZES = (7, 0, 5, 9, 1, 8)
ROWS = sum(SIZES)
SCHEMA = pa.schema([("key", pa.int64()), ("text", pa.string())])


class Shuffle:
    """What a client reads: rows whose keys are 0 and up, in intervals of `SIZES`."""

    schema = SCHEMA

    def __init__(self, uid: int = 7, sizes: tuple[int, ...] = SIZES, *, name: str = "mine") -> None:
        self.name = name
        self.sizes = sizes
        intervals = tuple(Interval((), size) for size in sizes)
        self.record = cast("Any", SimpleNamespace(uid=uid, intervals=intervals))

    def interval(self, number: int) -> pa.Table:
        first = sum(self.sizes[:number])
        keys = list(range(first, first + self.sizes[number]))
        return pa.table([keys, list(map(str, keys))], schema=SCHEMA)

    def wait(self, timeout_s: float | None = None) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def epoch_of(part: Part, batch_rows: int = 4, shuffle: Shuffle | None = None) -> Epoch:
    return Epoch(lambda: shuffle or Shuffle(), part, batch_rows=batch_rows)


def keys(batches: list[pa.RecordBatch]) -> list[int]:
    return [key for batch in batches for key in batch.column("key").to_pylist()]


@pytest.mark.parametrize("number", [None, 3])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 7, 40])
def test_ranks_differ_by_one_row_and_each_row_is_at_one(world: int, number: int | None) -> None:
    parts = [list(epoch_of(Part(rank, world, number))) for rank in range(world)]

    assert sorted(key for part in parts for key in keys(part)) == list(range(ROWS))
    rows = {len(keys(part)) for part in parts}
    batches = {len(part) for part in parts}
    assert max(rows) - min(rows) <= 1
    assert max(batches) - min(batches) <= 1
    for part in parts:
        assert all(batch.num_rows == 4 for batch in part[:-1])


@pytest.mark.parametrize("sizes", [SIZES, (2,), ()])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 7, 40])
@pytest.mark.parametrize("uneven", ["drop", "pad"])
def test_ranks_have_equally_many_rows_if_wanted(
    uneven: Uneven, world: int, sizes: tuple[int, ...]
) -> None:
    shuffle = Shuffle(sizes=sizes)
    parts = [
        keys(list(epoch_of(Part(rank, world, None, uneven), shuffle=shuffle)))
        for rank in range(world)
    ]

    total = sum(sizes)
    size = total // world if uneven == "drop" else -(-total // world)
    everything = [key for part in parts for key in part]
    assert {len(part) for part in parts} == {size}
    assert everything == [at % total for at in range(size * world)]


@pytest.mark.parametrize("uneven", ["keep", "drop", "pad"])
def test_an_epoch_goes_on_after_each_batch(uneven: Uneven) -> None:
    for rank in range(3):
        part = Part(rank, 3, 5, uneven)
        whole = keys(list(epoch_of(part)))
        for count in range(len(whole) // 4 + 2):
            begun = epoch_of(part)
            before = keys(list(islice(begun, count)))
            another = epoch_of(part)
            another.load_state_dict(json.loads(json.dumps(begun.state_dict())))
            assert before + keys(list(another)) == whole


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Part(1, 3, 5), "rank=1, and this one has rank=0"),
        (Part(0, 4, 5), "world=4, and this one has world=3"),
        (Part(0, 3, 6), "number=6, and this one has number=5"),
        (Part(0, 3, None), "number=None, and this one has number=5"),
        (Part(0, 3, 5, "pad"), "uneven='pad', and this one has uneven='keep'"),
        (Part(0, 3, 5, "keep", 1, 2), "worker=1, workers=2, and this one has worker=0, workers=1"),
    ],
)
def test_the_state_of_another_part_is_refused(other: Part, told: str) -> None:
    begun = epoch_of(other, batch_rows=2)
    next(iter(begun))

    epoch = epoch_of(Part(0, 3, 5))
    with pytest.raises(ShuffleConflict, match=told):
        epoch.load_state_dict(begun.state_dict())
    assert keys(list(epoch)) == keys(list(epoch_of(Part(0, 3, 5)))), "nothing was changed"


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Shuffle(name="yours"), "the state is of shuffle 'yours', and this one is 'mine'"),
        (Shuffle(uid=8), "shuffle 'mine' was created anew since that state"),
    ],
)
def test_the_state_of_another_shuffle_is_refused(other: Shuffle, told: str) -> None:
    part = Part(0, 1, None)
    begun = epoch_of(part, shuffle=other)
    next(iter(begun))

    epoch = epoch_of(part)
    epoch.load_state_dict(begun.state_dict())
    with pytest.raises(ShuffleConflict, match=told):
        list(epoch)


def test_a_malformed_state_is_refused() -> None:
    epoch = epoch_of(Part(0, 1, None))
    state = epoch.state_dict()

    with pytest.raises(ShuffleRefused, match="it lacks rank, world, number, uneven, worker"):
        epoch.load_state_dict({"shuffle": "mine", "uid": 7, "row": 3})
    for wrong in ({"shuffle": 1}, {"row": -1}, {"row": "3"}, {"uid": None}, {"row": True}):
        with pytest.raises(ShuffleRefused, match="not a state of an epoch"):
            epoch.load_state_dict({**state, **wrong})


def test_wrong_arguments_are_refused() -> None:
    client = ShuffleClient("127.0.0.1:1", "mine")

    with pytest.raises(ShuffleRefused, match="rank is 0 to 1, not 2"):
        client.epoch(2, 2)
    with pytest.raises(ShuffleRefused, match=r"uneven is one of .*, not 'last'"):
        client.epoch(uneven=cast("Any", "last"))


class Torch:
    """What is needed of torch: a base class, and which worker asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.worker: SimpleNamespace | None = None
        data = cast("Any", ModuleType("torch.utils.data"))
        data.IterableDataset = object
        data.get_worker_info = lambda: self.worker
        torch = cast("Any", ModuleType("torch"))
        torch.from_numpy = lambda array: array
        for name, module in (("torch", torch), ("torch.utils.data", data)):
            monkeypatch.setitem(sys.modules, name, module)


def test_workers_share_the_rows_of_a_rank_and_take_their_own_state_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = Torch(monkeypatch)

    def dataset(rank: int) -> Any:  # noqa: ANN401 - torch's
        return torch_dataset(lambda *of: epoch_of(Part(rank, 2, 1, "pad", *of), batch_rows=2))

    def read(rank: int, worker: int, workers: int) -> list[int]:
        torch.worker = SimpleNamespace(id=worker, num_workers=workers)
        return [int(key) for batch in dataset(rank) for key in batch["key"]]

    for rank in range(2):
        shared = [key for worker in range(3) for key in read(rank, worker, 3)]
        assert shared == keys(list(epoch_of(Part(rank, 2, 1, "pad"))))
    torch.worker = SimpleNamespace(id=0, num_workers=3)
    begun = dataset(0)
    next(iter(begun))
    torch.worker = SimpleNamespace(id=1, num_workers=3)
    another = dataset(0)
    another.load_state_dict(begun.state_dict())
    with pytest.raises(ShuffleConflict, match="worker=0, and this one has worker=1"):
        next(iter(another))
