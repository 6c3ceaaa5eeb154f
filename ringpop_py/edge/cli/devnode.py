"""A node of ``ringpopd dev``: ringpopd, which its parent can cut off from other nodes.

Each line of its input lists the addresses to cut off from then on; an empty line ends the cut.
The end of its input means that its parent has gone, and ends the node.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from ringpop_py.base.address import Address
from ringpop_py.edge.cli.ringpopd import main as ringpopd
from ringpop_py.net.transport.cuts import CutNetwork

if TYPE_CHECKING:
    from ringpop_py.net.transport.network import Listener

LINE_BYTES_MAX = 1 << 16


class TalkingNetwork(CutNetwork):
    """A network that obeys the parent, from the moment at which its node listens."""

    def __init__(self) -> None:
        super().__init__()
        self._listens = False

    async def listen(self, address: Address) -> list[Listener]:
        """See `Network`."""
        listeners = await super().listen(address)
        if not self._listens:
            self._listens = True
            trio.lowlevel.spawn_system_task(self._obey)
        return listeners

    async def _obey(self) -> None:
        async with trio.lowlevel.FdStream(os.dup(0)) as orders:
            said = b""
            while more := await orders.receive_some(LINE_BYTES_MAX):
                *lines, said = (said + more).split(b"\n")
                for line in lines:
                    self.cut([Address.parse(word) for word in line.decode().split()])
        with suppress(ProcessLookupError):
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(ringpopd(network=TalkingNetwork()))
