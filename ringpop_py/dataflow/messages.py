"""What workers of a dataflow say to each other, besides elements."""

from __future__ import annotations

from typing import Final

from ringpop_py.exchange.epochs import Worker
from ringpop_py.exchange.leader import Tell
from ringpop_py.values.declared import Declared, Natural, Text

TELL: Final = "/dataflow/tell"


class Told(Declared, frozen=True):
    """What a leader tells a worker, which answers with `ringpop_py.exchange.leader.Said`.

    Attributes:
        seen: the newest record that the leader knows; None if there is none.
        leader: who says so.
        epoch, last: see `Tell`.
    """

    flow: Text
    leader: Worker
    seen: Natural | None = None
    epoch: Natural | None = None
    last: bool = False

    @property
    def tell(self) -> Tell:
        """What is to be done."""
        return Tell(self.epoch, self.last)
