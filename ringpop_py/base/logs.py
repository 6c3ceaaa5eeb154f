"""The log of the library: structured events in Python's `logging`, under the name ``ringpop``.

A program that embeds a node configures this logger like that of any library, for example by
``logging.getLogger("ringpop").setLevel("ERROR")``. Without configuration, warnings and errors go to
standard error. `ringpopd` has formats of its own (`ringpop_py.edge.cli.logs`).
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

NAME: Final = "ringpop"
KEPT_MAX: Final = 1_000
"""The most events that are kept for those who ask for them later; then the oldest is forgotten."""
TRACEBACK_CHARACTERS_MAX: Final = 8_000
"""The most characters of a traceback that are kept: its end."""
WATCHED_S: Final = 10.0
"""The seconds for which debug events are kept, too, after somebody has asked for them."""

Kept = tuple[int, float, int, str, Mapping[str, object], str]
"""An event that was logged: its number, which counts up from 1, when it was by the wall clock, its
level, its name and fields, and the traceback or nothing."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """The message of a log record (`logging.LogRecord.msg`).

    Attributes:
        name: the kind of the event.
        fields: its data; the field ``text`` is a sentence that needs no other fields.
    """

    name: str
    fields: Mapping[str, object]

    def __str__(self) -> str:
        """Return the sentence, or the name and all fields."""
        if "text" in self.fields:
            return str(self.fields["text"])
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.fields.items())])


class LogSink:
    """Writes events to a logger; each method is a level, its keywords are the event's fields.

    Attributes:
        counts: how often each event was logged in this process, by its name and level.
        lost_count, lost_at: how many lines could not be written, as their writer says (`lose`), and
            when the last one, by `time.monotonic`; 0 if none was lost.
        kept: the last events at the level info or above, whatever is written; and those below while
            somebody asks for them.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        self.lost_count, self.lost_at = 0, 0.0
        self.kept: deque[Kept] = deque(maxlen=KEPT_MAX)
        self._numbers = count(1)
        self._kept_level = logging.INFO
        self._watched_until = 0.0
        self._logger = logger

    def watch(self) -> None:
        """Keep debug events, too, for the next `WATCHED_S`. What is written stays as it is."""
        self._watched_until = time.monotonic() + WATCHED_S
        self._kept_level = logging.DEBUG

    def lose(self) -> None:
        """Count a line that could not be written."""
        self.lost_count += 1
        self.lost_at = time.monotonic()

    def _is_watched(self) -> bool:
        if time.monotonic() > self._watched_until:
            self._kept_level = logging.INFO
        return self._kept_level == logging.DEBUG

    def debug(self, event: str, /, **fields: object) -> None:
        """Log *event* at the level debug."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Log *event* at the level info."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Log *event* at the level warning."""
        self._write(logging.WARNING, event, fields)

    def error(
        self, event: str, /, *, exc_info: BaseException | None = None, **fields: object
    ) -> None:
        """Log *event*, with the traceback of *exc_info* if it is given."""
        self._write(logging.ERROR, event, fields, exc_info)

    def exception(self, event: str, /, **fields: object) -> None:
        """Log *event* with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, fields, sys.exception())

    def _write(
        self,
        level: int,
        event: str,
        fields: Mapping[str, object],
        exc_info: BaseException | None = None,
    ) -> None:
        if level >= self._kept_level and (level > logging.DEBUG or self._is_watched()):
            raised = "".join(traceback.format_exception(exc_info)) if exc_info is not None else ""
            raised = raised[-TRACEBACK_CHARACTERS_MAX:]  # not the error itself, which has frames
            self.kept.append((next(self._numbers), time.time(), level, event, fields, raised))
        if self._logger.isEnabledFor(level):  # most debug events are never made
            self.counts[event, level] += 1
            # The third frame is that of the caller; the two above it are of this class.
            self._logger.log(level, LogEvent(event, fields), exc_info=exc_info, stacklevel=3)


log: Final = LogSink(logging.getLogger(NAME))
