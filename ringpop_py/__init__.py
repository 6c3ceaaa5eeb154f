"""Stateful Python services and Spark jobs share one cluster with no leader: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base import errors
from ringpop_py.base.errors import *  # noqa: F403 - all of them are public
from ringpop_py.base.lazy import lazily

__all__ = []
__all__ += errors.__all__

if TYPE_CHECKING:
    from ringpop_py.base.address import Address as Address
    from ringpop_py.base.address import DnsLookup as DnsLookup
    from ringpop_py.base.config.settings import PRESETS as PRESETS
    from ringpop_py.base.config.settings import Config as Config
    from ringpop_py.base.config.settings import EntryConfig as EntryConfig
    from ringpop_py.base.config.settings import GossipConfig as GossipConfig
    from ringpop_py.base.config.settings import ProxyConfig as ProxyConfig
    from ringpop_py.base.config.settings import ShuffleConfig as ShuffleConfig
    from ringpop_py.base.config.settings import StateConfig as StateConfig
    from ringpop_py.base.config.settings import WireLimits as WireLimits
    from ringpop_py.base.logs import LogEvent as LogEvent
    from ringpop_py.base.values.operations import Change as Change
    from ringpop_py.base.values.operations import OperationId as OperationId
    from ringpop_py.base.values.operations import Outcome as Outcome
    from ringpop_py.base.values.operations import Span as Span
    from ringpop_py.base.values.operations import Value as Value
    from ringpop_py.base.values.operations import Write as Write
    from ringpop_py.base.values.packed import encode_value as encode_value
    from ringpop_py.base.version import __version__ as __version__
    from ringpop_py.client.aio.client import AsyncClient as AsyncClient
    from ringpop_py.client.aio.keyspaces import AsyncActorsClient as AsyncActorsClient
    from ringpop_py.client.aio.keyspaces import AsyncKeyspaceClient as AsyncKeyspaceClient
    from ringpop_py.client.calls import RingSnapshot as RingSnapshot
    from ringpop_py.client.jobs import JobClient as JobClient
    from ringpop_py.client.sync.client import Client as Client
    from ringpop_py.client.sync.keyspaces import ActorsClient as ActorsClient
    from ringpop_py.client.sync.keyspaces import KeyspaceClient as KeyspaceClient
    from ringpop_py.edge.daemon import open_ringpop as open_ringpop
    from ringpop_py.edge.entry.asgi import RingpopMiddleware as RingpopMiddleware
    from ringpop_py.edge.entry.wsgi import RingpopWSGI as RingpopWSGI
    from ringpop_py.flow.shuffle.client.client import Interval as Interval
    from ringpop_py.flow.shuffle.client.client import RandomOrder as RandomOrder
    from ringpop_py.flow.shuffle.client.client import ShuffleClient as ShuffleClient
    from ringpop_py.flow.shuffle.client.client import list_shuffles as list_shuffles
    from ringpop_py.flow.shuffle.client.client import random_order as random_order
    from ringpop_py.flow.shuffle.client.puts import Attempt as Attempt
    from ringpop_py.flow.shuffle.client.puts import Receipt as Receipt
    from ringpop_py.flow.shuffle.client.readers import Epoch as Epoch
    from ringpop_py.member.ring.hashring import HashRing as HashRing
    from ringpop_py.member.ring.hashring import moved as moved
    from ringpop_py.member.swim.effects import StatusChanged as StatusChanged
    from ringpop_py.member.swim.member import Member as Member
    from ringpop_py.member.swim.member import Status as Status
    from ringpop_py.member.swim.records import record_of as record_of
    from ringpop_py.member.swim.records import text_of as text_of
    from ringpop_py.node.ringpop import HealReport as HealReport
    from ringpop_py.node.ringpop import Ringpop as Ringpop
    from ringpop_py.node.stream import EventsLost as EventsLost
    from ringpop_py.node.stream import LookedUp as LookedUp
    from ringpop_py.node.stream import RingChanged as RingChanged
    from ringpop_py.route.proxy.request import AppCall as AppCall
    from ringpop_py.route.proxy.request import HttpReply as HttpReply
    from ringpop_py.route.proxy.request import HttpRequest as HttpRequest
    from ringpop_py.route.proxy.request import ManyCall as ManyCall
    from ringpop_py.route.proxy.request import OwnerReply as OwnerReply
    from ringpop_py.route.proxy.request import Reply as Reply
    from ringpop_py.route.proxy.request import Request as Request
    from ringpop_py.state.actors.actors import Actor as Actor
    from ringpop_py.state.actors.reminders import Reminder as Reminder
    from ringpop_py.state.keyspaces.keyspace import Keyspace as Keyspace
    from ringpop_py.state.keyspaces.local import open_local_keyspaces as open_local_keyspaces
    from ringpop_py.state.leaders.lead import Lead as Lead
    from ringpop_py.state.locks.lock import Lock as Lock
    from ringpop_py.state.placement.keys import partition_of as partition_of
    from ringpop_py.state.placement.presets import KeyspacePreset as KeyspacePreset
    from ringpop_py.state.placement.presets import keyspace_preset as keyspace_preset
    from ringpop_py.state.placement.table import Table as Table
    from ringpop_py.state.requests import expiring as expiring
    from ringpop_py.state.rows.stagefile import Chunk as Chunk
    from ringpop_py.state.rows.stagefile import encode_stage as encode_stage
    from ringpop_py.state.shares.rescale_events import Gained as Gained
    from ringpop_py.state.shares.rescale_events import Lost as Lost
    from ringpop_py.state.table.aggregations import ABSENT as ABSENT
    from ringpop_py.state.table.conditions import tag_of as tag_of
    from ringpop_py.state.ticks.ticks import Tick as Tick
    from ringpop_py.state.watch.course import KeyChange as KeyChange
    from ringpop_py.state.watch.course import WatchPosition as WatchPosition
else:
    __getattr__, __dir__, names = lazily(
        __name__,
        {
            "state.actors.actors": "Actor",
            "state.actors.reminders": "Reminder",
            "base.address": "Address DnsLookup",
            "client.aio.client": "AsyncClient",
            "client.calls": "RingSnapshot",
            "client.sync.client": "Client",
            "client.sync.keyspaces": "ActorsClient KeyspaceClient",
            "client.aio.keyspaces": "AsyncActorsClient AsyncKeyspaceClient",
            "base.config.settings": (
                "PRESETS Config EntryConfig GossipConfig ProxyConfig ShuffleConfig StateConfig"
                " WireLimits"
            ),
            "edge.daemon": "open_ringpop",
            "edge.entry.asgi": "RingpopMiddleware",
            "edge.entry.wsgi": "RingpopWSGI",
            "client.jobs": "JobClient",
            "state.rows.stagefile": "Chunk encode_stage",
            "state.table.aggregations": "ABSENT",
            "state.table.conditions": "tag_of",
            "state.ticks.ticks": "Tick",
            "state.requests": "expiring",
            "state.watch.course": "KeyChange WatchPosition",
            "state.keyspaces.keyspace": "Keyspace",
            "state.keyspaces.local": "open_local_keyspaces",
            "base.logs": "LogEvent",
            "node.ringpop": "HealReport Ringpop",
            "node.stream": "EventsLost LookedUp RingChanged",
            "state.leaders.lead": "Lead",
            "state.locks.lock": "Lock",
            "state.placement.keys": "partition_of",
            "state.placement.presets": "KeyspacePreset keyspace_preset",
            "state.placement.table": "Table",
            "route.proxy.request": (
                "AppCall HttpReply HttpRequest ManyCall OwnerReply Reply Request"
            ),
            "member.ring.hashring": "HashRing moved",
            "state.shares.rescale_events": "Gained Lost",
            "flow.shuffle.client.client": (
                "Interval RandomOrder ShuffleClient list_shuffles random_order"
            ),
            "flow.shuffle.client.puts": "Attempt Receipt",
            "flow.shuffle.client.readers": "Epoch",
            "member.swim.effects": "StatusChanged",
            "member.swim.member": "Member Status",
            "member.swim.records": "record_of text_of",
            "base.values.operations": "Change OperationId Outcome Span Value Write",
            "base.values.packed": "encode_value",
            "base.version": "__version__",
        },
    )
    __all__ += names  # noqa: PLE0605 - a list of names
