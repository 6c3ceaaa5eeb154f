"""What ringpopd logs, and what becomes of it when it cannot be written."""

from __future__ import annotations

import io
import json
import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.logs import NAME, log
from ringpop_py.edge.cli import logs as logs_module
from ringpop_py.edge.cli.logs import TRACEBACKS_MAX, Logs

if TYPE_CHECKING:
    from collections.abc import Iterator

BOTH = pytest.mark.parametrize("form", ["console", "json"])


class Pipe(io.StringIO):
    """What nobody reads: a write waits."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = threading.Event()

    def write(self, text: str) -> int:
        self.is_read.wait(10)
        return super().write(text)


class Disk(io.StringIO):
    """A text file on a disk that may be full."""

    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def flush() -> None:
    """Wait until all is written."""
    for handler in logging.getLogger(NAME).handlers:
        handler.flush()


@pytest.fixture(autouse=True)
def _logger_as_it_was() -> Iterator[None]:
    logger = logging.getLogger(NAME)
    level, propagate, handlers = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.propagate, logger.handlers = propagate, handlers


@BOTH
def test_lines_that_a_full_disk_cost_are_counted_before_the_next_one(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    disk = Disk()
    monkeypatch.setattr("sys.stderr", disk)
    Logs(form, "info")

    log.info("the first", count=1)
    flush()
    disk.is_full = True
    began = time.monotonic()
    log.info("lost")
    log.info("lost")
    flush()
    assert began <= log.lost_at <= time.monotonic()
    disk.is_full = False
    log.info("the last")
    flush()

    lines = disk.getvalue().splitlines()
    assert len(lines) == 3
    assert "the first" in lines[0]
    assert "log-lines-lost" in lines[1]
    assert ("count=2" if form == "console" else '"count": 2') in lines[1]
    assert "the last" in lines[2]


@BOTH
def test_a_log_that_nobody_reads_keeps_nobody_waiting_and_counts_what_it_drops(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    pipe = Pipe()
    monkeypatch.setattr("sys.stderr", pipe)
    monkeypatch.setattr(logs_module, "LINES_MAX", 3)
    Logs(form, "info")

    for number in range(10):
        log.info("line", number=number)

    assert pipe.getvalue() == ""
    pipe.is_read.set()
    flush()
    log.info("the last")
    flush()
    lines = pipe.getvalue().splitlines()
    assert 3 <= sum("number" in line for line in lines) <= 4  # one may be on its way
    assert any("log-lines-lost" in line for line in lines)
    assert "the last" in lines[-1]


@BOTH
def test_an_exception_is_logged_with_where_it_was_raised(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    Logs(form, "info")

    try:
        raise_it()
    except ValueError as error:
        log.exception("that failed")
        caught = error
    log.error("that failed, too", exc_info=caught)

    flush()
    text = capsys.readouterr().err
    assert "that failed, too" in text
    assert text.count("in raise_it") == 2


def test_a_line_for_people_is_the_sentence_or_else_the_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Logs("console", "info")

    log.info("listening", address="127.0.0.1:3000", hosts=3)
    log.warning("stalled", text="this process was not run for 2 s", for_s=2)

    flush()
    first, second = (line.partition("Z ")[2] for line in capsys.readouterr().err.splitlines())
    assert first == "[info     ] listening address=127.0.0.1:3000 hosts=3"
    assert second == "[warning  ] this process was not run for 2 s"


def test_a_line_of_json_has_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    Logs("json", "info")

    log.warning("stalled", text="this process was not run", for_s=2, peer=NAME)

    flush()
    row = json.loads(capsys.readouterr().err)
    assert row.pop("timestamp").endswith("Z")
    assert row == {
        "event": "stalled",
        "level": "warning",
        "text": "this process was not run",
        "for_s": 2,
        "peer": NAME,
    }


def test_the_level_may_change_and_change_back(capsys: pytest.CaptureFixture[str]) -> None:
    logs = Logs("console", "info")

    log.debug("one")
    logs.debug(on=True)
    log.debug("two")
    logs.debug(on=False)
    log.debug("three")

    flush()
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["two"]


def test_a_program_that_embeds_a_node_hears_of_warnings_alone_unless_it_asks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log.info("nobody asked for this", count=1)
    log.warning("everybody hears this", count=2)
    caplog.set_level(logging.INFO, NAME)
    log.info("now somebody asked", count=3)

    assert caplog.messages == ["everybody hears this count=2", "now somebody asked count=3"]
    assert {record.pathname for record in caplog.records} == {__file__}


def test_a_bug_that_is_found_again_and_again_does_not_fill_the_disk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Logs("json", "info")

    for number in range(500):
        try:
            raise_it()
        except ValueError:
            log.exception("a handler failed", number=number)
        log.info("called", number=number)  # what has no traceback is written each time

    flush()
    rows = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert 0 < len([row for row in rows if "exception" in row]) <= 2 * TRACEBACKS_MAX
    assert len([row for row in rows if row["event"] == "called"]) == 500
    assert sum(row["count"] for row in rows if row["event"] == "log-lines-lost") > 400


def raise_it() -> None:
    raise ValueError
