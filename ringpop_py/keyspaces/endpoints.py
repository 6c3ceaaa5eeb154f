"""Endpoints between nodes: partitions, actors and tables of keyspaces, and their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ringpop_py.actors.mail import ACTOR, Mail, MailAnswered
from ringpop_py.columns.pages import COLUMNS, ColumnsRequest
from ringpop_py.drain import Work
from ringpop_py.durable.driver import ReleaseRequest
from ringpop_py.durable.host import DurableHost
from ringpop_py.durable.snapshots import SNAPSHOT, SnapshotRequest
from ringpop_py.errors import BadOperation, BadRequest, ConfigError, KeyspaceError, KeyspaceUnknown
from ringpop_py.jobs import messages as job_messages
from ringpop_py.jobs.jobs import SETTLE_S
from ringpop_py.jobs.messages import (
    ApplyJobRequest,
    DecideRequest,
    FinishRequest,
    JobId,
    SchemasRequest,
    StageHead,
)
from ringpop_py.keyspaces.requests import PartsRequest, numbers_of
from ringpop_py.memory.hand_over import HAND_OVER, HandOver
from ringpop_py.memory.host import MemoryHost
from ringpop_py.values import requests as messages
from ringpop_py.values.declared import decode, encode
from ringpop_py.values.operations import WriteRun
from ringpop_py.values.requests import ApplyRequest, ReadRequest, ScanRequest, encode_results
from ringpop_py.wire.calls import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.jobs.jobs import Jobs
    from ringpop_py.keyspaces.gossip import GossipDriver
    from ringpop_py.keyspaces.shares import Share
    from ringpop_py.shares.host import Host
    from ringpop_py.transport.channel import IncomingCall
    from ringpop_py.transport.serving import Handler
    from ringpop_py.values.operations import Write
    from ringpop_py.values.requests import KeyspaceRequest

MISSED_S: Final = 1.0
"""After a keyspace was not found, the store is not asked for it again for so many seconds."""
MISSED_MAX: Final = 1_000
"""The most keyspaces that are remembered as not found; at the limit all of them are forgotten."""


class ShareFinder(Protocol):
    """Finds the shares of this node. See `ringpop_py.keyspaces.registry.Keyspaces`."""

    def here(self, name: str) -> Share:
        """Return the share of the keyspace *name*. Raises KeyspaceUnknown."""

    async def find(self, name: str) -> Share:
        """As `here`, but the store and other members are asked if it is not known."""

    def check_not_elsewhere(self, name: str) -> None:
        """Raise PartitionUnavailable if only other members can serve the keyspace."""


MEMBERS_ONLY: Final = frozenset(
    {SNAPSHOT, job_messages.APPLY_JOB, messages.RELEASE, HAND_OVER, messages.GOSSIP}
)
"""What no client calls: who could, could take partitions away."""


class KeyspaceServer:
    """Serves the requests of other nodes for the keyspaces here."""

    def __init__(self, finder: ShareFinder, gossip: GossipDriver) -> None:
        self._finder = finder
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
            Work.ACTOR_MESSAGES: {ACTOR: self._ask_actor},
            Work.JOB_REQUESTS: {
                job_messages.STAGE: self._stage,
                job_messages.FINISH: self._finish,
                job_messages.DECIDE: self._decide,
                job_messages.STATUS: self._status,
                job_messages.SCHEMAS: self._schemas,
                job_messages.SETTLE: self._settle,
                job_messages.APPLY_JOB: self._apply_job,
            },
            # No work that an end waits for: a node that ends hands over by these very calls.
            None: {
                messages.RELEASE: self._release,
                HAND_OVER: self._take,
                messages.GOSSIP: self._answer_gossip,
            },
        }

    def _apply(self, incoming: IncomingCall) -> Awaitable[Answer]:
        request = ApplyRequest.decode(incoming.arg3)
        parts: Sequence[tuple[int, Sequence[Write]]] = request.parts
        if len(parts) != 1 or len(parts[0][1]) > 1:  # mostly there is one write
            parts = [(number, WriteRun.gathered(writes)) for number, writes in parts]
        return self._at_host(request, lambda host: host.apply(parts))

    async def _read(self, incoming: IncomingCall) -> Answer:
        request = decode(ReadRequest, incoming.arg3)
        parts, stale = request.parts, request.stale
        return await self._at_host(request, lambda host: host.read(parts, stale=stale))

    async def _scan(self, incoming: IncomingCall) -> Answer:
        request = decode(ScanRequest, incoming.arg3)
        return await self._at_host(request, lambda host: host.scan(request))

    async def _columns(self, incoming: IncomingCall) -> Answer:
        request = decode(ColumnsRequest, incoming.arg3)
        return await self._at_host(request, lambda host: host.columns(request))

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

        return await self._at_host(request, take)

    async def _at_host(
        self, request: PartsRequest, serve: Callable[[Host], Awaitable[list[Any]]]
    ) -> Answer:
        results: list[Any]
        try:
            host = (await self._share(request.keyspace, request.generation)).host
        except KeyspaceError as error:
            # It concerns the keyspace as a whole; callers look for errors part by part.
            results = [error] * len(numbers_of(request))
        else:
            results = await serve(host)
        return Answer(ok=True, arg3=encode_results(results))

    async def _share_or_refusal(self, request: KeyspaceRequest) -> Share:
        try:
            return await self._share(request.keyspace, request.generation)
        except KeyspaceError as error:
            raise BadRequest(str(error)) from None

    async def _share(self, name: str, generation: int) -> Share:
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
        if share.host.generation != generation:
            raise KeyspaceUnknown(
                f"keyspace {name!r} is in generation {share.host.generation}, not {generation}"
            )
        return share

    async def _release(self, incoming: IncomingCall) -> Answer:
        request = decode(ReleaseRequest, incoming.arg3)
        host = (await self._share_or_refusal(request)).host
        if not isinstance(host, DurableHost):
            raise BadRequest(f"keyspace {request.keyspace!r} is not durable")
        said = await host.driver.release(request)
        return Answer(ok=True, arg3=encode(said))

    async def _take(self, incoming: IncomingCall) -> Answer:
        request = decode(HandOver, incoming.arg3)
        host = (await self._share_or_refusal(request)).host
        if not isinstance(host, MemoryHost):
            raise BadRequest(f"keyspace {request.keyspace!r} is not in memory mode")
        said = host.driver.take(request)
        return Answer(ok=True, arg3=encode(said))

    def _answer_gossip(self, incoming: IncomingCall) -> Answer:
        try:
            return Answer(ok=True, arg3=self._gossip.heard(incoming.arg3))
        except ConfigError as error:
            raise BadRequest(str(error)) from None

    # Jobs.

    async def _stage(self, incoming: IncomingCall) -> Answer:
        head = decode(StageHead, incoming.arg2)
        return await self._at_jobs(head, lambda jobs: jobs.stage(head, incoming.arg3))

    async def _finish(self, incoming: IncomingCall) -> Answer:
        request = decode(FinishRequest, incoming.arg3)
        return await self._at_jobs(request, lambda jobs: jobs.finish(request))

    async def _decide(self, incoming: IncomingCall) -> Answer:
        request = decode(DecideRequest, incoming.arg3)
        return await self._at_jobs(request, lambda jobs: jobs.decide(request))

    async def _status(self, incoming: IncomingCall) -> Answer:
        job = decode(JobId, incoming.arg3)
        return await self._at_jobs(job, lambda jobs: jobs.decision(job.job))

    async def _schemas(self, incoming: IncomingCall) -> Answer:
        request = decode(SchemasRequest, incoming.arg3)
        return await self._at_jobs(request, lambda jobs: jobs.schemas(request.schema))

    async def _settle(self, incoming: IncomingCall) -> Answer:
        job = decode(JobId, incoming.arg3)
        # Half of the time that is left, so that the answer arrives in the other half.
        timeout_s = min(SETTLE_S, max(incoming.deadline - trio.current_time(), 0.0) / 2)
        return await self._at_jobs(job, lambda jobs: jobs.settle(job.job, timeout_s))

    async def _apply_job(self, incoming: IncomingCall) -> Answer:
        request = decode(ApplyJobRequest, incoming.arg3)
        try:
            host = await self._job_host(request)
        except KeyspaceError as error:
            # One for each part, which is where the errand of the job looks for errors.
            return Answer(ok=True, arg3=encode_results([error] * len(request.partitions)))
        results = await host.jobs.apply(request.job, request.token, request.partitions)
        return Answer(ok=True, arg3=encode_results(results))

    async def _at_jobs(
        self, job: KeyspaceRequest, serve: Callable[[Jobs], Awaitable[object]]
    ) -> Answer:
        result: object
        try:
            result = await serve((await self._job_host(job)).jobs)
        except KeyspaceError as error:
            result = error
        return Answer(ok=True, arg3=encode_results([result]))

    async def _job_host(self, job: KeyspaceRequest) -> DurableHost:
        try:
            host = (await self._share(job.keyspace, job.generation)).host
        except KeyspaceUnknown:
            # Another member may serve it: the error of this check passes, and the client turns
            # there.
            self._finder.check_not_elsewhere(job.keyspace)
            raise
        if not isinstance(host, DurableHost):
            raise BadOperation(
                f"keyspace {job.keyspace!r} is in memory mode, so no job can be staged for it:"
                " write with route(), or create a durable keyspace, which needs a store"
            )
        return host
