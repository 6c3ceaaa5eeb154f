"""The endpoints of jobs: what their clients, and other members, ask of the keyspaces here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.base.values.declared import decode
from ringpop_py.base.values.requests import encode_results
from ringpop_py.net.wire.calls import Answer
from ringpop_py.state.jobs import messages
from ringpop_py.state.jobs.jobs import SETTLE_S
from ringpop_py.state.jobs.messages import (
    ApplyJobRequest,
    DecideRequest,
    FinishRequest,
    JobId,
    SchemasRequest,
    StageHead,
    TryJobRequest,
)
from ringpop_py.state.jobs.trial import TRIAL_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.base.values.requests import KeyspaceRequest
    from ringpop_py.net.transport.serving import Handler, IncomingCall
    from ringpop_py.state.jobs.jobs import Jobs


class JobServer:
    """Serves the requests of jobs.

    Args:
        jobs_of: returns the jobs of the keyspace of a request, for its caller. Raises
            KeyspaceError.
    """

    def __init__(self, jobs_of: Callable[[KeyspaceRequest, IncomingCall], Awaitable[Jobs]]) -> None:
        self._jobs_of = jobs_of

    def endpoints(self) -> dict[str, Handler]:
        """Return the handlers by endpoint."""
        return {
            messages.STAGE: self._stage,
            messages.FINISH: self._finish,
            messages.DECIDE: self._decide,
            messages.STATUS: self._status,
            messages.SCHEMAS: self._schemas,
            messages.SETTLE: self._settle,
            messages.APPLY_JOB: self._apply,
            messages.TRY_JOB: self._try,
        }

    async def _stage(self, incoming: IncomingCall) -> Answer:
        head = decode(StageHead, incoming.arg2)
        return await self._answered(head, incoming, lambda jobs: jobs.stage(head, incoming.arg3))

    async def _finish(self, incoming: IncomingCall) -> Answer:
        request = decode(FinishRequest, incoming.arg3)
        return await self._answered(
            request, incoming, lambda jobs: jobs.worker.run(jobs.store.finish, request)
        )

    async def _decide(self, incoming: IncomingCall) -> Answer:
        request = decode(DecideRequest, incoming.arg3)
        timeout_s = min(TRIAL_S, _time_left_s(incoming) / 2)
        return await self._answered(request, incoming, lambda jobs: jobs.decide(request, timeout_s))

    async def _status(self, incoming: IncomingCall) -> Answer:
        job = decode(JobId, incoming.arg3)
        return await self._answered(job, incoming, lambda jobs: jobs.decision(job.job))

    async def _schemas(self, incoming: IncomingCall) -> Answer:
        request = decode(SchemasRequest, incoming.arg3)
        return await self._answered(request, incoming, lambda jobs: jobs.schemas(request.schema))

    async def _settle(self, incoming: IncomingCall) -> Answer:
        job = decode(JobId, incoming.arg3)
        # Half of the time that is left, so that the answer arrives in the other half.
        timeout_s = min(SETTLE_S, _time_left_s(incoming) / 2)
        return await self._answered(job, incoming, lambda jobs: jobs.settle(job.job, timeout_s))

    async def _apply(self, incoming: IncomingCall) -> Answer:
        request = decode(ApplyJobRequest, incoming.arg3)
        return await self._of_parts(
            request,
            incoming,
            lambda jobs: jobs.apply(request.job, request.token, request.partitions),
        )

    async def _try(self, incoming: IncomingCall) -> Answer:
        request = decode(TryJobRequest, incoming.arg3)
        return await self._of_parts(request, incoming, lambda jobs: jobs.trials.serve(request))

    async def _of_parts(
        self,
        job: KeyspaceRequest,
        incoming: IncomingCall,
        serve: Callable[[Jobs], Awaitable[list[Any]]],
    ) -> Answer:
        try:
            jobs = await self._jobs_of(job, incoming)
        except KeyspaceError as error:
            # One for each part, which is where the errand of the job looks for errors.
            return Answer(ok=True, arg3=encode_results([error] * len(job.numbers)))
        return Answer(ok=True, arg3=encode_results(await serve(jobs)))

    async def _answered(
        self,
        job: KeyspaceRequest,
        incoming: IncomingCall,
        serve: Callable[[Jobs], Awaitable[object]],
    ) -> Answer:
        result: object
        try:
            result = await serve(await self._jobs_of(job, incoming))
        except KeyspaceError as error:
            result = error
        return Answer(ok=True, arg3=encode_results([result]))


def _time_left_s(incoming: IncomingCall) -> float:
    return max(incoming.deadline - trio.current_time(), 0.0)
