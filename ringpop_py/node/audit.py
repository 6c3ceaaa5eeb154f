"""The file of the audit log: lines of JSON, which a thread of their own writes in their order."""

from __future__ import annotations

import os
from queue import Full, Queue
from threading import Thread
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.logs import log
from ringpop_py.base.values.packed import encode_value

if TYPE_CHECKING:
    from collections.abc import Mapping

WAITING_MAX: Final = 10_000
"""The most lines that wait while the disk is slow; further ones are lost, and counted."""
FAREWELL_S: Final = 1.0
"""How long `AuditFile.close` waits, in seconds, for lines that are not written yet."""
MODE: Final = 0o600


class AuditFile:
    """Appends lines to the file at *path*, which it makes with the mode 0600 if it is not there.

    Lines that cannot be written are lost and counted as those of the log are (`log.lost_count`).

    Raises:
        ConfigError: the file cannot be opened; so does `reopen`, which keeps the old one then.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # A line, another descriptor to go on with, or the end.
        self._waiting: Queue[bytes | int | None] = Queue(WAITING_MAX)
        file = _opened(path)
        self._thread = Thread(target=self._run, args=(file,), name="audit", daemon=True)
        self._thread.start()

    def write(self, line: Mapping[str, object]) -> None:
        """Append *line*, a map of plain values, soon."""
        try:
            self._waiting.put_nowait(encode_value("json", line) + b"\n")
        except Full:
            log.lose()

    def reopen(self) -> str:
        """Go on in the file that has the path now, for example after a rotation; return the path.

        Lines that came before are still written to the old one.
        """
        file = _opened(self._path)
        try:
            self._waiting.put_nowait(file)
        except Full:
            os.close(file)
            raise ConfigError(f"{self._path}: {WAITING_MAX} lines wait to be written") from None
        return self._path

    def close(self) -> None:
        """Write what waits, for `FAREWELL_S` at most."""
        try:
            self._waiting.put(None, timeout=FAREWELL_S)
        except Full:
            return
        self._thread.join(FAREWELL_S)

    def _run(self, file: int) -> None:
        torn = failing = False
        while (item := self._waiting.get()) is not None:
            if isinstance(item, int):
                os.close(file)
                file, torn = item, False
                continue
            rest = b"\n" + item if torn else item
            try:
                while rest:
                    rest = rest[os.write(file, rest) :]
                torn = failing = False
            except OSError as error:
                torn = torn or len(rest) < len(item)
                log.lose()
                if not failing:  # once, until a line can be written again
                    log.error("audit-not-written", path=self._path, reason=str(error))  # noqa: TRY400 - as it says
                failing = True
        os.close(file)


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
    except OSError as error:
        raise ConfigError(f"--audit {path}: it cannot be opened: {error.strerror}") from None
