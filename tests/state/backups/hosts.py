"""What tests of backups need of a node that has the keyspace ``counts``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.state.catalog.catalog import Catalog
from ringpop_py.state.catalog.manifests import read_manifests

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.catalog.manifests import Manifest
    from ringpop_py.state.durable.host import DurableHost


def host_of(node: Ringpop, name: str = "counts") -> DurableHost:
    return node.keyspaces.durable_host(name)


def listed_at(node: Ringpop) -> list[Manifest]:
    """The complete checkpoints of all generations, the oldest first."""
    host = host_of(node)
    return read_manifests(Catalog(host.store, host.keys.cluster), host.definition.name)
