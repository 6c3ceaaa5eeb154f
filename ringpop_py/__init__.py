"""Stateful Python services and Spark jobs share one cluster with no leader: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py import errors
from ringpop_py.errors import *  # noqa: F403 - all of them are public
from ringpop_py.lazy import lazily

__all__ = []
__all__ += errors.__all__

if TYPE_CHECKING:
    from ringpop_py.actors.actors import Actor as Actor
    from ringpop_py.address import Address as Address
    from ringpop_py.address import DnsLookup as DnsLookup
    from ringpop_py.client.aio import AsyncClient as AsyncClient
    from ringpop_py.client.client import Client as Client
    from ringpop_py.client.client import RingSnapshot as RingSnapshot
    from ringpop_py.client.keyspace_client import KeyspaceClient as KeyspaceClient
    from ringpop_py.columns.stagefile import Chunk as Chunk
    from ringpop_py.columns.stagefile import encode_stage as encode_stage
    from ringpop_py.config.settings import PRESETS as PRESETS
    from ringpop_py.config.settings import Config as Config
    from ringpop_py.config.settings import GossipConfig as GossipConfig
    from ringpop_py.config.settings import ProxyConfig as ProxyConfig
    from ringpop_py.config.settings import ShuffleConfig as ShuffleConfig
    from ringpop_py.config.settings import StateConfig as StateConfig
    from ringpop_py.config.settings import WireLimits as WireLimits
    from ringpop_py.daemon import open_ringpop as open_ringpop
    from ringpop_py.entry.asgi import RingpopMiddleware as RingpopMiddleware
    from ringpop_py.entry.wsgi import RingpopWSGI as RingpopWSGI
    from ringpop_py.jobs.client import JobClient as JobClient
    from ringpop_py.keyed.aggregations import ABSENT as ABSENT
    from ringpop_py.keyed.conditions import tag_of as tag_of
    from ringpop_py.keyspaces.keyspace import Keyspace as Keyspace
    from ringpop_py.keyspaces.local import open_local_keyspaces as open_local_keyspaces
    from ringpop_py.logs import LogEvent as LogEvent
    from ringpop_py.node.ringpop import HealReport as HealReport
    from ringpop_py.node.ringpop import Ringpop as Ringpop
    from ringpop_py.placing.keys import partition_of as partition_of
    from ringpop_py.placing.presets import KeyspacePreset as KeyspacePreset
    from ringpop_py.placing.presets import keyspace_preset as keyspace_preset
    from ringpop_py.placing.table import Table as Table
    from ringpop_py.proxy.request import AppCall as AppCall
    from ringpop_py.proxy.request import HttpReply as HttpReply
    from ringpop_py.proxy.request import HttpRequest as HttpRequest
    from ringpop_py.proxy.request import ManyCall as ManyCall
    from ringpop_py.proxy.request import OwnerReply as OwnerReply
    from ringpop_py.proxy.request import Reply as Reply
    from ringpop_py.proxy.request import Request as Request
    from ringpop_py.ring.hashring import HashRing as HashRing
    from ringpop_py.ring.hashring import moved as moved
    from ringpop_py.shares.rescale_events import Gained as Gained
    from ringpop_py.shares.rescale_events import Lost as Lost
    from ringpop_py.shuffling.client import Interval as Interval
    from ringpop_py.shuffling.client import RandomOrder as RandomOrder
    from ringpop_py.shuffling.client import ShuffleClient as ShuffleClient
    from ringpop_py.shuffling.client import list_shuffles as list_shuffles
    from ringpop_py.shuffling.client import random_order as random_order
    from ringpop_py.shuffling.putting import Attempt as Attempt
    from ringpop_py.shuffling.putting import Receipt as Receipt
    from ringpop_py.shuffling.readers import Epoch as Epoch
    from ringpop_py.swim.effects import StatusChanged as StatusChanged
    from ringpop_py.swim.member import Member as Member
    from ringpop_py.swim.member import Status as Status
    from ringpop_py.swim.records import record_of as record_of
    from ringpop_py.swim.records import text_of as text_of
    from ringpop_py.values.operations import Change as Change
    from ringpop_py.values.operations import OperationId as OperationId
    from ringpop_py.values.operations import Outcome as Outcome
    from ringpop_py.values.operations import Span as Span
    from ringpop_py.values.operations import Write as Write
    from ringpop_py.values.packed import encode_value as encode_value
    from ringpop_py.version import __version__ as __version__
else:
    __getattr__, __dir__, names = lazily(
        __name__,
        {
            "actors.actors": "Actor",
            "address": "Address DnsLookup",
            "client.aio": "AsyncClient",
            "client.client": "Client RingSnapshot",
            "client.keyspace_client": "KeyspaceClient",
            "config.settings": (
                "PRESETS Config GossipConfig ProxyConfig ShuffleConfig StateConfig WireLimits"
            ),
            "daemon": "open_ringpop",
            "entry.asgi": "RingpopMiddleware",
            "entry.wsgi": "RingpopWSGI",
            "jobs.client": "JobClient",
            "columns.stagefile": "Chunk encode_stage",
            "keyed.aggregations": "ABSENT",
            "keyed.conditions": "tag_of",
            "keyspaces.keyspace": "Keyspace",
            "keyspaces.local": "open_local_keyspaces",
            "logs": "LogEvent",
            "node.ringpop": "HealReport Ringpop",
            "placing.keys": "partition_of",
            "placing.presets": "KeyspacePreset keyspace_preset",
            "placing.table": "Table",
            "proxy.request": "AppCall HttpReply HttpRequest ManyCall OwnerReply Reply Request",
            "ring.hashring": "HashRing moved",
            "shares.rescale_events": "Gained Lost",
            "shuffling.client": "Interval RandomOrder ShuffleClient list_shuffles random_order",
            "shuffling.putting": "Attempt Receipt",
            "shuffling.readers": "Epoch",
            "swim.effects": "StatusChanged",
            "swim.member": "Member Status",
            "swim.records": "record_of text_of",
            "values.operations": "Change OperationId Outcome Span Write",
            "values.packed": "encode_value",
            "version": "__version__",
        },
    )
    __all__ += names  # noqa: PLE0605 - a list of names
