"""What the machines of members in trouble do with a connection: whether they are there at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import trio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.net.transport.channel import Channel
    from ringpop_py.net.transport.network import Network

Knock = Literal["refused", "accepted", "silent"]
KNOCK_S: Final = 0.5
"""The seconds in which a machine that is there accepts or refuses a connection."""
TOGETHER_MAX: Final = 8
"""The most machines that are asked at the same time, and within `FRESH_S`."""
FRESH_S: Final = 5.0
"""For how long an answer counts, however often it is asked for."""


class Knocks:
    """See the module; it asks on request only.

    A process that hangs is told from a machine that is away: the system accepts connections for it.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._known: dict[Address, tuple[float, Knock]] = {}

    async def at(self, addresses: Sequence[Address]) -> dict[Address, Knock]:
        """Return what the machines at *addresses* do; of many, those asked last are left out."""
        began = trio.current_time() - FRESH_S
        self._known = {to: known for to, known in self._known.items() if known[0] > began}
        unknown = [to for to in addresses if to not in self._known]
        async with trio.open_nursery() as nursery:
            for to in unknown[: max(0, TOGETHER_MAX - len(self._known))]:
                nursery.start_soon(self._ask, to)
        return {to: self._known[to][1] for to in addresses if to in self._known}

    async def _ask(self, to: Address) -> None:
        knock = await self._knock(to)
        self._known[to] = trio.current_time(), knock

    async def _knock(self, at: Address) -> Knock:
        # TLS would need the process: the system accepts for one that hangs.
        network: Network = getattr(self._channel.network, "inner", self._channel.network)
        try:
            with trio.fail_after(KNOCK_S):
                stream = await network.connect(at, origin=self._channel.host_port)
        except ConnectionRefusedError:
            return "refused"
        except (OSError, trio.TooSlowError):
            return "silent"
        stream.close()
        return "accepted"
