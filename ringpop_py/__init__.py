"""Stateful Python services and Spark jobs share one cluster with no leader.

The public names. They are loaded when they are first used: a Spark worker that imports this
package to look up keys must load neither trio nor the daemon.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringpop_py.address import Address as Address
    from ringpop_py.client import Client as Client
    from ringpop_py.client import RingSnapshot as RingSnapshot
    from ringpop_py.config import PRESETS as PRESETS
    from ringpop_py.config import Config as Config
    from ringpop_py.config import GossipConfig as GossipConfig
    from ringpop_py.config import ProxyConfig as ProxyConfig
    from ringpop_py.config import WireLimits as WireLimits
    from ringpop_py.daemon import open_ringpop as open_ringpop
    from ringpop_py.errors import ApplicationError as ApplicationError
    from ringpop_py.errors import RingpopError as RingpopError
    from ringpop_py.membership.member import Member as Member
    from ringpop_py.membership.member import Status as Status
    from ringpop_py.proxy.forwarding import AppCall as AppCall
    from ringpop_py.proxy.forwarding import OwnerReply as OwnerReply
    from ringpop_py.proxy.request import HttpReply as HttpReply
    from ringpop_py.proxy.request import HttpRequest as HttpRequest
    from ringpop_py.proxy.request import Reply as Reply
    from ringpop_py.proxy.request import Request as Request
    from ringpop_py.ring import HashRing as HashRing
    from ringpop_py.ring import moved as moved
    from ringpop_py.ringpop import Ringpop as Ringpop

_HOMES = {
    "Address": "address",
    "AppCall": "proxy.forwarding",
    "ApplicationError": "errors",
    "Client": "client",
    "Config": "config",
    "GossipConfig": "config",
    "HashRing": "ring",
    "HttpReply": "proxy.request",
    "HttpRequest": "proxy.request",
    "Member": "membership.member",
    "OwnerReply": "proxy.forwarding",
    "PRESETS": "config",
    "ProxyConfig": "config",
    "Reply": "proxy.request",
    "Request": "proxy.request",
    "RingSnapshot": "client",
    "Ringpop": "ringpop",
    "RingpopError": "errors",
    "Status": "membership.member",
    "WireLimits": "config",
    "moved": "ring",
    "open_ringpop": "daemon",
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
