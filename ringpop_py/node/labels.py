"""The labels of a node: those of its application, its own, and how busy it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import trio

from ringpop_py.base.errors import ConfigError
from ringpop_py.member.swim.member import DRAINING, LOAD_LABEL, checked_labels, relabelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.member import Labels
    from ringpop_py.node.driver import NodeDriver

PAUSE_S: Final = 10.0
"""The least time between two changes of the label, in seconds: each is gossiped to all members."""


class LoadReport:
    """Publishes the load that was set last, rounded, at most once in `PAUSE_S`.

    Args:
        tell: called with the value of the label.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._wanted = self._told = ""
        self._changed = trio.Event()

    def set(self, load: float) -> None:
        """Set the load. Raises ConfigError unless *load* is 0 to 1."""
        if not isinstance(load, int | float) or not 0 <= load <= 1:
            raise ConfigError(f"a load is a number from 0 (idle) to 1 (busy), not {load!r}")
        self._wanted = f"{load:.2f}"
        if self._wanted != self._told:
            self._changed.set()

    async def run(self) -> NoReturn:
        """Publish changes, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()  # before it is read: a change from here on is not missed
            if self._wanted != self._told:
                self._told = self._wanted
                self._tell(self._told)
                await trio.sleep(PAUSE_S)


class OwnLabels:
    """Changes the labels of the node that *driver* owns; others learn of it by gossip.

    Attributes:
        load: publishes how busy the application is.
    """

    def __init__(self, driver: NodeDriver) -> None:
        self._node = driver.node
        self._driver = driver
        self.load = LoadReport(lambda text: self.set_own(LOAD_LABEL, text))

    def replace(self, labels: Labels, *, draining: bool) -> None:
        """Replace the application's labels by *labels*; see `Ringpop.set_labels`.

        Args:
            draining: whether the node keeps its label of draining, whatever *labels* are.
        """
        if draining and self._node.dialect.extends:
            labels = (*(label for label in labels if label[0] != DRAINING[0]), DRAINING)
        checked = relabelled(self._node.local.labels, labels)
        # Checked here, so that the caller gets the error, and not the task of the node.
        self._driver.submit(lambda now: self._node.set_labels(checked, now))

    def set_own(self, key: str, value: str | None) -> None:
        """Set a label of the node's own, or remove it; *key* begins as in `OWN_PREFIXES`."""

        def set_it(now: int) -> list[Effect]:
            # Read in the task of the node: changes that were submitted before are in it.
            labels = self._with(key, value)
            return self._node.set_labels(labels, now) if labels != self._node.local.labels else []

        self._driver.submit(set_it)

    def set_load(self, load: float) -> None:
        """See `Ringpop.set_load`."""
        checked_labels(self._with(LOAD_LABEL, "0"))  # is there room for one more label?
        self.load.set(load)

    def _with(self, key: str, value: str | None) -> Labels:
        labels = [label for label in self._node.local.labels if label[0] != key]
        if value is not None:
            labels.append((key, value))
        # Sorted, so that equal labels are equal values, and are not gossiped again.
        return tuple(sorted(labels))
