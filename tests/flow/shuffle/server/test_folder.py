"""The files of a shuffle count with their size on disk, whatever was done to them."""

from __future__ import annotations

import ast
import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

import ringpop_py.flow.shuffle.server
from ringpop_py.flow.shuffle.protocol.messages import Forget, HeldFiles
from ringpop_py.flow.shuffle.protocol.record import State
from ringpop_py.flow.shuffle.sorting.disk import Disk
from ringpop_py.flow.shuffle.sorting.folder import ShuffleFolder
from ringpop_py.flow.shuffle.sorting.frame_builder import check_frame
from ringpop_py.flow.shuffle.sorting.segment import SegmentFile
from tests.flow.shuffle.server.world import ORDER, frame, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tests.flow.shuffle.server.world import World

WRITERS = {"wire.py": ["open_file"], "framestore.py": ["open"]}
"""What writes to a path that `ShuffleFolder.new` has made."""


WAYS = ("append", "part", "slice", "made", "adopted", "drop", "forget", "remove")


def size_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


class Doing:
    """Does one thing after the other to the folders of two shuffles."""

    def __init__(self, path: Path, disk: Disk, seed: int) -> None:
        self.rng = random.Random(seed)
        self.folders = [ShuffleFolder(path / name, disk) for name in "ab"]
        self.path = path
        self.disk = disk
        self.lives = [0, 0]
        self.frames = 0

    async def one(self) -> str:
        rng = self.rng
        place = rng.randrange(2)
        folder, number = self.folders[place], rng.randrange(3)
        what = rng.choice(WAYS)
        match what:
            case "append":
                self.frames += rng.randrange(2)  # a frame may come twice
                await folder.append(number, frame(self.frames, 0, range(rng.randrange(1, 99))))
            case "part":
                await folder.extend(self.coming(folder, number), [bytes(rng.randrange(999))] * 2)
            case "slice":
                folder.keep(self.coming(folder, number), folder.slice(number, rng.randrange(2)))
            case "made":
                await self.make(folder, number)
            case "adopted":
                with folder.new() as path:
                    path.write_bytes(frame(number, 0, range(rng.randrange(1, 99))))
                    folder.adopt(number, SegmentFile.adopted(path, partial(check_frame, ORDER)))
            case "drop":
                folder.carry_out([HeldFiles((number,), ((number, 0), (number, 1)), (number,))])
            case "forget":
                folder.carry_out([Forget(self.lives[place])])
                self.lives[place] += 1
            case _:
                folder.remove()
                self.folders[place] = ShuffleFolder(self.path / "ab"[place], self.disk)
                self.lives[place] = 0
        return what

    def coming(self, folder: ShuffleFolder, number: int) -> Path:
        path = folder.unnamed().with_name(f"coming-{number}")
        path.touch()
        return path

    async def make(self, folder: ShuffleFolder, number: int) -> None:
        """Make a file with pieces beside it, which may stay behind, as does a file that fails."""
        try:
            with folder.new() as path:
                path.write_bytes(bytes(self.rng.randrange(5_000)))
                path.with_name(f"{path.name}-0").write_bytes(bytes(700))
                assert self.disk.used_bytes == size_of(self.path)  # also before it is made
                if self.rng.random() < 0.3:
                    raise OSError("no room")  # noqa: TRY301 - as a full disk does
                folder.keep(path, folder.interval(number))
        except OSError as error:
            assert str(error) == "no room"  # noqa: PT017 - others are failures


@pytest.mark.parametrize("seed", range(6))
async def test_the_counted_bytes_are_those_on_disk(tmp_path: Path, seed: int) -> None:
    disk = Disk(1 << 40)
    doing = Doing(tmp_path, disk, seed)
    done = set()
    for _ in range(150):
        done.add(await doing.one())
        assert disk.used_bytes == size_of(tmp_path)
        assert sum(each.sizes.bytes for each in doing.folders) == disk.used_bytes
    assert done == set(WAYS)


async def test_a_write_that_ends_after_its_folder_was_removed_counts_nothing(
    tmp_path: Path,
) -> None:
    disk = Disk(1 << 40)
    former = ShuffleFolder(tmp_path / "a", disk)
    path = former.unnamed()
    former.remove()
    following = ShuffleFolder(tmp_path / "a", disk)
    with pytest.raises(FileNotFoundError), former.new():
        raise AssertionError("a removed folder has no room for files")
    path.touch()
    await following.extend(path, [b"12345"])  # it has the same name

    former.drop(former.unnamed())
    former._count(path)

    assert disk.used_bytes == 5
    following.remove()
    assert disk.used_bytes == 0


def test_nothing_else_of_the_process_writes_or_removes_files() -> None:
    [folder] = ringpop_py.flow.shuffle.server.__path__
    found: dict[str, list[str]] = {}
    for file in sorted(Path(folder).glob("*.py")):
        if file.name in ("folder.py", "process.py"):  # the last one: before it serves
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                written = any(
                    isinstance(each, ast.Constant) and each.value in ("wb", "ab")
                    for each in node.args
                )
                what = node.func.attr
                if written or what in ("unlink", "touch", "rmtree", "write_bytes", "mkdir"):
                    found.setdefault(file.name, []).append(what)

    assert found == WRITERS


async def test_a_whole_shuffle_is_counted_at_each_process_while_it_works(
    worlds: Callable[..., AbstractAsyncContextManager[World]],
) -> None:
    async with worlds("a", "b", "c", sort_bytes=20_000) as world:
        shuffle = await world.create(intervals=2)
        winner = await world.put(shuffle, 0, range(20_000))
        seen = []

        async def look() -> None:
            while True:
                seen.append(sum(world.disks[name].used_bytes for name in "abc"))
                await trio.sleep(0.02)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await world.end(shuffle, {0: winner})
            nursery.cancel_scope.cancel()
        await until(lambda: all(not each.member.busy for each in world.members().values()))

        assert world.state() is State.GET
        assert world.keys() == list(range(20_000))
        assert {name: disk.used_bytes for name, disk in world.disks.items()} == {
            name: world.on_disk(name) for name in "abc"
        }
        assert min(seen) > 0
        await shuffle.delete(shuffle.record.uid)
        await until(lambda: not any(world.members().values()))
        assert [disk.used_bytes for disk in world.disks.values()] == [0, 0, 0]


async def test_a_file_that_is_gone_is_not_made_anew_without_what_was_in_it(tmp_path: Path) -> None:
    folder = ShuffleFolder(tmp_path / "a", Disk(1 << 40))
    path = folder.begun()
    await folder.extend(path, [b"12345"])
    path.unlink()

    with pytest.raises(FileNotFoundError):
        await folder.extend(path, [b"67890"])
    with pytest.raises(FileNotFoundError):
        folder.keep(path, folder.slice(0, 0))
