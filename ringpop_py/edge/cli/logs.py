"""The log of `ringpopd` on standard error: text for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter, deque
from datetime import UTC, datetime
from threading import Condition, Thread
from typing import Any, Final

from ringpop_py.base.logs import NAME, LogEvent, log

LINES_MAX: Final = 10_000
"""The most lines that wait while standard error blocks; further ones are lost, and counted."""
TRACEBACKS_MAX: Final = 20
"""The most tracebacks in an hour that end in one line of code; further ones are lost, and counted:
a peer that finds a bug must not fill the disk."""
FLUSH_S: Final = 1.0
"""How long the end of the process waits, in seconds, for lines that are not written yet."""
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
COLOURS: Final = {"debug": 2, "info": 32, "warning": 33, "error": 31}  # dim, green, yellow, red


class Logs:
    """The log of this process; its level may change while the process runs."""

    def __init__(self, form: str, level: str) -> None:
        self._usual = LEVELS[level]
        self._logger = logging.getLogger(NAME)
        self._logger.setLevel(self._usual)
        self._logger.propagate = False  # a handler of the root would print each event again
        self._handler = _Stderr(_JsonFormatter() if form == "json" else _TextFormatter())
        self._logger.handlers = [self._handler]

    def debug(self, on: bool) -> None:  # noqa: FBT001 - a callback has one argument
        """Log everything, or return to the initial level."""
        self._logger.setLevel(LEVELS["debug"] if on else self._usual)

    def flush(self) -> None:
        """Wait until all is written, for `FLUSH_S` at most."""
        self._handler.flush()


class _Stderr(logging.Handler):
    """A handler for standard error with its own thread: a write without a reader never returns.

    Lines that cannot be written, or that come while `LINES_MAX` wait, are counted. Their number is
    logged before the next line that is written, for example after a disk was full.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._changed = Condition()
        self._lines: deque[str] = deque()
        self._is_writing = False
        self._lost_count = 0
        self._ends: Counter[object] = Counter()
        self._thread: Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        with self._changed:
            if len(self._lines) >= LINES_MAX or self._is_repeated(record):
                self._lost_count += 1
                log.lose()
                return
            self._lines.append(line)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = Thread(target=self._run, name="log", daemon=True)
            self._thread.start()

    def _is_repeated(self, record: logging.LogRecord) -> bool:
        at = record.exc_info[2] if record.exc_info else None
        if at is None:
            return False
        while at.tb_next is not None:
            at = at.tb_next
        end = record.created // 3600, at.tb_frame.f_code, at.tb_lineno
        if end not in self._ends and len(self._ends) >= TRACEBACKS_MAX:
            self._ends.clear()
        self._ends[end] += 1
        return self._ends[end] > TRACEBACKS_MAX

    def flush(self) -> None:
        """Wait until all lines are written, for `FLUSH_S` at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._is_writing, FLUSH_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._lines))
                line = self._lines.popleft()
                self._is_writing = True
                lost_count, self._lost_count = self._lost_count, 0
            if lost_count:
                event = LogEvent("log-lines-lost", {"count": lost_count})
                record = logging.LogRecord(NAME, logging.WARNING, "", 0, event, (), None)
                line = f"{self.format(record)}\n{line}"
            try:
                _write(line)
            except (OSError, ValueError):  # ValueError: standard error is closed
                with self._changed:
                    self._lost_count += lost_count + 1
                    log.lose()


def _write(text: str) -> None:
    stderr = sys.stderr
    if stderr is None:
        raise ValueError("standard error is closed")
    try:
        descriptor = stderr.fileno()
    except (OSError, ValueError):  # not a file, but an object that a test reads
        stderr.write(text)
        stderr.flush()
        return
    # Not through its buffer, whose lock the interpreter takes when it ends.
    rest = text.encode("utf-8", "backslashreplace")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class _JsonFormatter(logging.Formatter):
    """One object a line: the event's fields, then ``event``, ``level`` and ``timestamp``."""

    def format(self, record: logging.LogRecord) -> str:
        event = _event_of(record)
        row: dict[str, Any] = {**event.fields, "event": event.name}
        row |= {"level": record.levelname.lower(), "timestamp": _timestamp(record)}
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)  # a field of any type must not lose the line


class _TextFormatter(logging.Formatter):
    """One line an event, with colours on a terminal unless ``NO_COLOR`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self._coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        if self._coloured:
            level = f"\x1b[{COLOURS.get(level, 0)}m{level}\x1b[0m"
        padding = " " * (9 - len(record.levelname))  # so that all events begin in one column
        text = f"{_timestamp(record)} [{level}{padding}] {_event_of(record)}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def _event_of(record: logging.LogRecord) -> LogEvent:
    return record.msg if isinstance(record.msg, LogEvent) else LogEvent(record.getMessage(), {})


def _timestamp(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"
