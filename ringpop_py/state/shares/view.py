"""What keyspaces need of their node. It is `ringpop_py.node.ringpop.Ringpop`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.address import Address
    from ringpop_py.base.config.settings import Config
    from ringpop_py.member.ring.hashring import HashRing
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.member import Member, Status
    from ringpop_py.net.transport.channel import Channel
    from ringpop_py.route.proxy.forward import Proxy


class Places(Protocol):
    """Where partitions may be. It is `ringpop_py.member.ring.placement.Placement`."""

    @property
    def holders(self) -> HashRing:
        """The members that may hold partitions."""


class LabelsView(Protocol):
    """The labels of a node. It is `ringpop_py.node.labels.OwnLabels`."""

    def set_own(self, key: str, value: str | None) -> None:
        """Set a label of the node's own, or remove it."""


class ReporterView(Protocol):
    """What tells operators of a node. It is `ringpop_py.node.reporter.Reporter`."""

    def warning(self, event: str, **fields: object) -> None:
        """Log *event*, and keep it among the last events; it has a ``member`` and a ``text``."""


class NodeView(Protocol):
    """One member of a cluster, as keyspaces see it."""

    config: Config
    channel: Channel
    proxying: Proxy

    @property
    def labels(self) -> LabelsView:
        """The labels of this node."""

    @property
    def reporter(self) -> ReporterView:
        """What tells operators of this node."""

    @property
    def placement(self) -> Places:
        """Which members may hold partitions."""

    @property
    def name(self) -> str:
        """The name of this node."""

    @property
    def ready(self) -> bool:
        """Whether the first join is done."""

    @property
    def members(self) -> tuple[Member, ...]:
        """All rows of the member list, by name."""

    def status_of(self, name: str) -> Status | None:
        """Return the status of the member *name*; None if there is no such member."""

    def is_silent(self, name: str) -> bool:
        """Return whether the member *name* is suspect, and neither we nor others reach it."""

    def doubt(self, name: str) -> None:
        """Find out soon whether the member *name* is there, on which something here depends."""

    def address_of(self, name: str) -> Address | None:
        """Return the address of the member *name*; None if there is no such member."""

    def observe(self, observer: Callable[[Effect], None]) -> None:
        """Call *observer* with each fact of the protocol."""
