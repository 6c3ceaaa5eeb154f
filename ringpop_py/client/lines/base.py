"""What clients of either kind know: their daemon, and how to call it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from ringpop_py.base.arguments import checked_seconds
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import ConfigError
from ringpop_py.client.lines.local_daemon import peer_of
from ringpop_py.client.lines.trust import key_file

if TYPE_CHECKING:
    from ringpop_py.base.address import Peer

CALL_TIMEOUT_S: Final = 10.0


class BaseClient(ABC):
    """Calls to the daemon at *peer*; by default to the one of this host.

    Args:
        peer: ``host:port``, ``unix:PATH`` of a daemon's Unix socket, or an `Address`. Without it,
            the variable RINGPOP_PEER names it; else it is the daemon whose socket is at its usual
            place, or the one at 127.0.0.1:3000.
        timeout_s: how long an answer may take, unless a call says otherwise.
        cluster_key: the file with the cluster's keys, if it has some; else the variable
            RINGPOP_CLUSTER_KEY names it. Unix sockets need none.

    Attributes:
        is_of_cluster: whether this process is a part of it, though it has no key.
    """

    def __init__(
        self,
        peer: Peer | str | None = None,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        limits: WireLimits | None = None,
        cluster_key: str | None = None,
    ) -> None:
        self.peer = peer_of(peer)
        if not checked_seconds(timeout_s, "timeout_s") > 0:
            raise ConfigError(f"timeout_s is above 0, not {timeout_s!r}")
        self.timeout_s = timeout_s
        self.cluster_key = key_file(cluster_key)
        self.is_of_cluster = False
        self.limits = limits or WireLimits()
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Make ready what has the connections."""

    def __reduce__(self) -> tuple[object, ...]:
        return self._made(), (self.peer,)

    def to(self, peer: Peer | str) -> Self:
        """Return a client like this one of another daemon."""
        return self._made()(peer)

    def _made(self) -> partial[Self]:
        return partial(
            type(self),
            timeout_s=self.timeout_s,
            limits=self.limits,
            cluster_key=self.cluster_key or "",  # and not what another process is told to use
        )
