"""The room on disks, of which some hang."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import trio

from ringpop_py.node.signals import disks
from ringpop_py.node.signals.disks import Disks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_disk_says_its_room_and_one_that_is_not_there_why(tmp_path: Path) -> None:
    there, gone = await Disks({"store": str(tmp_path), "entries": "/not/there"}).usage()
    assert 0 <= there["free_bytes"] <= there["total_bytes"]
    assert (gone["free_bytes"], gone["trouble"]) == (None, "No such file or directory")


async def test_a_disk_that_hangs_takes_one_thread_and_no_time_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, asked = threading.Event(), []

    def hang(path: str) -> object:
        asked.append(path)
        answers.wait(30)
        return shutil._ntuple_diskusage(10, 5, 5)

    monkeypatch.setattr(shutil, "disk_usage", hang)
    monkeypatch.setattr(disks, "ANSWER_S", 0.1)
    found = Disks({"store": "/hangs"})
    with trio.fail_after(10):
        for _ in range(50):
            [row] = await found.usage()
            assert row["trouble"] == "it has not answered within 0.1 s"
        assert asked == ["/hangs"]
        assert await trio.to_thread.run_sync(lambda: 7) == 7
        answers.set()
        while (await found.usage())[0]["free_bytes"] is None:
            await trio.sleep(0.01)
