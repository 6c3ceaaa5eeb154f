"""Endpoints between nodes: partitions, actors and tables of keyspaces."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import trio

from ringpop_py.base.errors import (
    BadOperation,
    BadRequest,
    BodyError,
    ConfigError,
    KeyspaceError,
    KeyspaceUnknown,
)
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.base.values.operations import WriteRun
from ringpop_py.base.values.requests import ApplyRequest, ReadRequest, ScanRequest, encode_results
from ringpop_py.member.drain import Work
from ringpop_py.net.security.identity import Role
from ringpop_py.net.security.permits import check_use
from ringpop_py.net.wire.calls import Answer
from ringpop_py.state.actors.mail import Mail, MailAnswered
from ringpop_py.state.copies.calls import COPIES_ASKED, COPY, CopiesAsked, CopyGroup
from ringpop_py.state.durable.driver import ReleaseRequest
from ringpop_py.state.durable.host import DurableHost
from ringpop_py.state.durable.snapshots import SNAPSHOT, SnapshotRequest
from ringpop_py.state.durable.store_watch import STORE_ANSWERS, StoreAnswersRequest
from ringpop_py.state.jobs.messages import OWNERS_ONLY
from ringpop_py.state.jobs.server import JobServer
from ringpop_py.state.memory.hand_over import HAND_OVER, HandOver
from ringpop_py.state.memory.host import MemoryHost
from ringpop_py.state.messages import WATCH
from ringpop_py.state.rows.pages import COLUMNS, ColumnsRequest
from ringpop_py.state.watch.messages import WatchRequest
from ringpop_py.state.watch.server import watched_here

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.base.metering import Operations, Tally
    from ringpop_py.base.values.operations import Write
    from ringpop_py.base.values.requests import KeyspaceRequest
    from ringpop_py.net.transport.channel import IncomingCall
    from ringpop_py.net.transport.serving import Handler
    from ringpop_py.state.jobs.jobs import Jobs
    from ringpop_py.state.keyspaces.shares import Share
    from ringpop_py.state.shares.gossip import GossipDriver
    from ringpop_py.state.shares.host import Host
    from ringpop_py.state.shares.server import ServedPartition

HostT = TypeVar("HostT", DurableHost, MemoryHost)

MISSED_S: Final = 1.0
"""After a keyspace was not found, the store is not asked for it again for so many seconds."""
MISSED_MAX: Final = 1_000
"""The most keyspaces that are remembered as not found; at the limit all of them are forgotten."""


class ShareFinder(Protocol):
    """Finds the shares of this node. See `ringpop_py.state.keyspaces.registry.Keyspaces`."""

    def here(self, name: str) -> Share:
        """Return the share of the keyspace *name*. Raises KeyspaceUnknown."""

    async def find(self, name: str) -> Share:
        """As `here`, but the store and other members are asked if it is not known."""

    def check_not_elsewhere(self, name: str) -> None:
        """Raise PartitionUnavailable if only other members can serve the keyspace."""


def _answer_of(incoming: IncomingCall, tally: Tally, result: object) -> Answer:
    """Count, and return the answer with, the *result* of the only part."""
    if isinstance(result, list):  # it was served: see `PartitionServer`
        if len(result) == 1 and not isinstance(result[0], KeyspaceError):  # mostly
            tally.done += 1
        else:
            tally.add(result)
        if incoming.timed_from is not None:
            tally.seconds.observe(trio.current_time() - incoming.timed_from)
    return Answer(ok=True, arg3=encode_results((result,)))


def _answer(incoming: IncomingCall, tally: Tally, result: object) -> None:
    """Answer *incoming* later, with the *result* of the only part."""
    if isinstance(result, Exception) and not isinstance(result, KeyspaceError):
        incoming.fail(result)
        return
    try:
        incoming.answer(_answer_of(incoming, tally, result))
    except Exception as error:  # noqa: BLE001 - as in a task: it ends this call only
        incoming.fail(error)


MEMBERS_ONLY: Final = OWNERS_ONLY | {
    SNAPSHOT,
    messages.RELEASE,
    HAND_OVER,
    COPY,
    COPIES_ASKED,
    messages.GOSSIP,
    STORE_ANSWERS,
}
"""What no client calls: who could, could take partitions away."""


class KeyspaceServer:
    """Serves the requests of other nodes for the keyspaces here."""

    def __init__(self, finder: ShareFinder, gossip: GossipDriver, operations: Operations) -> None:
        self._finder = finder
        self._operations = operations
        self._gossip = gossip
        self._missed_until: dict[str, float] = {}

    def endpoints(self) -> dict[Work | None, dict[str, Handler]]:
        """Return the handlers by endpoint, grouped by the work that a node waits for at its end."""
        return {
            Work.KEYSPACE_REQUESTS: {
                messages.APPLY: self._apply,
                messages.READ: self._read,
                messages.SCAN: self._scan,
                COLUMNS: self._columns,
                SNAPSHOT: self._snapshot,
            },
            Work.ACTOR_MESSAGES: {messages.ACTOR: self._ask_actor},
            Work.JOB_REQUESTS: JobServer(self._jobs_of).endpoints(),
            # No work that an end waits for: a node that ends hands over by these very calls.
            None: {
                messages.RELEASE: self._release,
                STORE_ANSWERS: self._say_if_store_answers,
                WATCH: self._watch,
                HAND_OVER: self._take,
                COPY: self._take_copies,
                COPIES_ASKED: self._send_copies,
                messages.GOSSIP: self._answer_gossip,
            },
        }

    def _apply(self, incoming: IncomingCall) -> Answer | Awaitable[Answer] | None:
        request = ApplyRequest.decode(incoming.arg3)
        parts: Sequence[tuple[int, Sequence[Write]]] = request.parts
        if len(parts) != 1 or len(parts[0][1]) > 1:  # mostly there is one write
            parts = [(number, WriteRun.gathered(writes)) for number, writes in parts]
        partition = self._served(request, incoming)
        if partition is None:
            return self._at_host(request, incoming, lambda host: host.apply(parts))
        tally = self._operations.write
        result = partition.begin_write(parts[0][1], partial(_answer, incoming, tally))
        return None if result is None else _answer_of(incoming, tally, result)

    def _read(self, incoming: IncomingCall) -> Answer | Awaitable[Answer] | None:
        request = decode(ReadRequest, incoming.arg3)
        parts, stale, stored = request.parts, request.stale, request.stored
        partition = self._served(request, incoming)
        if partition is None:
            return self._at_host(
                request, incoming, lambda host: host.read(parts, stale=stale, stored=stored)
            )
        keys, tally = parts[0][1], self._operations.read
        result = partition.begin_read(
            lambda state: state.packed(keys, stored=stored),
            partial(_answer, incoming, tally),
            stale=stale,
        )
        return None if result is None else _answer_of(incoming, tally, result)

    def _served(
        self, request: ApplyRequest | ReadRequest, incoming: IncomingCall
    ) -> ServedPartition | None:
        """Return the partition of a request for one that is served here: it needs no task."""
        if len(request.parts) != 1 or incoming.event.tracing:  # a span lasts as long as its task
            return None
        try:
            identity, share = incoming.calls.identity, self._finder.here(request.keyspace)
            if identity is not None:  # without keys, a request takes no steps for this
                check_use(request.keyspace, identity, writes=isinstance(request, ApplyRequest))
                if identity.role is not Role.MEMBER:  # members place keys as this node does
                    request.check(share.host.generation, share.keyspace.placing)
        except (KeyspaceError, BodyError):  # it becomes the answer where it is found again
            return None
        host = share.host
        number = request.parts[0][0]
        # What is wrong with these is said where the request is checked (`_share`).
        if host.generation != request.generation or number >= host.definition.partitions:
            return None
        return host.served(number)

    async def _scan(self, incoming: IncomingCall) -> Answer:
        request = decode(ScanRequest, incoming.arg3)
        return await self._at_host(request, incoming, lambda host: host.scan(request))

    async def _watch(self, incoming: IncomingCall) -> Answer:
        request = decode(WatchRequest, incoming.arg3)
        return await self._at_host(request, incoming, lambda host: watched_here(host, request))

    async def _columns(self, incoming: IncomingCall) -> Answer:
        request = decode(ColumnsRequest, incoming.arg3)
        return await self._at_host(request, incoming, lambda host: host.columns(request))

    async def _ask_actor(self, incoming: IncomingCall) -> Answer:
        mail = decode(Mail, incoming.arg3)
        result: object
        try:
            share = await self._share(mail, incoming)
            result = await share.keyspace.stage.take(mail)
        except KeyspaceError as error:
            result = error
        row = result.as_row() if isinstance(result, MailAnswered) else result
        return Answer(ok=True, arg3=encode_results([row]))

    async def _snapshot(self, incoming: IncomingCall) -> Answer:
        request = decode(SnapshotRequest, incoming.arg3)

        async def take(host: Host) -> list[Any]:
            if not isinstance(host, DurableHost):
                raise BadRequest(f"keyspace {request.keyspace!r} is not durable")
            return await host.snapshots.take(request.number, request.partitions)

        return await self._at_host(request, incoming, take)

    async def _at_host(
        self,
        request: KeyspaceRequest,
        incoming: IncomingCall,
        serve: Callable[[Host], Awaitable[list[Any]]],
    ) -> Answer:
        results: list[Any]
        try:
            host = (await self._share(request, incoming)).host
        except KeyspaceError as error:
            # It concerns the keyspace as a whole; callers look for errors part by part.
            results = [error] * len(request.numbers)
        else:
            results = await serve(host)
        return Answer(ok=True, arg3=encode_results(results))

    async def _host_of(
        self, request: KeyspaceRequest, incoming: IncomingCall, kind: type[HostT]
    ) -> HostT:
        try:
            host = (await self._share(request, incoming)).host
        except KeyspaceError as error:
            raise BadRequest(str(error)) from None
        if not isinstance(host, kind):
            raise BadRequest(f"keyspace {request.keyspace!r} is in another mode")
        return host

    async def _share(self, request: KeyspaceRequest, incoming: IncomingCall) -> Share:
        name = request.keyspace
        check_use(name, incoming.identity, writes=isinstance(request, ApplyRequest))
        # Peers that ask for a keyspace which does not exist must not load the store each time.
        if name in self._missed_until and trio.current_time() < self._missed_until[name]:
            share = self._finder.here(name)
        else:
            try:
                share = await self._finder.find(name)
            except KeyspaceUnknown:
                if len(self._missed_until) >= MISSED_MAX:
                    self._missed_until.clear()  # each costs one more look into the store
                self._missed_until[name] = trio.current_time() + MISSED_S
                raise
        request.check(share.host.generation, share.keyspace.placing)
        return share

    async def _release(self, incoming: IncomingCall) -> Answer:
        request = decode(ReleaseRequest, incoming.arg3)
        host = await self._host_of(request, incoming, DurableHost)
        return Answer(ok=True, arg3=encode(await host.driver.release(request)))

    async def _say_if_store_answers(self, incoming: IncomingCall) -> Answer:
        request = decode(StoreAnswersRequest, incoming.arg3)
        host = await self._host_of(request, incoming, DurableHost)
        return Answer(ok=True, arg3=encode(await host.watch.access.answers()))

    async def _take(self, incoming: IncomingCall) -> Answer:
        request = decode(HandOver, incoming.arg3)
        host = await self._host_of(request, incoming, MemoryHost)
        return Answer(ok=True, arg3=encode(host.driver.take(request)))

    async def _take_copies(self, incoming: IncomingCall) -> Answer:
        request = decode(CopyGroup, incoming.arg3)
        host = await self._host_of(request, incoming, MemoryHost)
        return Answer(ok=True, arg3=encode(host.driver.take_copies(request)))

    async def _send_copies(self, incoming: IncomingCall) -> Answer:
        request = decode(CopiesAsked, incoming.arg3)
        host = await self._host_of(request, incoming, MemoryHost)
        return Answer(ok=True, arg3=encode(await host.driver.send_copies(request)))

    def _answer_gossip(self, incoming: IncomingCall) -> Answer:
        try:
            return Answer(ok=True, arg3=self._gossip.heard(incoming.arg3))
        except ConfigError as error:
            raise BadRequest(str(error)) from None

    # Jobs.

    async def _jobs_of(self, job: KeyspaceRequest, incoming: IncomingCall) -> Jobs:
        try:
            host = (await self._share(job, incoming)).host
        except KeyspaceUnknown:
            # Another member may serve it: this error passes, and the client turns there.
            self._finder.check_not_elsewhere(job.keyspace)
            raise
        if not isinstance(host, DurableHost):
            raise BadOperation(
                f"keyspace {job.keyspace!r} is in memory mode, so no job can be staged for it:"
                " write with route(), or create a durable keyspace, which needs a store"
            )
        return host.jobs
