"""The process for shuffles beside a node, as the node knows it."""

from __future__ import annotations

from ringpop_py.values.declared import Named, Natural


class ShuffleLoad(Named, frozen=True):
    """What the process says of itself, once a second.

    Attributes:
        held_bytes: rows on their way, in memory.
        disk_bytes: the files of shuffles.
        shuffles: how many have rows here, by state.
    """

    held_bytes: Natural = 0
    disk_bytes: Natural = 0
    shuffles: dict[str, Natural] = {}  # noqa: RUF012 - msgspec copies an empty default


class ShufflesBeside:
    """See the module.

    Attributes:
        starts: how often the process was started.
        runs: whether it runs.
        load: what it has said last.
    """

    def __init__(self) -> None:
        self.starts = 0
        self.runs = False
        self.load = ShuffleLoad()
