"""What the code of a world sees of its surroundings, and what other threads see."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from ringpop_sim.runs.run import run_of
from ringpop_sim.scenarios import scenario


def test_threads_of_the_same_process_that_are_not_of_the_world_go_on_as_ever() -> None:
    run = run_of(scenario("shuffles-killed", None), 1)
    seen: list[object] = []

    def look() -> None:
        began = time.monotonic()
        time.sleep(0.01)
        seen.extend([time.monotonic() - began >= 0.01, time.time() > began, len(os.urandom(4))])
        os.stat(__file__)  # noqa: PTH116 - both ways are replaced
        with Path(__file__).open(encoding="utf-8") as file:
            seen.append(bool(file.readline()))

    def at_once() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    run.world.push(5_000_000, lambda _: at_once())
    run.advance(6_000_000)
    run.finish()

    assert seen == [True, True, 4, True]
    assert not run.broken
