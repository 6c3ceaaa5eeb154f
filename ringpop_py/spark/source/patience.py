"""Connect to a daemon, and retry calls: for tasks and the driver."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ringpop_py.base.errors import (
    ApplicationError,
    CallError,
    ConnectFailed,
    JobAborted,
    RingpopError,
    WireError,
)
from ringpop_py.client.jobs import JobClient
from ringpop_py.client.sync.client import Client
from ringpop_py.state.jobs.names import standing_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringpop_py.spark.options import Target

CONNECT_TIMEOUT_S: Final = 3.0

T = TypeVar("T")


class Patience:
    """Retries calls that failed for a reason that passes, on a schedule; a call may run twice.

    Attributes:
        retries_count: the number of attempts, besides the first of each call.
    """

    def __init__(self, target: Target) -> None:
        self._schedule_s = target.schedule_s
        self._max_retries = target.max_retries
        self.retries_count = 0

    def __call__(self, attempt: Callable[[], T]) -> T:
        """Return the result of *attempt*, or raise the error of its last run."""
        for number in range(self._max_retries):
            try:
                return attempt()
            except RingpopError as error:
                if not error.passes:
                    raise
                self.retries_count += 1
                time.sleep(self._schedule_s[min(number, len(self._schedule_s) - 1)])
        return attempt()


def reached(target: Target, patience: Patience | None = None) -> Client:
    """Return a client of the first peer that answers; close it, or use it as a context manager.

    Args:
        patience: retries if no peer answers.

    Raises:
        ConnectFailed: no peer answers; the message says why, for each peer.
    """
    if patience is not None:
        return patience(partial(reached, target))
    reasons = []
    for peer in target.peers:
        client = Client(peer, timeout_s=CONNECT_TIMEOUT_S, cluster_key=target.cluster_key)
        try:
            client.admin("/admin/node")
        except (CallError, WireError, ApplicationError) as error:
            reasons.append(f"{peer}: {error}")
            client.close()
            continue
        client.timeout_s = target.timeout_s
        return client
    message = "no daemon answers:\n  " + "\n  ".join(reasons)
    raise ConnectFailed(message)


@contextmanager
def job_client(
    target: Target,
    job: str,
    *,
    follow: bool = False,
    in_flight: int = 1,
    patience: Patience | None = None,
) -> Iterator[JobClient]:
    """Connect to the *job* at the *target*, by `reached`.

    Args:
        follow: use the first successor that is not aborted, if the job is.

    Raises:
        JobAborted: the job and all its successors are aborted.
    """
    with reached(target, patience) as client:
        # The rows of a stream, or of a job that the user named, must be written under some name
        # even if the cluster has aborted an earlier attempt at them. All tasks and the driver find
        # the same successor, so the rows count once.
        for name in standing_names(job) if follow else (job,):
            with JobClient(
                client,
                target.keyspace,
                name,
                direct=target.direct,
                timeout_s=target.timeout_s,
                in_flight_max=in_flight,
                peers=target.peers,
            ) as jobs:
                if not follow or (patience or Patience(target))(jobs.decision) is not False:
                    yield jobs
                    return
    raise JobAborted(f"job {job!r} was aborted, and so were its successors")
