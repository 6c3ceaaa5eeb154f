"""The messages between workers of a dataflow, besides elements."""

from __future__ import annotations

from typing import Final

from ringpop_py.base.values.declared import Declared, Natural, Text
from ringpop_py.flow.exchange.epochs import Worker
from ringpop_py.flow.exchange.leader import Tell

TELL: Final = "/dataflow/tell"


class LeaderMessage(Declared, frozen=True):
    """A leader's message to a worker, which answers with a `WorkerReport`.

    Attributes:
        seen: the newest record that the leader knows; None if there is none.
        leader: the name of the leader.
        epoch, last: see `Tell`.
    """

    flow: Text
    leader: Worker
    seen: Natural | None = None
    epoch: Natural | None = None
    last: bool = False

    @property
    def tell(self) -> Tell:
        """The act that the leader wants."""
        return Tell(self.epoch, self.last)
