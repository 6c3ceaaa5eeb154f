"""The labels of a node: those of its application, its own, and how busy it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import trio

from ringpop_py.errors import ConfigError
from ringpop_py.swim.member import DRAINING, LOAD_LABEL, checked_labels, relabelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.node.driver import NodeDriver
    from ringpop_py.swim.effects import Effect
    from ringpop_py.swim.member import Labels

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
            raise ConfigError(f"a load is a number from 0 (idle) to 1 (busy), not {load!r}")
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


class OwnLabels:
    """Changes the labels of the node that *driver* owns, and has others learn of it.

    Attributes:
        load: tells how busy the application is: seldom, and roughly.
    """

    def __init__(self, driver: NodeDriver) -> None:
        self._node = driver.node
        self._driver = driver
        self.load = LoadReport(self._tell_load)

    def replace(self, labels: Labels, *, draining: bool) -> None:
        """Have *labels* in place of the application's; see `Ringpop.set_labels`.

        Args:
            draining: the node stays one that drains, whatever *labels* say.
        """
        if draining and self._node.dialect.extends:
            labels = (*(label for label in labels if label[0] != DRAINING[0]), DRAINING)
        checked = relabelled(self._node.local.labels, labels)
        self._driver.submit(lambda now: self._node.set_labels(checked, now))

    def set_own(self, key: str, value: str | None) -> None:
        """Set a label that is the node's own, or take it away; of *key* see `OWN_PREFIXES`."""

        def set_it(now: int) -> list[Effect]:
            held = self._node.local.labels
            labels = tuple(label for label in held if label[0] != key)
            if value is not None:
                labels = tuple(sorted([*labels, (key, value)]))
            return self._node.set_labels(labels, now) if labels != held else []

        self._driver.submit(set_it)

    def set_load(self, load: float) -> None:
        """See `Ringpop.set_load`."""
        checked_labels(self._with_load("0"))
        self.load.set(load)

    def _with_load(self, text: str) -> Labels:
        others = [(key, value) for key, value in self._node.local.labels if key != LOAD_LABEL]
        return tuple(sorted([*others, (LOAD_LABEL, text)]))

    def _tell_load(self, text: str) -> None:
        self._driver.submit(lambda now: self._node.set_labels(self._with_load(text), now))
