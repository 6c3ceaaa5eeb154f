"""The ring, from whichever daemon answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.address import Address
from ringpop_py.client import Client
from ringpop_py.errors import CallError, ConfigError, ConnectFailed, WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.client import RingSnapshot

SNAPSHOT_TIMEOUT_S: Final = 3.0


def ring_snapshot(peers: str | Address | Sequence[str | Address]) -> RingSnapshot:
    """The ring as the first of *peers* that answers sees it; a peer is ``host:port``.

    Raises:
        ConnectFailed: none of them answers; the message says why, peer by peer.
        ConfigError: no peer is given, or one is malformed.
    """
    listed = peer_list(peers)
    reasons = []
    for peer in listed:
        try:
            with Client(peer, timeout_s=SNAPSHOT_TIMEOUT_S) as client:
                return client.ring()
        except (CallError, WireError) as error:
            reasons.append(f"{peer}: {error}")
    message = "no peer tells its ring:\n  " + "\n  ".join(reasons)
    raise ConnectFailed(message)


def peer_list(peers: str | Address | Sequence[str | Address]) -> tuple[str, ...]:
    """*peers* as texts.

    Raises:
        ConfigError: there is none.
    """
    # An address is a sequence as well, of a host and a port.
    listed = [peers] if isinstance(peers, str | Address) else list(peers)
    if not listed:
        message = "name at least one peer, as host:port"
        raise ConfigError(message)
    return tuple(str(peer) for peer in listed)
