"""The other processes for shuffles, by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.errors import ShuffleUnavailable
from ringpop_py.flow.shuffle.server.wire import Peer

if TYPE_CHECKING:
    from pathlib import Path

    import trio

    from ringpop_py.flow.shuffle.protocol import calls as c
    from ringpop_py.flow.shuffle.protocol.record import MemberId
    from ringpop_py.flow.shuffle.server.view import Watch
    from ringpop_py.flow.shuffle.sorting.frames import Bytes
    from ringpop_py.net.security.streams import Keys


class Peers:
    """Calls other processes. Files and slices do not share connections with short messages."""

    def __init__(self, watch: Watch, nursery: trio.Nursery, keys: Keys | None) -> None:
        self._watch = watch
        self._nursery = nursery
        self._keys = keys
        self._peers: dict[tuple[str, str, bool], Peer] = {}

    async def call(
        self,
        member: MemberId,
        call: c.Call,
        body: Bytes = b"",
        *,
        timeout_s: float,
        path: Path | None = None,
        bulk: bool = False,
    ) -> tuple[c.Reply, bytearray]:
        """Return the reply of *member*, whatever life it is in; see `Peer.call`.

        Raises:
            ShuffleUnavailable: if it is not known, or does not answer in time.
        """
        shuffler = self._watch.shufflers.get(member.host)
        if shuffler is None:
            raise ShuffleUnavailable(f"{member.host} has no process for shuffles now")
        key = member.host, shuffler.address, bulk
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = Peer(member.host, shuffler.address, self._nursery, self._keys)
        return await peer.call(call, body, timeout_s=timeout_s, path=path)
