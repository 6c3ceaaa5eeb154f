"""Endpoints between nodes: partitions, actors and tables of keyspaces, and their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ringpop_py.actors.mail import ACTOR, Mail, MailAnswered
from ringpop_py.columns.pages import COLUMNS, ColumnsRequest
from ringpop_py.drain import Work
from ringpop_py.errors import (
    BadOperation,
    BadRequest,
    ConfigError,
    KeyspaceError,
    KeyspaceUnknown,
)
from ringpop_py.jobs import messages as job_messages
from ringpop_py.jobs.jobs import SETTLE_S
from ringpop_py.jobs.messages import (
    ApplyJobRequest,
    DecideRequest,
    FinishRequest,
    JobId,
    StageHead,
)
from ringpop_py.shares.durable_host import DurableHost
from ringpop_py.shares.memory_host import MemoryHost
from ringpop_py.shares.snapshots import SNAPSHOT, SnapshotRequest
from ringpop_py.steward.hand_over import HAND_OVER, HandOver
from ringpop_py.steward.ownership import ReleaseRequest
from ringpop_py.values import requests as messages
from ringpop_py.values.declared import decode, encode
from ringpop_py.values.requests import ApplyRequest, ReadRequest, ScanRequest, encode_results
from ringpop_py.wire.calls import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.jobs.jobs import Jobs
    from ringpop_py.keyspaces.shares import Share
    from ringpop_py.shares.host import Host
    from ringpop_py.steward.table_gossip import TableGossip
    from ringpop_py.transport.channel import IncomingCall
    from ringpop_py.transport.serving import Handler

MISSED_S: Final = 1.0
MISSED_MAX: Final = 1_000
"""Peers that ask for keyspaces which do not exist do not have the store asked each time."""


class ShareFinder(Protocol):
    """Who has the shares of this node."""

    def here(self, name: str) -> Share:
        """The share of the keyspace *name*, as far as it is known. Raises KeyspaceUnknown."""

    async def find(self, name: str) -> Share:
        """As `here`, but the store and others are asked if it is not known."""

    def check_not_elsewhere(self, name: str) -> None:
        """Raise PartitionUnavailable if other members have the keyspace, and this node cannot."""


class KeyspaceServer:
    """Serves what other nodes ask of the keyspaces here."""

    def __init__(self, finder: ShareFinder, gossip: TableGossip) -> None:
        self._finder = finder
        self._gossip = gossip
        self._missed_until: dict[str, float] = {}

    def endpoints(self) -> dict[Work | None, dict[str, Handler]]:
        """What is served, by what a node that ends takes it for."""
        return {
            Work.KEYSPACE_REQUESTS: {
                messages.APPLY: self._apply,
                messages.READ: self._read,
                messages.SCAN: self._scan,
                COLUMNS: self._columns,
                SNAPSHOT: self._snapshot,
            },
            Work.ACTOR_MESSAGES: {ACTOR: self._ask_actor},
            Work.JOB_REQUESTS: JobServer(self._job_host).endpoints(),
            None: {
                messages.RELEASE: self._release,
                HAND_OVER: self._take,
                messages.GOSSIP: self._answer_gossip,
            },
        }

    async def _apply(self, incoming: IncomingCall) -> Answer:
        request = ApplyRequest.decode(incoming.arg3)
        count = len(request.parts)
        results = await self._at_host(request, count, lambda host: host.apply(request.parts))
        rows = [messages.outcome_rows(r) if isinstance(r, list) else r for r in results]
        return Answer(ok=True, arg3=encode_results(rows))

    async def _read(self, incoming: IncomingCall) -> Answer:
        request = decode(ReadRequest, incoming.arg3)
        results = await self._at_host(
            request, len(request.parts), lambda host: host.read(request.parts, stale=request.stale)
        )
        return Answer(ok=True, arg3=encode_results(results))

    async def _scan(self, incoming: IncomingCall) -> Answer:
        request = decode(ScanRequest, incoming.arg3)
        count = len(request.partitions)
        results = await self._at_host(request, count, lambda host: host.scan(request))
        return Answer(ok=True, arg3=encode_results(results))

    async def _columns(self, incoming: IncomingCall) -> Answer:
        request = decode(ColumnsRequest, incoming.arg3)
        count = len(request.parts)
        results = await self._at_host(request, count, lambda host: host.columns(request))
        return Answer(ok=True, arg3=encode_results(results))

    async def _ask_actor(self, incoming: IncomingCall) -> Answer:
        mail = decode(Mail, incoming.arg3)
        result: object
        try:
            share = await self._share(mail.keyspace, mail.generation)
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

        results = await self._at_host(request, len(request.partitions), take)
        return Answer(ok=True, arg3=encode_results(results))

    async def _job_host(self, job: JobId) -> DurableHost:
        """The share that *job* writes into. Raises KeyspaceError."""
        try:
            host = (await self._share(job.keyspace, job.generation)).host
        except KeyspaceUnknown:
            self._finder.check_not_elsewhere(job.keyspace)
            raise
        if not isinstance(host, DurableHost):
            raise BadOperation(
                f"keyspace {job.keyspace!r} is in memory mode, in which nothing can be staged:"
                " write with route(), or create a durable one (which takes a store)"
            )
        return host

    async def _at_host(
        self,
        request: ApplyRequest | ReadRequest | ScanRequest | ColumnsRequest | SnapshotRequest,
        count: int,
        serve: Callable[[Host], Awaitable[list[Any]]],
    ) -> list[Any]:
        """The results of *count* parts; that the keyspace is not here is the result of each."""
        try:
            host = (await self._share(request.keyspace, request.generation)).host
        except KeyspaceError as error:
            return [error] * count
        return await serve(host)

    async def _share(self, name: str, generation: int) -> Share:
        """The share of that generation; looked for in the store, if it is not known yet."""
        if name in self._missed_until and trio.current_time() < self._missed_until[name]:
            share = self._finder.here(name)
        else:
            try:
                share = await self._finder.find(name)
            except KeyspaceUnknown:
                if len(self._missed_until) >= MISSED_MAX:
                    self._missed_until.clear()
                self._missed_until[name] = trio.current_time() + MISSED_S
                raise
        if share.host.generation != generation:
            raise KeyspaceUnknown(
                f"keyspace {name!r} is in generation {share.host.generation}, not {generation}"
            )
        return share

    async def _release(self, incoming: IncomingCall) -> Answer:
        request = decode(ReleaseRequest, incoming.arg3)
        try:
            share = await self._share(request.keyspace, request.generation)
        except KeyspaceError as error:
            raise BadRequest(str(error)) from None
        if not isinstance(share.host, DurableHost):
            raise BadRequest(
                f"partitions of keyspace {request.keyspace!r} are not released, but handed over"
            )
        said = await share.host.ownership.release(request.number, request.epoch, request.to)
        return Answer(ok=True, arg3=encode(said))

    async def _take(self, incoming: IncomingCall) -> Answer:
        request = decode(HandOver, incoming.arg3)
        try:
            host = (await self._share(request.keyspace, request.generation)).host
        except KeyspaceError as error:
            raise BadRequest(str(error)) from None
        if not isinstance(host, MemoryHost):
            raise BadRequest(f"keyspace {request.keyspace!r} is not in memory mode")
        said = host.ownership.take(request)
        return Answer(ok=True, arg3=encode(said))

    def _answer_gossip(self, incoming: IncomingCall) -> Answer:
        try:
            return Answer(ok=True, arg3=self._gossip.answer(incoming.arg3))
        except ConfigError as error:
            raise BadRequest(str(error)) from None


class JobServer:
    """Serves the jobs of all keyspaces at one node.

    Args:
        find: gives the share of the keyspace of a job, or raises a `KeyspaceError`.
    """

    def __init__(self, find: Callable[[JobId], Awaitable[DurableHost]]) -> None:
        self._find = find

    def endpoints(self) -> dict[str, Handler]:
        """What to serve."""
        return {
            job_messages.STAGE: self._stage,
            job_messages.FINISH: self._finish,
            job_messages.DECIDE: self._decide,
            job_messages.STATUS: self._status,
            job_messages.SETTLE: self._settle,
            job_messages.APPLY_JOB: self._apply,
        }

    async def _stage(self, incoming: IncomingCall) -> Answer:
        head = decode(StageHead, incoming.arg2)
        return await self._answer(head, lambda jobs: jobs.stage(head, incoming.arg3))

    async def _finish(self, incoming: IncomingCall) -> Answer:
        request = decode(FinishRequest, incoming.arg3)
        return await self._answer(request, lambda jobs: jobs.finish(request))

    async def _decide(self, incoming: IncomingCall) -> Answer:
        request = decode(DecideRequest, incoming.arg3)
        return await self._answer(request, lambda jobs: jobs.decide(request))

    async def _status(self, incoming: IncomingCall) -> Answer:
        job = decode(JobId, incoming.arg3)
        return await self._answer(job, lambda jobs: jobs.decision(job.job))

    async def _settle(self, incoming: IncomingCall) -> Answer:
        job = decode(JobId, incoming.arg3)
        timeout_s = min(SETTLE_S, max(incoming.deadline - trio.current_time(), 0.0) / 2)
        return await self._answer(job, lambda jobs: jobs.settle(job.job, timeout_s))

    async def _apply(self, incoming: IncomingCall) -> Answer:
        request = decode(ApplyJobRequest, incoming.arg3)
        try:
            host = await self._find(request)
        except KeyspaceError as error:
            return Answer(ok=True, arg3=encode_results([error] * len(request.partitions)))
        results = await host.jobs.apply(request.job, request.token, request.partitions)
        return Answer(ok=True, arg3=encode_results(results))

    async def _answer(self, job: JobId, serve: Callable[[Jobs], Awaitable[object]]) -> Answer:
        """What *serve* comes to, as the one result."""
        result: object
        try:
            result = await serve((await self._find(job)).jobs)
        except KeyspaceError as error:
            result = error
        return Answer(ok=True, arg3=encode_results([result]))
