"""What runs beside a node goes on after a bug, and not in a loop of them."""

from __future__ import annotations

import logging
import subprocess
import sys
from itertools import pairwise

import pytest
import trio
import trio.testing

from ringpop_py.base.supervision import PAUSE_S_MAX, end_process, first_line, keep_running, one_line


async def test_a_task_that_fails_begins_again_later_each_time(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    del autojump_clock
    caplog.set_level(logging.ERROR, "ringpop")
    began_at: list[float] = []

    async def run() -> None:
        began_at.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if len(began_at) < 9:
            message = "a bug"
            raise ZeroDivisionError(message)

    await keep_running("the report", run)

    pauses = [later - earlier for earlier, later in pairwise(began_at)]
    assert pauses == [1, 2, 4, 8, 16, 32, PAUSE_S_MAX, PAUSE_S_MAX]
    assert len(caplog.records) == 8
    assert "the report failed, and is started again in 1 s: ZeroDivisionError: a bug" in caplog.text
    assert all(record.exc_info for record in caplog.records)


async def test_a_task_that_is_cancelled_does_not_begin_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    with trio.move_on_after(5) as scope:
        await keep_running("the report", trio.sleep_forever)

    assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("program", "within_s", "line"),
    [
        ("print('here', flush=True); input()", 20, "here"),
        ("import sys; sys.exit('no')", 20, ""),
        ("input()", 0.1, ""),
    ],
)
async def test_a_process_says_where_it_is_in_its_first_line_or_nothing(
    program: str, within_s: float, line: str
) -> None:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )

    assert await first_line(process, within_s) == line

    await end_process(process)
    assert process.returncode is not None


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no\ndatabase"), "ValueError: no database"),
        (ValueError(), "ValueError"),
        (SyntaxError("bad", ("app.py", 3, 1, "x")), "SyntaxError: bad"),
        (SyntaxError(), "SyntaxError: None"),
        (SyntaxError(5), "SyntaxError: 5"),
        (SyntaxError("\ud800"), "SyntaxError: ?"),
        (ExceptionGroup("", [ExceptionGroup("", [KeyError("k")])]), "KeyError: 'k'"),
    ],
)
def test_an_error_is_told_in_one_line(error: Exception, line: str) -> None:
    assert one_line(error) == line
