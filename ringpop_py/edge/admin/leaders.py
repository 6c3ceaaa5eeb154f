"""The endpoints under ``/admin/leaders``: for programs that hold names, and for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import ConfigError, KeyspaceForbidden
from ringpop_py.base.values.declared import Named, convert
from ringpop_py.net.security.identity import Role
from ringpop_py.net.security.permits import check_use
from ringpop_py.state.leaders.election import SwapRecord
from ringpop_py.state.leaders.leaders import Leaders
from ringpop_py.state.leaders.record import KEYSPACE, READ, SWAP, LeaderName, LeaderRecord

if TYPE_CHECKING:
    from ringpop_py.net.transport.channel import IncomingCall
    from ringpop_py.node.ringpop import Ringpop

LIST: Final = "/admin/leaders"
RESIGN: Final = "/admin/leaders/resign"
ROLES: Final = {LIST: Role.READER, READ: Role.CLIENT, SWAP: Role.CLIENT, RESIGN: Role.ADMIN}
"""The least role for each endpoint."""


class _OfLeader(Named, frozen=True):
    name: LeaderName


class _Swap(_OfLeader, frozen=True, kw_only=True):
    before: LeaderRecord | None = None
    after: LeaderRecord


class LeaderEndpoints:
    """What *ringpop* answers about leaders."""

    def __init__(self, ringpop: Ringpop) -> None:
        self._ringpop = ringpop
        self._leaders = Leaders(ringpop)
        self.by_path = {
            LIST: self._list,
            READ: self._read,
            SWAP: self._swap,
            RESIGN: self._resign,
        }

    async def _list(self, _incoming: IncomingCall, _value: object) -> object:
        rows = [row._asdict() for row in await self._leaders.all()]
        return {"source": self._ringpop.name, "leaders": rows}

    async def _read(self, incoming: IncomingCall, value: object) -> object:
        asked = convert(_OfLeader, value, "request")
        try:
            _check(incoming)
            record, is_gone = await self._leaders.read(asked.name, _left_s(incoming))
        except (ConfigError, KeyspaceForbidden) as error:
            # A program that waits for the name has to know that no later request is answered.
            return {"refused": str(error)}
        return {"record": record and record.as_value(), "is_gone": is_gone}

    async def _swap(self, incoming: IncomingCall, value: object) -> object:
        asked = convert(_Swap, value, "request")
        _check(incoming)
        swap = SwapRecord(asked.before, asked.after)
        return {"is_done": await self._leaders.swap(asked.name, swap, _left_s(incoming))}

    async def _resign(self, incoming: IncomingCall, value: object) -> object:
        name = convert(_OfLeader, value, "request").name
        record = await self._leaders.take_away(name, _left_s(incoming))
        return {"name": name, "holder": record.holder, "term": record.term}


def _check(incoming: IncomingCall) -> None:
    # A client that may use some keyspaces only may hold names if this one is among them. For the
    # rows themselves, the keyspace stays the cluster's own.
    identity = incoming.identity
    if identity is not None and not identity.has(KEYSPACE):
        check_use(KEYSPACE, identity, writes=True)


def _left_s(incoming: IncomingCall) -> float:
    return max(incoming.deadline - trio.current_time(), 0.001)
