"""Frames that no client of ours sends: none is kept, copied, or believed later."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ringpop_py.base.errors import ShuffleRefused
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.messages import Answer
from ringpop_py.flow.shuffle.protocol.record import Winner
from ringpop_py.flow.shuffle.sorting.cuts import WEIGHT, points_of
from ringpop_py.flow.shuffle.sorting.frames import Bytes, Frame, entry_of, packed, unpacked
from tests.flow.shuffle.server.world import ORDER, SCHEMA, frame

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tests.flow.shuffle.server.world import World

    Worlds = Callable[..., AbstractAsyncContextManager[World]]

ROWS = ORDER.sorted(pa.table({"key": range(100)}, schema=SCHEMA))
BODY = bytes(packed(ROWS))
POINTS = points_of(ORDER, ROWS, (0, 0))


def entry(
    body: Bytes = BODY,
    points: pa.Table = POINTS,
    rows: int = 100,
    receipt: Winner | None = None,
) -> bytes:
    return entry_of(Frame((0, 0), rows, packed(points), body, receipt))


def with_bytes(former: bytes, value: bytes) -> bytes:
    assert former in BODY
    at = BODY.rindex(former)
    return BODY[:at] + value + BODY[at + len(former) :]


def weighing(weight: float) -> pa.Table:
    weights = pa.array([weight] * POINTS.num_rows)
    return POINTS.set_column(POINTS.num_columns - 1, WEIGHT, weights)


HOSTILE = {
    "cut off": entry(BODY[:-64]),
    "longer than its bytes": entry(
        with_bytes(struct.pack("<qq", 0, 800), struct.pack("<qq", 0, 4_000))
    ),
    "beside its bytes": entry(
        with_bytes(struct.pack("<qq", 0, 800), struct.pack("<qq", 4_000, 800))
    ),
    "not Arrow": entry(b"\xff" * 64),
    "of another type": entry(bytes(packed(pa.table({"key": ["a"] * 100})))),
    "fewer rows than said": entry(rows=101),
    "no rows, and not the last": entry(b"", POINTS.slice(0, 0), 0),
    "rows, and the last": entry(receipt=Winner(1, 100)),
    "without keys that stand for it": entry(points=POINTS.slice(0, 0)),
    "of no weight": entry(points=weighing(0.0)),
    "of a weight that is no number": entry(points=weighing(float("nan"))),
    "too many keys": entry(points=pa.concat_tables([POINTS] * 50)),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_frame_that_cannot_be_believed_is_refused_and_nowhere(
    worlds: Worlds, name: str
) -> None:
    async with worlds("a", "b") as world:
        shuffle = await world.create()
        uid = shuffle.record.uid

        with pytest.raises(ShuffleRefused, match="is refused"):
            await shuffle.put(uid, HOSTILE[name])

        assert world.calls["Append"] == 0
        assert shuffle.counted().held_bytes == 0
        assert (await shuffle.put(uid, frame(0, 0, range(100)))).answer == Answer.OK.value


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_replica_does_not_believe_it_either(worlds: Worlds, name: str) -> None:
    async with worlds("a", "b") as world:
        shuffle = await world.create()
        record, (number, segment) = shuffle.record, next(iter(shuffle.record.segments.items()))
        replica = await world.hosts[segment.holders[1].host].find(shuffle.name)

        with pytest.raises(ShuffleRefused, match="is refused"):
            await replica.append(
                c.Append(shuffle.name, record.uid, record.version, number), HOSTILE[name]
            )

        assert replica.counted().held_bytes == 0


def test_the_sound_frame_beside_them_is_one() -> None:
    assert unpacked(BODY, SCHEMA) == ROWS
