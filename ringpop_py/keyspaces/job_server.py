"""Endpoints of jobs: for clients, at any node, and for nodes, at the owners of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ringpop_py.errors import KeyspaceError
from ringpop_py.jobs import messages
from ringpop_py.jobs.jobs import SETTLE_S, decode_apply
from ringpop_py.jobs.messages import DecideRequest, FinishRequest, StageHead
from ringpop_py.values.requests import encode_results
from ringpop_py.wire.calls import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.jobs.jobs import Jobs
    from ringpop_py.jobs.messages import JobId
    from ringpop_py.shares.host import DurableHost
    from ringpop_py.transport.channel import IncomingCall


class JobServer:
    """Serves the jobs of all keyspaces at one node.

    Args:
        find: gives the share of the keyspace of a job, or raises a `KeyspaceError`.
    """

    def __init__(self, find: Callable[[JobId], Awaitable[DurableHost]]) -> None:
        self._find = find

    def endpoints(self) -> dict[str, Callable[[IncomingCall], Awaitable[Answer]]]:
        """What to serve."""
        return {
            messages.STAGE: self._stage,
            messages.FINISH: self._finish,
            messages.DECIDE: self._decide,
            messages.STATUS: self._status,
            messages.SETTLE: self._settle,
            messages.APPLY_JOB: self._apply,
        }

    async def _stage(self, incoming: IncomingCall) -> Answer:
        head = StageHead.decode(incoming.arg2)
        return await self._answer(head.id, lambda jobs: jobs.stage(head, incoming.arg3))

    async def _finish(self, incoming: IncomingCall) -> Answer:
        request = FinishRequest.decode(incoming.arg3)
        return await self._answer(request.id, lambda jobs: jobs.finish(request))

    async def _decide(self, incoming: IncomingCall) -> Answer:
        request = DecideRequest.decode(incoming.arg3)

        async def decide(jobs: Jobs) -> object:
            return (await jobs.decide(request)).as_row()

        return await self._answer(request.id, decide)

    async def _status(self, incoming: IncomingCall) -> Answer:
        job = messages.id_of(incoming.arg3)

        async def look(jobs: Jobs) -> object:
            decision = await jobs.decision(job.job)
            return None if decision is None else decision.as_row()

        return await self._answer(job, look)

    async def _settle(self, incoming: IncomingCall) -> Answer:
        job = messages.id_of(incoming.arg3)
        left_s = max(incoming.deadline - trio.current_time(), 0.0)

        async def settle(jobs: Jobs) -> object:
            return (await jobs.settle(job.job, min(SETTLE_S, left_s / 2))).as_row()

        return await self._answer(job, settle)

    async def _apply(self, incoming: IncomingCall) -> Answer:
        job, token, numbers = decode_apply(incoming.arg3)
        try:
            host = await self._find(job)
        except KeyspaceError as error:
            return Answer(ok=True, arg3=encode_results([error] * len(numbers)))
        results = await host.jobs.apply(job.job, token, numbers)
        return Answer(ok=True, arg3=encode_results(results))

    async def _answer(self, job: JobId, serve: Callable[[Jobs], Awaitable[object]]) -> Answer:
        """What *serve* comes to, as the one result."""
        result: object
        try:
            result = await serve((await self._find(job)).jobs)
        except KeyspaceError as error:
            result = error
        return Answer(ok=True, arg3=encode_results([result]))
