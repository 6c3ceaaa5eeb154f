"""What keyspaces need of the node that they live in; `ringpop_py.node.ringpop.Ringpop` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.address import Address
    from ringpop_py.config.settings import Config
    from ringpop_py.proxy.forward import Proxy
    from ringpop_py.ring.hashring import HashRing
    from ringpop_py.swim.effects import Effect
    from ringpop_py.swim.member import Member, Status
    from ringpop_py.transport.channel import Channel


class NodeView(Protocol):
    """One member of a cluster, as keyspaces see it."""

    config: Config
    channel: Channel
    ring: HashRing
    proxying: Proxy

    @property
    def name(self) -> str:
        """Our name."""

    @property
    def ready(self) -> bool:
        """Whether the first join is done."""

    @property
    def members(self) -> tuple[Member, ...]:
        """All rows of the member list, by name."""

    def status_of(self, name: str) -> Status | None:
        """The status of the member *name*, if there is such a member."""

    def address_of(self, name: str) -> Address | None:
        """Where the member *name* listens."""

    def set_own_label(self, key: str, value: str | None) -> None:
        """Set a label of the node's own, or take it away."""

    def observe(self, observer: Callable[[Effect], None]) -> None:
        """Have *observer* told each fact of the protocol."""
