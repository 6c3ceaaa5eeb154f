"""Stateful Python services and Spark jobs share one cluster with no leader.

The public names. They are loaded when they are first used: a Spark worker that imports this
package to look up keys must load neither trio nor the daemon.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringpop_py.address import Address as Address
    from ringpop_py.client.client import Client as Client
    from ringpop_py.client.client import RingSnapshot as RingSnapshot
    from ringpop_py.client.keyspace_client import KeyspaceClient as KeyspaceClient
    from ringpop_py.config.settings import PRESETS as PRESETS
    from ringpop_py.config.settings import Config as Config
    from ringpop_py.config.settings import GossipConfig as GossipConfig
    from ringpop_py.config.settings import ProxyConfig as ProxyConfig
    from ringpop_py.config.settings import StateConfig as StateConfig
    from ringpop_py.config.settings import WireLimits as WireLimits
    from ringpop_py.daemon import open_ringpop as open_ringpop
    from ringpop_py.errors import ApplicationError as ApplicationError
    from ringpop_py.errors import BadOperation as BadOperation
    from ringpop_py.errors import ConditionFailed as ConditionFailed
    from ringpop_py.errors import ConfigError as ConfigError
    from ringpop_py.errors import JobAborted as JobAborted
    from ringpop_py.errors import KeyspaceConflict as KeyspaceConflict
    from ringpop_py.errors import KeyspaceError as KeyspaceError
    from ringpop_py.errors import KeyspaceUnknown as KeyspaceUnknown
    from ringpop_py.errors import NotEnoughMembers as NotEnoughMembers
    from ringpop_py.errors import OperationIdReused as OperationIdReused
    from ringpop_py.errors import OperationTooOld as OperationTooOld
    from ringpop_py.errors import OutcomeUnknown as OutcomeUnknown
    from ringpop_py.errors import PartitionFull as PartitionFull
    from ringpop_py.errors import PartitionUnavailable as PartitionUnavailable
    from ringpop_py.errors import RingpopError as RingpopError
    from ringpop_py.errors import RowsRefused as RowsRefused
    from ringpop_py.errors import StoreFull as StoreFull
    from ringpop_py.errors import StoreUnavailable as StoreUnavailable
    from ringpop_py.jobs.client import JobClient as JobClient
    from ringpop_py.keyed.conditions import tag_of as tag_of
    from ringpop_py.keyspaces.keyspace import Keyspace as Keyspace
    from ringpop_py.node.ringpop import HealReport as HealReport
    from ringpop_py.node.ringpop import Ringpop as Ringpop
    from ringpop_py.proxy.request import AppCall as AppCall
    from ringpop_py.proxy.request import HttpReply as HttpReply
    from ringpop_py.proxy.request import HttpRequest as HttpRequest
    from ringpop_py.proxy.request import OwnerReply as OwnerReply
    from ringpop_py.proxy.request import Reply as Reply
    from ringpop_py.proxy.request import Request as Request
    from ringpop_py.ring.hashring import HashRing as HashRing
    from ringpop_py.ring.hashring import moved as moved
    from ringpop_py.steward.rescale_events import Gained as Gained
    from ringpop_py.steward.rescale_events import Lost as Lost
    from ringpop_py.swim.member import Member as Member
    from ringpop_py.swim.member import Status as Status
    from ringpop_py.values.operations import Change as Change
    from ringpop_py.values.operations import OperationId as OperationId

_HOMES = {
    "Address": "address",
    "AppCall": "proxy.request",
    "ApplicationError": "errors",
    "BadOperation": "errors",
    "Change": "values.operations",
    "Client": "client.client",
    "ConditionFailed": "errors",
    "Config": "config.settings",
    "ConfigError": "errors",
    "Gained": "steward.rescale_events",
    "GossipConfig": "config.settings",
    "HashRing": "ring.hashring",
    "HealReport": "node.ringpop",
    "HttpReply": "proxy.request",
    "HttpRequest": "proxy.request",
    "JobAborted": "errors",
    "JobClient": "jobs.client",
    "Keyspace": "keyspaces.keyspace",
    "KeyspaceClient": "client.keyspace_client",
    "KeyspaceConflict": "errors",
    "KeyspaceError": "errors",
    "KeyspaceUnknown": "errors",
    "Lost": "steward.rescale_events",
    "Member": "swim.member",
    "NotEnoughMembers": "errors",
    "OperationId": "values.operations",
    "OperationIdReused": "errors",
    "OperationTooOld": "errors",
    "OutcomeUnknown": "errors",
    "OwnerReply": "proxy.request",
    "PRESETS": "config.settings",
    "PartitionFull": "errors",
    "PartitionUnavailable": "errors",
    "ProxyConfig": "config.settings",
    "Reply": "proxy.request",
    "Request": "proxy.request",
    "RingSnapshot": "client.client",
    "Ringpop": "node.ringpop",
    "RingpopError": "errors",
    "RowsRefused": "errors",
    "StateConfig": "config.settings",
    "Status": "swim.member",
    "StoreFull": "errors",
    "StoreUnavailable": "errors",
    "WireLimits": "config.settings",
    "moved": "ring.hashring",
    "open_ringpop": "daemon",
    "tag_of": "keyed.conditions",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
