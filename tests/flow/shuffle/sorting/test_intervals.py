"""Whatever the keys are: rows come out in order, each once, in intervals of one size."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from ringpop_py.base.errors import BodyError, ShuffleRefused
from ringpop_py.flow.shuffle.protocol.record import Winner
from ringpop_py.flow.shuffle.sorting.cuts import cuts_of, even_cuts, points_of, summary_of
from ringpop_py.flow.shuffle.sorting.frame_builder import check_frame, entries_of, with_random_keys
from ringpop_py.flow.shuffle.sorting.frames import (
    FRAME_BYTES_MAX,
    Frame,
    entry_at,
    entry_of,
    packed,
    unpacked,
)
from ringpop_py.flow.shuffle.sorting.interval import (
    Part,
    batches_of,
    merged,
    parts_of,
    write_interval,
)
from ringpop_py.flow.shuffle.sorting.order import RANDOM, Order, comparable
from ringpop_py.flow.shuffle.sorting.segment import SegmentFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INTERVALS: Final = 16
NAN: Final = float("nan")
UTC: Final = dt.UTC


def _moment(rng: random.Random) -> dt.datetime:
    return dt.datetime(2026, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=rng.randrange(10**14))


KEYS: Final[dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]]] = {
    "integers": (pa.int64(), lambda rng: rng.randrange(-(10**12), 10**12)),
    "few integers": (pa.int8(), lambda rng: rng.randrange(3)),
    "one integer": (pa.int32(), lambda _: 7),
    "unsigned": (pa.uint64(), lambda rng: rng.getrandbits(64)),
    "numbers": (pa.float64(), lambda rng: rng.choice((NAN, -0.0, 0.0, rng.gauss()))),
    "numbers or null": (pa.float32(), lambda rng: rng.choice((NAN, None, round(rng.gauss(), 1)))),
    "texts": (pa.string(), lambda rng: "".join(rng.choices("aäz\U0001f600", k=rng.randrange(6)))),
    "texts or null": (
        pa.large_string(),
        lambda rng: rng.choice((None, "", "a", str(rng.random()))),
    ),
    "bytes": (pa.binary(), lambda rng: rng.randbytes(rng.randrange(4))),
    "moments": (pa.timestamp("us", "UTC"), _moment),
    "days or null": (pa.date32(), lambda rng: rng.choice((None, _moment(rng).date()))),
    "truths": (pa.bool_(), lambda rng: rng.choice((True, False, None))),
    "decimals": (pa.decimal128(20, 3), lambda rng: Decimal(rng.randrange(-9000, 9000)) / 1000),
}


def _zipf(rng: random.Random) -> int:
    return int(1 / max(rng.random(), 1e-6) ** 1.2)


def _frames(order: Order, rows: list[dict[str, Any]], size: int) -> list[tuple[Any, pa.Table]]:
    return [
        ((place // 7, place % 7), order.sorted(pa.Table.from_pylist(part, schema=order.schema)))
        for place, part in enumerate(rows[at : at + size] for at in range(0, len(rows), size))
    ]


def _intervals(
    order: Order, frames: list[tuple[Any, pa.Table]], count: int, *, keep: bool = False
) -> tuple[list[pa.Table], pa.Table]:
    summaries = [
        summary_of(order, [points_of(order, table, frame) for frame, table in frames[first::3]])
        for first in range(3)
    ]
    cuts = cuts_of(order, summaries, count, keep_keys_together=keep)
    parts: dict[int, list[Part]] = {number: [] for number in range(count)}
    # Two segments, which have a frame in common.
    middle = len(frames) // 2
    for segment in (frames[: middle + 1], frames[middle:]):
        for number, part in parts_of(order, cuts, segment):
            parts[number].append(part)
    return [merged(order, parts[number])[0] for number in range(count)], cuts


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("by", [["key"], ["key", "other"], ["other", "key"]], ids="-".join)
@pytest.mark.parametrize("name", KEYS)
def test_rows_come_out_in_order_each_once(name: str, by: list[str], *, keep: bool) -> None:
    kind, draw = KEYS[name]
    rng = random.Random(f"{name}{by}")
    schema = pa.schema([("key", kind), ("other", pa.int16()), ("row", pa.int64())])
    order = Order(schema, by)
    rows = [{"key": draw(rng), "other": rng.randrange(4), "row": row} for row in range(3000)]

    tables, _ = _intervals(order, _frames(order, rows, 170), INTERVALS, keep=keep)

    out = [row for table in tables for row in table.to_pylist()]
    assert sorted(row["row"] for row in out) == list(range(3000))
    keys = [tuple(comparable(row[column]) for column in by) for row in out]
    assert keys == sorted(keys)
    if keep:
        ends = [
            (table.slice(0, 1), table.slice(table.num_rows - 1)) for table in tables if len(table)
        ]
        for (_, last), (first, _) in pairwise(ends):
            one, two = (
                [comparable(each.column(column)[0].as_py()) for column in by]
                for each in (last, first)
            )
            assert one != two
    elif by == ["key"]:
        sizes = [table.num_rows for table in tables]
        assert max(sizes) < 1.35 * 3000 / INTERVALS  # small frames: each is off by a row or two


@pytest.mark.parametrize(
    "draw",
    [lambda rng: rng.random(), _zipf, lambda rng: rng.randrange(20), lambda _: 1],
    ids=["even", "zipf", "twenty", "one"],
)
def test_intervals_are_of_one_size_whatever_the_keys(
    draw: Callable[[random.Random], float],
) -> None:
    rng = random.Random(5)
    schema = pa.schema([("key", pa.float64())])
    order = Order(schema, ["key"])
    frames = [
        ((number, 0), order.sorted(pa.table({"key": [float(draw(rng)) for _ in range(4000)]})))
        for number in range(60)
    ]

    tables, _ = _intervals(order, frames, 64)

    sizes = [table.num_rows for table in tables]
    assert max(sizes) <= 1.05 * sum(sizes) / 64


def test_a_random_order_has_the_same_cuts_whatever_the_rows() -> None:
    order = Order(pa.schema([("number", pa.int64()), (RANDOM, pa.uint64())]), [RANDOM])
    rows = pa.table({"number": range(40_000)})
    frames = [
        ((number, 0), order.sorted(with_random_keys(rows, seed=3, part=number, first=0)))
        for number in range(5)
    ]
    cuts = even_cuts(order, 16)

    tables = [merged(order, [part])[0] for _, part in parts_of(order, cuts, frames)]

    sizes = [table.num_rows for table in tables]
    assert sum(sizes) == 200_000
    assert max(sizes) < 1.05 * sum(sizes) / 16


def test_no_rows_are_no_cuts() -> None:
    order = Order(pa.schema([("key", pa.int64())]), ["key"])

    cuts = cuts_of(order, [summary_of(order, [])], 8, keep_keys_together=False)

    assert cuts.num_rows == 0


@pytest.mark.parametrize(
    ("by", "what"),
    [
        ([], "1 to 16 different columns"),
        (["a", "a"], "1 to 16 different columns"),
        (["c"], "there is no column 'c' to sort by, among: a, b"),
        (["b"], "column 'b' is of type list<item: int64>, which has no order"),
    ],
)
def test_columns_that_rows_cannot_be_sorted_by_are_refused(by: list[str], what: str) -> None:
    with pytest.raises(ShuffleRefused, match=what):
        Order(pa.schema([("a", pa.int64()), ("b", pa.list_(pa.int64()))]), by)


def pass_all(_frame: Frame) -> None:
    """Check nothing but what a file checks itself."""


def test_a_segment_keeps_frames_and_a_copy_of_its_file_is_one(tmp_path: Path) -> None:
    order = Order(pa.schema([("key", pa.int64())]), ["key"])
    table = order.sorted(pa.table({"key": [3, 1, 2]}))
    frame = Frame((7, 0), 3, packed(points_of(order, table, (7, 0))), packed(table))
    segment = SegmentFile(tmp_path / "one")
    segment.append(entry_of(frame))
    segment.append(entry_of(frame))
    segment.append(entry_of(Frame((7, 1), 0, b"", b"", Winner(1, 3))))

    (tmp_path / "two").write_bytes((tmp_path / "one").read_bytes())
    copy = SegmentFile(tmp_path / "two")
    copy.adopt(partial(check_frame, order))

    assert copy.entries == segment.entries
    assert [entry.receipt for entry in copy.entries.values()] == [None, Winner(1, 3)]
    read = copy.read(copy.entries[7, 0])
    assert unpacked(read.body, order.schema).to_pylist() == [{"key": 1}, {"key": 2}, {"key": 3}]
    assert len(list(copy.points())) == 1


@pytest.mark.parametrize("at", [0, 10, 60, -1])
def test_a_damaged_copy_of_a_segment_is_refused(tmp_path: Path, at: int) -> None:
    segment = SegmentFile(tmp_path / "one")
    segment.append(entry_of(Frame((7, 0), 3, b"points" * 10, b"body" * 10)))
    data = bytearray((tmp_path / "one").read_bytes())
    data[at] ^= 1
    (tmp_path / "two").write_bytes(data)

    with pytest.raises(BodyError):
        SegmentFile(tmp_path / "two").adopt(pass_all)


def test_a_copy_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    segment = SegmentFile(tmp_path / "one")
    segment.append(entry_of(Frame((7, 0), 3, b"points", b"body")))
    (tmp_path / "two").write_bytes((tmp_path / "one").read_bytes()[:-1])

    with pytest.raises(BodyError, match="cut off"):
        SegmentFile(tmp_path / "two").adopt(pass_all)


def test_a_file_of_an_interval_has_its_rows_in_batches(tmp_path: Path) -> None:
    order = Order(pa.schema([("key", pa.int64())]), ["key"])
    table = pa.table({"key": list(range(150_000))})
    part = Part(((1, 0, 150_000),), packed(table))

    held = write_interval(tmp_path / "one", order, lambda: [part])

    assert held.rows == 150_000
    assert held.totals == {1: 150_000}
    batches = list(batches_of(tmp_path / "one"))
    assert [len(batch) for batch in batches] == [65_536, 65_536, 18_928]
    assert pa.Table.from_batches(batches).column("key").to_pylist() == list(range(150_000))


@pytest.mark.parametrize("name", ["integers", "one integer", "texts or null", "numbers or null"])
def test_an_interval_that_is_too_large_is_sorted_piece_by_piece(name: str, tmp_path: Path) -> None:
    kind, draw = KEYS[name]
    rng = random.Random(name)
    order = Order(pa.schema([("key", kind), ("row", pa.int64())]), ["key"])
    rows = [{"key": draw(rng), "row": row} for row in range(6000)]
    frames = _frames(order, rows, 300)
    no_cuts = cuts_of(order, [], 1, keep_keys_together=False)
    # The last frame is in two segments.
    parts = [part for some in (frames, frames[-1:]) for _, part in parts_of(order, no_cuts, some)]
    size = sum(len(part.body) for part in parts)

    whole = write_interval(tmp_path / "whole", order, lambda: parts)
    pieces = write_interval(tmp_path / "pieces", order, lambda: parts, bytes_max=size // 7)

    assert whole.rows == pieces.rows == 6000
    assert whole.totals == pieces.totals
    tables = [pa.Table.from_batches(batches_of(tmp_path / each)) for each in ("whole", "pieces")]
    keys = [[comparable(key) for key in table.column("key").to_pylist()] for table in tables]
    assert keys[0] == keys[1] == sorted(keys[0])
    found = [sorted(table.column("row").to_pylist()) for table in tables]
    assert found == [list(range(6000))] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pieces", "whole"]


BERLIN: Final = "Europe/Berlin"
HARD: Final[dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]]] = {
    # Wall clocks of this hour are not in the order of time.
    "an hour that comes twice": (
        pa.timestamp("s", BERLIN),
        lambda rng: rng.choice((None, 1_761_436_800 + rng.randrange(7200))),
    ),
    "far from any calendar": (pa.timestamp("s"), lambda rng: rng.randrange(-(1 << 60), 1 << 60)),
    "days before the first year": (pa.date32(), lambda rng: rng.randrange(-(1 << 30), 1 << 30)),
    "long durations": (pa.duration("s"), lambda rng: rng.choice((None, rng.randrange(1 << 60)))),
}


@pytest.mark.parametrize("name", HARD)
def test_keys_are_in_order_that_python_has_no_values_for(name: str) -> None:
    kind, draw = HARD[name]
    rng = random.Random(name)
    drawn = [draw(rng) for _ in range(2000)]
    plain = pa.int32() if kind == pa.date32() else pa.int64()
    keys = pa.array(drawn, plain).view(kind)
    table = pa.table({"key": keys, "row": pa.array(range(2000))})
    order = Order(table.schema, ["key"])
    frames = [((number, 0), order.sorted(table.slice(100 * number, 100))) for number in range(20)]

    tables, _ = _intervals(order, frames, 8)

    rows = [row for part in tables for row in part.column("row").to_pylist()]
    assert sorted(rows) == list(range(2000))
    found = [comparable(drawn[row]) for row in rows]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ([("key", pa.int64()), ("key", pa.int64())], "two columns called 'key'"),
        ([("key", pa.int64()), ("__share", pa.int64())], "a column cannot be called '__share'"),
        ([("key", pa.int64()), ("b", pa.dictionary(pa.int8(), pa.string()))], "cannot be kept"),
        (
            [("key", pa.int64()), ("b", pa.list_(pa.dictionary(pa.int8(), pa.string())))],
            "cannot be kept",
        ),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(
    fields: list[tuple[str, pa.DataType]], what: str
) -> None:
    with pytest.raises(ShuffleRefused, match=what):
        Order(pa.schema(fields), ["key"])


def test_rows_of_unequal_length_become_frames_of_unequal_numbers() -> None:
    texts = ["a"] * 50_000 + ["b" * (3 << 20)] * 12
    table = pa.table({"key": range(len(texts)), "text": texts})
    order = Order(table.schema, ["key"])

    entries = [entry_at(entry, 0) for entry in entries_of(order, table, 5, 2)]

    assert [entry.id for entry in entries] == [(5, 2 + place) for place in range(len(entries))]
    assert sum(entry.rows for entry in entries) == len(texts)
    assert max(entry.body_bytes for entry in entries) <= FRAME_BYTES_MAX
    with pytest.raises(ShuffleRefused, match=r"a row of .* bytes is too long"):
        list(entries_of(order, pa.table({"key": [1], "text": ["c" * (17 << 20)]}), 5, 0))


def test_the_keys_of_a_random_order_go_on_with_each_put_of_a_task() -> None:
    rows = pa.table({"number": range(2_000)})

    whole = with_random_keys(rows, seed=3, part=1, first=0)
    halves = [
        with_random_keys(rows.slice(at, 1_000), seed=3, part=1, first=at) for at in (0, 1_000)
    ]

    assert pa.concat_tables(halves).equals(whole)
    assert len(set(whole[RANDOM].to_pylist())) == 2_000
    for other in ({"seed": 4, "part": 1}, {"seed": 3, "part": 2}):
        keys = with_random_keys(rows, first=0, **other)[RANDOM]
        assert not set(keys.to_pylist()) & set(whole[RANDOM].to_pylist())
