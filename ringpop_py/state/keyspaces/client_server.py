"""Endpoints for clients that are not members: this node brings their requests to the owners."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ringpop_py.base.errors import KeyspaceError, PartitionUnavailable
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.declared import Text, decode
from ringpop_py.base.values.operations import WriteRun
from ringpop_py.base.values.requests import ApplyRequest, ReadRequest, ScanRequest, encode_results
from ringpop_py.net.security.permits import check_use
from ringpop_py.net.wire.calls import Answer
from ringpop_py.state.actors.mail import Mail
from ringpop_py.state.messages import (
    CLIENT_WATCH,
    DESCRIBE,
    OWNERS,
    ROUTED,
    TELL,
    Description,
    OwnersRequest,
    Routes,
    encode_answer,
)
from ringpop_py.state.requests import ReadsOf, ScansOf
from ringpop_py.state.rows.pages import COLUMNS, ColumnsOf, ColumnsRequest, fitting
from ringpop_py.state.watch.messages import WatchRequest
from ringpop_py.state.watch.server import WatchesOf, that_fit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.base.values.requests import KeyspaceRequest
    from ringpop_py.net.security.identity import Identity
    from ringpop_py.net.transport.channel import IncomingCall
    from ringpop_py.net.transport.serving import Handler
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.shares.view import NodeView

OTHERS_MAX: Final = 16
"""The most members named to a client besides the owners, so that it can turn to another one."""
ANSWER_S: Final = 0.2
"""The seconds of a client's time-out that are kept back, so that an error arrives in time."""


class Elsewhere(NamedTuple):
    """A keyspace that this node cannot serve, and *members* that can."""

    generation: int
    partitions_count: int
    members: Sequence[str]


class ClientServer:
    """Serves `ringpop_py.client.sync.keyspaces.KeyspaceClient`.

    Args:
        find: returns the keyspace of a name, for a caller. Raises KeyspaceError.
        elsewhere: called if *find* raised `PartitionUnavailable`; returns the keyspace if only
            other members can serve it, and None otherwise.
    """

    def __init__(
        self,
        node: NodeView,
        find: Callable[[str, Identity | None], Awaitable[Keyspace]],
        elsewhere: Callable[[str], Elsewhere | None],
    ) -> None:
        self._node = node
        self._find = find
        self._elsewhere = elsewhere

    def endpoints(self) -> dict[str, Handler]:
        """Return the handlers by endpoint."""
        return {
            DESCRIBE: self._describe,
            OWNERS: self._owners,
            ROUTED[messages.APPLY]: self._apply,
            ROUTED[messages.READ]: self._read,
            ROUTED[messages.SCAN]: self._scan,
            ROUTED[COLUMNS]: self._columns,
            ROUTED[messages.ACTOR]: self._ask_actor,
            TELL: self._tell_actor,
            CLIENT_WATCH: self._watch,
        }

    async def _describe(self, incoming: IncomingCall) -> Answer:
        try:
            found = await self._description(decode(Text, incoming.arg3), incoming.identity)
            result: object = found.row_for(incoming.arg2)
        except KeyspaceError as error:
            result = error
        return Answer(ok=True, arg3=encode_results([result]))

    async def _description(self, name: str, caller: Identity | None) -> Description:
        try:
            keyspace = await self._find(name, caller)
        except PartitionUnavailable:
            known = self._elsewhere(name)
            if known is None:
                raise
            # No destinations: from that, the client knows that it has to describe elsewhere.
            routes = Routes.of({}, self._addresses_of(known.members[:OTHERS_MAX]))
            return Description(known.generation, known.partitions_count, routes)
        others = keyspace.members[:OTHERS_MAX]
        routes = self._routes(keyspace, range(keyspace.partitions), others)
        placing = keyspace.placing
        return Description(keyspace.generation, placing.count, routes, placing.hash_tags)

    async def _owners(self, incoming: IncomingCall) -> Answer:
        asked = decode(OwnersRequest, incoming.arg3)
        result: object
        try:
            keyspace = await self._find(asked.keyspace, incoming.identity)
            time_left_s = _time_left_s(incoming)
            result = await keyspace.partition_owners(after=asked.after, timeout_s=time_left_s)
        except KeyspaceError as error:
            result = error
        return Answer(ok=True, arg3=encode_results([result]))

    async def _apply(self, incoming: IncomingCall) -> Answer:
        request = ApplyRequest.decode(incoming.arg3)
        parts = {number: WriteRun.gathered(writes) for number, writes in request.parts}

        def write(keyspace: Keyspace) -> Awaitable[Mapping[int, object]]:
            return keyspace.write(parts, timeout_s=_time_left_s(incoming))

        return await self._bring(request, incoming, write)

    async def _read(self, incoming: IncomingCall) -> Answer:
        request = decode(ReadRequest, incoming.arg3)
        parts, head = dict(request.parts), (request.keyspace, request.generation)
        stale, stored = request.stale, request.stored
        return await self._bring(
            request,
            incoming,
            lambda keyspace: keyspace.results_of(
                lambda host: ReadsOf(*head, parts, stale, host, stored),
                tuple(parts),
                timeout_s=_time_left_s(incoming),
            ),
        )

    async def _scan(self, incoming: IncomingCall) -> Answer:
        request = decode(ScanRequest, incoming.arg3)
        return await self._bring(
            request,
            incoming,
            lambda keyspace: keyspace.results_of(
                partial(ScansOf, request), request.partitions, timeout_s=_time_left_s(incoming)
            ),
        )

    async def _columns(self, incoming: IncomingCall) -> Answer:
        request = decode(ColumnsRequest, incoming.arg3)
        wanted = dict(request.parts)

        async def ask(keyspace: Keyspace) -> Mapping[int, object]:
            found: dict[int, Any] = await keyspace.results_of(
                partial(ColumnsOf, request), tuple(wanted), timeout_s=_time_left_s(incoming)
            )
            # Each owner kept to the limit of an answer; together they may exceed it.
            kept = fitting([found[number] for number in wanted], list(wanted.values()))
            return dict(zip(wanted, kept, strict=True))

        return await self._bring(request, incoming, ask)

    async def _ask_actor(self, incoming: IncomingCall) -> Answer:
        mail = decode(Mail, incoming.arg3)

        async def ask(keyspace: Keyspace) -> Mapping[int, object]:
            answered = await keyspace.stage.deliveries.bring(mail, _time_left_s(incoming))
            return {mail.partition: answered.as_row()}

        return await self._bring(mail, incoming, ask)

    async def _watch(self, incoming: IncomingCall) -> Answer:
        request = decode(WatchRequest, incoming.arg3)
        result: object
        try:
            keyspace = await self._find(request.keyspace, incoming.identity)
            request.check(keyspace.generation, keyspace.placing)
            found = await keyspace.results_of(
                lambda host: WatchesOf(request, host, for_client=True), ()
            )
            result = that_fit(found)
        except KeyspaceError as error:
            result = error
        return Answer(ok=True, arg3=encode_results([result]))

    async def _tell_actor(self, incoming: IncomingCall) -> Answer:
        mail = decode(Mail, incoming.arg3)
        result: object = None
        try:
            keyspace = await self._find(mail.keyspace, incoming.identity)
            mail.check(keyspace.generation, keyspace.placing)
            keyspace.stage.deliveries.take_room()
            keyspace.stage.deliveries.begin(mail, None)
        except KeyspaceError as error:
            result = error
        return Answer(ok=True, arg3=encode_results([result]))

    async def _bring(
        self,
        request: KeyspaceRequest,
        incoming: IncomingCall,
        ask: Callable[[Keyspace], Awaitable[Mapping[int, object]]],
    ) -> Answer:
        numbers = request.numbers
        results: list[Any]
        routes = Routes()
        try:
            writes = isinstance(request, ApplyRequest)
            check_use(request.keyspace, incoming.identity, writes=writes)
            keyspace = await self._find(request.keyspace, incoming.identity)
            request.check(keyspace.generation, keyspace.placing)
            found = await ask(keyspace)
            results = [found[number] for number in numbers]
            # After the request, which may have taught this node the present owners.
            routes = self._routes(keyspace, numbers)
        except KeyspaceError as error:
            # It concerns the keyspace as a whole; a client looks for errors part by part.
            results = [error] * len(numbers)
        return Answer(ok=True, arg3=encode_answer(results, routes))

    def _routes(
        self, keyspace: Keyspace, numbers: Iterable[int], others: Iterable[str] = ()
    ) -> Routes:
        table = keyspace.table
        destinations = {n: (keyspace.destination(n), table[n].epoch) for n in numbers}
        names = [name for name, _ in destinations.values()]
        return Routes.of(destinations, self._addresses_of([*names, *others]))

    def _addresses_of(self, names: Iterable[str]) -> dict[str, Address]:
        found = {name: self._node.address_of(name) for name in dict.fromkeys(names)}
        return {name: address for name, address in found.items() if address is not None}


def _time_left_s(incoming: IncomingCall) -> float:
    left_s = max(incoming.deadline - trio.current_time(), 0.001)
    return left_s - min(ANSWER_S, left_s / 4)  # of a short time-out most is for the work
