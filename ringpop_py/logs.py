"""The log of the library: structured events on Python's own `logging`, under the name ``ringpop``.

A program that embeds a node configures it as it does every other library, for example by
``logging.getLogger("ringpop").setLevel("ERROR")``. If it configures nothing, warnings and errors
go to standard error as Python has it, and nothing else does. `ringpopd` formats events for people
or as JSON (`ringpop_py.cli.logs`).
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "ringpop"


@dataclass(frozen=True, slots=True)
class LogEvent:
    """What a log record of ours holds as its message (`logging.LogRecord.msg`).

    Attributes:
        name: which kind of event.
        fields: what is known of it; under ``text``, if it is there, one sentence that says it all.
    """

    name: str
    fields: Mapping[str, object]

    def __str__(self) -> str:
        """The sentence; otherwise the name and all fields."""
        if "text" in self.fields:
            return str(self.fields["text"])
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.fields.items())])


class LogSink:
    """Writes events to a logger; each method is a level, its keywords are the event's fields."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

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
        if self._logger.isEnabledFor(level):
            # The third frame is the caller's; the two below it are of this class.
            self._logger.log(level, LogEvent(event, fields), exc_info=exc_info, stacklevel=3)


log: Final = LogSink(logging.getLogger(NAME))
