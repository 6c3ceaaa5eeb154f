"""Frames in the store: its refusals are passed on, and useless frames are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from ringpop_py.base.errors import (
    ShuffleFull,
    ShuffleRefused,
    ShuffleUnavailable,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from ringpop_py.flow.shuffle.protocol.changes import created
from ringpop_py.flow.shuffle.protocol.record import MemberId, State
from ringpop_py.flow.shuffle.server.framestore import FrameStore, Place
from ringpop_py.flow.shuffle.server.register import Stored
from ringpop_py.flow.shuffle.sorting.disk import Disk
from ringpop_py.flow.shuffle.sorting.folder import ShuffleFolder
from ringpop_py.state.stores.memory import MemoryStore
from tests.flow.shuffle.server.world import Records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FIRST = Place("name", 1, 0)


class Failing(MemoryStore):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def put_if_absent(self, key: str, value: bytes) -> bool:  # noqa: ARG002 - as in `Store`
        raise self.error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StoreFull("no space"), ShuffleFull),
        (StoreRefused("no permission"), ShuffleUnavailable),
        (StoreUnavailable("down"), ShuffleUnavailable),
    ],
)
async def test_an_error_of_the_store_is_passed_on(error: Exception, told: type[Exception]) -> None:
    with pytest.raises(told, match=str(error)):
        await FrameStore(Failing(error), "main").put(FIRST, (1, 0), b"frame")


async def test_a_node_without_a_store_that_others_can_open_refuses() -> None:
    with pytest.raises(ShuffleRefused, match="memory: is not"):
        await FrameStore(None, "main").put(FIRST, (1, 0), b"frame")


async def test_a_copy_has_each_frame_of_its_segment_once_and_no_other(tmp_path: Path) -> None:
    frames = FrameStore(MemoryStore(), "main")
    for place, body in ((FIRST, b"one"), (FIRST, b"one"), (Place("name", 1, 1), b"other")):
        await frames.put(place, (1, 0), body)
    await frames.put(FIRST, (1, 1), b"two")
    await frames.put(Place("name", 2, 0), (1, 0), b"later")

    await frames.copy(FIRST, tmp_path / "copy")

    assert (tmp_path / "copy").read_bytes() == b"onetwo"


async def test_removing_one_shuffle_keeps_those_that_had_its_name() -> None:
    store = MemoryStore()
    frames = FrameStore(store, "main")
    for uid in (1, 11):
        await frames.put(Place("name", uid, 0), (1, 0), b"frame")

    await frames.remove("name", 1)

    keys: Sequence[str] = store.list("")
    assert len(keys) == 1
    assert "/11/" in keys[0]


async def test_a_copy_that_fails_leaves_no_file(tmp_path: Path) -> None:
    class Away(MemoryStore):
        def get(self, key: str) -> bytes | None:  # noqa: ARG002 - as in `Store`
            raise StoreUnavailable("down")

    frames, folder = FrameStore(Away(), "main"), ShuffleFolder(tmp_path, Disk(1 << 40))
    await frames.put(FIRST, (1, 0), b"frame")

    with pytest.raises(ShuffleUnavailable), folder.new() as path:
        await frames.copy(FIRST, path)

    assert not [each for each in tmp_path.rglob("*") if each.is_file()]  # noqa: ASYNC240


@pytest.mark.parametrize("state", State)
async def test_tidying_keeps_the_frames_of_shuffles_whose_rows_lie_in_them(state: State) -> None:
    store, records = MemoryStore(), Records()
    frames = FrameStore(store, "main")
    record = created(None, 1, b"", 1, [MemberId("a", 1), MemberId("b", 1)], is_stored=True)
    records.by_name["name"] = Stored(record.with_(state=state), "1")
    await frames.put(FIRST, (1, 0), b"frame")
    await frames.put(Place("name", 2, 0), (1, 0), b"of another shuffle of that name")
    await frames.put(Place("nobody's", 1, 0), (1, 0), b"without a record")

    await frames.tidy(cast("Any", records))

    kept = ["/1/"] if state in (State.PUT, State.ENDING, State.DAMAGED) else []
    assert [key[-len("/1/0/0000000001-0000000000") :][:3] for key in store.list("")] == kept
