"""How busy the application is, told to the cluster as a label: seldom, and roughly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import trio

from ringpop_py.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_S: Final = 10.0
"""Between two changes of the label: each is gossiped to all members."""


class LoadReport:
    """Tells the load that was set last, rounded, and not more often than each `PAUSE_S`.

    Args:
        tell: handed the value of the label.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._wanted = self._told = ""
        self._changed = trio.Event()

    def set(self, load: float) -> None:
        """The load is *load* now. Raises ConfigError unless that is 0 to 1."""
        if not isinstance(load, int | float) or not 0 <= load <= 1:
            message = f"a load is a number from 0 (idle) to 1 (busy), not {load!r}"
            raise ConfigError(message)
        self._wanted = f"{load:.2f}"
        if self._wanted != self._told:
            self._changed.set()

    async def run(self) -> NoReturn:
        """Tell what changes, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            if self._wanted != self._told:
                self._told = self._wanted
                self._tell(self._told)
                await trio.sleep(PAUSE_S)
