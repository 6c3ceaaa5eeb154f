"""Peers that refuse, are slow or damage what they send, and disks that fill up: no row is lost."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import ShuffleFull, ShuffleIncomplete, ShuffleUnavailable
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.changes import parted
from ringpop_py.flow.shuffle.protocol.messages import Answer
from ringpop_py.flow.shuffle.protocol.record import MemberId, State, Winner
from ringpop_py.flow.shuffle.server import context
from ringpop_py.flow.shuffle.server.shuffle import APPEND_S
from tests.flow.shuffle.server.world import frame, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tests.flow.shuffle.server.world import World

    Worlds = Callable[..., AbstractAsyncContextManager[World]]

OK, NOT_NOW = Answer.OK.value, Answer.NOT_NOW.value


@pytest.mark.parametrize("how", ["refuses", "is away", "is slow"])
async def test_a_frame_that_the_replica_does_not_take_is_not_acknowledged(
    worlds: Worlds, how: str
) -> None:
    async def disturb(_me: str, _member: MemberId, call: c.Call) -> c.Reply | None:
        if isinstance(call, c.Append):
            if how == "refuses":
                return c.Said(NOT_NOW)
            if how == "is away":
                raise ShuffleUnavailable("the connection was lost")
            await trio.sleep(2 * APPEND_S)
        return None

    async with worlds("a", "b") as world:
        shuffle = await world.create()
        uid, body = shuffle.record.uid, frame(0, 0, range(10))
        world.disturb = disturb

        assert (await shuffle.put(uid, body)).answer == NOT_NOW
        assert (await shuffle.put(uid, body)).answer == NOT_NOW  # though it is here by now
        assert world.calls["Append"] == 0

        world.disturb = undisturbed
        assert (await shuffle.put(uid, body)).answer == OK
        assert world.calls["Append"] == 1


@pytest.mark.parametrize("what", ["closed", "unknown", "of another shuffle"])
async def test_a_replica_says_no_to_a_frame_for_a_segment_that_takes_none(
    worlds: Worlds, what: str
) -> None:
    async with worlds("a", "b") as world:
        shuffle = await world.create()
        record, (number, segment) = shuffle.record, next(iter(shuffle.record.segments.items()))
        replica = await world.hosts[segment.holders[1].host].find(shuffle.name)
        uid = record.uid + 1 if what == "of another shuffle" else record.uid
        if what == "closed":
            world.gone = frozenset((segment.holders[0],))
            await until(lambda: not replica.record.segments[number].is_open)
        if what == "unknown":
            number = 99

        call = c.Append(shuffle.name, uid, replica.record.version, number)
        said = await replica.append(call, frame(0, 0, range(10)))

        assert said == c.Said(NOT_NOW)
        assert replica.counted().held_bytes == 0


async def undisturbed(_me: str, _member: MemberId, _call: c.Call) -> None:
    """Let everything through."""


async def test_an_interval_that_is_damaged_on_its_way_is_fetched_again(worlds: Worlds) -> None:
    damaged: list[int] = []

    def damage(call: c.Call, path: Path) -> None:
        if isinstance(call, c.FetchInterval) and len(damaged) < 3:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
            damaged.append(call.interval)

    async with worlds("a", "b") as world:
        shuffle = await world.create()
        winner = await world.put(shuffle, 0, range(300))
        world.damage = damage
        await world.end(shuffle, {0: winner})

        assert len(damaged) == 3
        assert world.state() is State.GET
        for number, interval in enumerate(shuffle.record.intervals):
            owner, replica = (
                world.members()[each.host].here.folder.interval(number).read_bytes()
                for each in interval.holders
            )
            assert owner == replica


async def test_a_frame_that_came_while_its_segment_was_closed_does_not_count(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with worlds("a", "b", "c") as world:
        await world.create()
        primary, replica = world.members()["a"], world.members()["b"]
        record = replica.record
        number = record.open_segment_of(primary.member.me)
        assert number is not None
        assert record.segments[number].holders[1] == replica.member.me
        append = replica._folder.append

        async def slow(segment: int, body: bytes) -> None:
            await append(segment, body)
            stored = world.records.by_name["mine"]
            closed = parted(stored.record, primary.member.me)
            assert not closed.segments[segment].is_open
            assert await world.records.set("mine", stored, closed)
            assert await replica.read()

        monkeypatch.setattr(replica._folder, "append", slow)
        call = c.Append("mine", record.uid, record.version, number)

        assert await replica.append(call, frame(0, 0, range(10))) == c.Said(NOT_NOW)


@pytest.mark.parametrize("full", ["a", "b"], ids=["at the primary", "at the replica"])
async def test_a_disk_that_fills_up_amid_a_frame_refuses_it_and_its_segment_can_be_copied(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    pwrite = os.pwrite

    def filling(file: int, data: bytes, offset: int) -> int:
        where = Path(f"/proc/self/fd/{file}").readlink()
        if where.is_relative_to(world.path_of(full)):
            if len(data) <= 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return pwrite(file, data[: len(data) - 100], offset)
        return pwrite(file, data, offset)

    async with worlds("a", "b", "c") as world:
        shuffle = await world.create()
        uid = shuffle.record.uid
        assert (await shuffle.put(uid, frame(0, 0, range(100)))).answer == OK
        [number] = shuffle.here.folder.segments
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", filling)
            with pytest.raises(ShuffleFull, match="no room"):
                await shuffle.put(uid, frame(0, 1, range(100, 200)))
        assert world.disks[full].used_bytes == world.on_disk(full)

        # The other holder goes, and this one gives its segment, whole, to another member.
        left = world.members()[full]
        gone = world.members()["b" if full == "a" else "a"].member.me
        world.gone = frozenset([gone])
        await until(
            lambda: (
                len(world.records.by_name["mine"].record.segments[number].holders) == 2
                and gone not in world.records.by_name["mine"].record.segments[number].holders
            ),
            seconds=20,
        )
        await left.read()
        winner = await world.put(world.members()["c"], 1, range(50))
        await world.end(left, {1: winner})
        assert world.keys() == list(range(50))


async def test_a_receipt_with_other_rows_is_refused_and_the_shuffle_goes_on(
    worlds: Worlds,
) -> None:
    async with worlds("a", "b") as world:
        shuffle = await world.create()
        winner = await world.put(shuffle, 0, range(100))
        for wrong in (Winner(winner.frames, 99), Winner(winner.frames, 101)):
            with pytest.raises(ShuffleIncomplete, match=r"has 2 frames with 100 rows, not 2 "):
                await shuffle.end(shuffle.record.uid, {0: wrong})
            assert world.state() is State.PUT
        await world.end(shuffle, {0: winner})

        assert world.state() is State.GET
        assert world.keys() == list(range(100))


async def test_nothing_is_acknowledged_after_the_lease(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with worlds("a", "b") as world:
        shuffle = await world.create()
        uid = shuffle.record.uid
        assert (await shuffle.put(uid, frame(0, 0, range(10)))).answer == OK
        append = shuffle._folder.append

        async def slow(number: int, body: bytes) -> None:
            await append(number, body)
            shuffle.member._read_at -= shuffle.member._lease_us + 1  # as if it took that long

        monkeypatch.setattr(shuffle._folder, "append", slow)

        assert (await shuffle.put(uid, frame(0, 1, range(10)))).answer == NOT_NOW


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3 :] = bytes(len(data) - len(data) // 3)
    path.write_bytes(data)


def deleted(path: Path) -> None:
    shutil.rmtree(path.parents[1])


@pytest.mark.parametrize("spoil", [damaged, deleted])
async def test_a_member_whose_rows_are_damaged_or_deleted_parts_and_takes_them_from_others(
    worlds: Worlds, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with worlds("a", "b") as world:
        shuffle = await world.create()
        winner = await world.put(shuffle, 0, range(100))
        number = shuffle.record.open_segment_of(shuffle.member.me)
        assert number is not None
        spoil(shuffle.here.folder.segment(number).path)

        with trio.fail_after(20):
            await world.end(shuffle, {0: winner})

        assert world.state() is State.GET
        assert world.keys() == list(range(100))
        assert shuffle.member.life == 1
        await until(lambda: all(len(each.holders) == 2 for each in shuffle.record.intervals), 20)
        [told] = [record for record in caplog.records if "lost here" in record.message]
        assert "shuffle 'mine'" in told.message


async def test_rows_that_only_the_deleted_files_had_are_told_to_be_lost(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "COPIED_S", 5.0)
    async with worlds("a", "b") as world:
        shuffle = await world.create()
        winner = await world.put(shuffle, 0, range(100))
        await world.end(shuffle, {0: winner})
        for each in world.members().values():
            each.here.failed(FileNotFoundError(), each.member.life)
            assert not each.here.parts  # its files are all there
            shutil.rmtree(each.here.folder.interval(0).parent)

        get = c.Get("mine", shuffle.record.uid, shuffle.record.version, 0)
        with pytest.raises(FileNotFoundError):
            await world.servers["a"]._answer_of(get, memoryview(b""))

        # The other one finds it out when its copy is fetched.
        await until(lambda: all(each.member.life == 1 for each in world.members().values()))
        assert world.state() is State.GET
        await until(lambda: not shuffle.record.intervals[0].holders)  # each is told by itself


async def test_what_only_a_member_has_that_has_lost_other_rows_is_copied_from_it_first(
    worlds: Worlds,
) -> None:
    async with worlds("a", "b", "c") as world:
        shuffle = await world.create(intervals=6)
        winner = await world.put(shuffle, 0, range(100))
        await world.end(shuffle, {0: winner})
        pairs = [{each.host for each in interval.holders} for interval in shuffle.record.intervals]
        lost = pairs.index({"a", "c"})
        assert {"a", "b"} in pairs
        shutil.rmtree(shuffle.here.folder.unnamed().parent)
        shuffle.here.folder.interval(lost).unlink()

        world.gone = frozenset(each for each in shuffle.record.members if each.host == "b")

        await until(lambda: shuffle.member.life == 1, 20)
        await until(lambda: all(len(each.holders) == 2 for each in shuffle.record.intervals), 20)
        assert world.keys() == list(range(100))
