"""What tests of backups need of a node that has the keyspace ``counts``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.catalog.catalog import Catalog
from ringpop_py.catalog.manifests import read_manifests

if TYPE_CHECKING:
    from ringpop_py.catalog.manifests import Manifest
    from ringpop_py.durable.host import DurableHost
    from ringpop_py.node.ringpop import Ringpop


def host_of(node: Ringpop, name: str = "counts") -> DurableHost:
    return node.keyspaces.durable_host(name)


def listed_at(node: Ringpop) -> list[Manifest]:
    """The complete checkpoints of all generations, the oldest first."""
    host = host_of(node)
    return read_manifests(Catalog(host.store, host.keys.cluster), host.definition.name)
