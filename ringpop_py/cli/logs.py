"""Structured logs on stderr: for people by default, JSON for programs."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Stderr:
    """Standard error for logs: what cannot be written is lost, which must not end the node."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


class Logs:
    """How this process logs; the level may change while it runs."""

    def __init__(self, form: str, level: str) -> None:
        self._usual = self._level = LEVELS[level]
        colours = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        renderer: Any = (
            structlog.processors.JSONRenderer()
            if form == "json"
            else structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=28)
        )
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.dev.set_exc_info,  # or `log.exception` says no more than its event
                self._filter,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                _as_text if form == "console" else _as_it_is,
                structlog.processors.dict_tracebacks
                if form == "json"
                else structlog.processors.format_exc_info,
                renderer,
            ],
            wrapper_class=structlog.BoundLogger,
            logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        )

    def debug(self, on: bool) -> None:  # noqa: FBT001 - a callback has one argument
        """Log everything, or as much as at the start."""
        self._level = LEVELS["debug"] if on else self._usual

    def _filter(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if LEVELS.get(event["level"], LEVELS["error"]) < self._level:
            raise structlog.DropEvent
        return event


def _as_text(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A person reads the one line that says it all, where there is one, and not its parts."""
    if "text" not in event:
        return event
    return {"event": event["text"], "level": event["level"], "timestamp": event["timestamp"]}


def _as_it_is(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    return event
