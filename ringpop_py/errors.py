"""Every exception that a caller can catch, in one tree.

Rules for this file: a name says what happened; the docstring says whose fault it is and what
was left behind; attributes carry what a program needs, the message what a person needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class RingpopError(Exception):
    """The root: whatever this package raises on purpose."""


class ConfigError(RingpopError, ValueError):
    """The operator gave a value that cannot be used. Nothing was started."""


class HostsFileError(ConfigError):
    """The bootstrap file is missing or malformed. The list read before it stays in force."""


class JoinRefused(RingpopError):
    """The cluster will not have this node as it is configured; asking again is useless."""


class NameLost(RingpopError):
    """The name of this node belongs to another process that runs. This node has stopped.

    The fault is in how the two were started: give one of them another name. It is also how a
    process ends that was stopped or cut off for so long that another one was started in its place.
    """


class BadKey(RingpopError, ValueError):
    """A row of the input has no key where each must have one, or bytes that are no text for one.

    That row was not sent; others may have been.
    """


class NoOwner(RingpopError, LookupError):
    """No member is in the ring, so no key has an owner. Nothing was sent."""


class WireError(RingpopError):
    """A peer sent bytes that break the protocol. Nothing changed locally."""


class BodyError(WireError):
    """A frame was sound but its body was not of the expected shape. The call was refused."""


class ApplicationError(RingpopError):
    """The owner's handler ran and answered with an error of its own. It is never retried."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        self.message = message


class CallError(RingpopError):
    """A call brought no answer.

    Attributes:
        may_have_run: False only where it is certain that the handler never saw the request.
    """

    may_have_run = True


class ConnectFailed(CallError):
    """No connection could be made (refused, unreachable, or too slow); the request never left."""

    may_have_run = False


class ConnectRefused(ConnectFailed):
    """The peer's machine answered that nobody listens there. Silence is no such answer."""


class ConnectTooSlow(ConnectFailed):
    """No connection came about in the time that there was for it."""


class ConnectBroke(ConnectFailed):
    """The connection was up, and broke before the request left."""


class ConnectionLost(CallError):
    """The connection ended while the call was in flight."""


class PeerSilent(ConnectionLost):
    """We ended the connection, while the call was in flight, because the peer was silent."""


class CallTimeout(CallError):
    """The time given to the call ran out before an answer came."""


class CallCancelled(CallError):
    """The call was cancelled, by us or by the peer."""


class PeerBusy(CallError):
    """The peer has too much to do. It did not start on the request; try again or elsewhere."""

    may_have_run = False


class PeerDeclined(CallError):
    """The peer will not serve this request, by its own rules. It did not start on it."""

    may_have_run = False


class PeerFailed(CallError):
    """The peer failed in an unexpected way while it had the request in hand."""


class BadRequest(CallError):
    """The peer could not make sense of the request, or has no such endpoint. Never retried."""

    may_have_run = False


class TooManyInFlight(CallError):
    """A limit on calls in flight was reached here, before anything was sent (back-pressure)."""

    may_have_run = False


class ProxyError(RingpopError):
    """A request could not be brought to its owner.

    Attributes:
        history: one line an attempt: when, to whom, and how it failed; oldest first.
    """

    def __init__(self, message: str, history: Sequence[str] = ()) -> None:
        super().__init__("\n  ".join([message, *history]) if history else message)
        self.history = tuple(history)


class MaxRetriesExceeded(ProxyError):
    """Every attempt that the retry schedule allowed has failed."""


class KeysDiverged(ProxyError):
    """The keys of one request now belong to several owners. Split the request and try again."""


class Refused(ProxyError):
    """The owner refused the request, and no retries were allowed. It did not run."""


class MayHaveRun(ProxyError):
    """An attempt failed in a way that leaves open whether it ran, so it was not repeated.

    Pass ``idempotent=True`` to have such attempts repeated by the schedule.
    """


class DeadlineExceeded(ProxyError):
    """The deadline for the request as a whole passed. The last attempt may still run."""


class KeyspaceError(RingpopError):
    """A keyspace does not do what was asked; nothing was half done.

    Attributes:
        http_status: what it is over HTTP.
    """

    http_status = 500


class KeyspaceUnknown(KeyspaceError):
    """No keyspace of that name was created in this cluster, or it was dropped."""

    http_status = 404


class KeyspaceConflict(KeyspaceError):
    """A keyspace of that name exists and is defined otherwise. It was left as it is."""

    http_status = 409


class BadOperation(KeyspaceError):
    """The operation makes no sense for that key's value, or is not known. Nothing was changed."""

    http_status = 400


class ConditionFailed(KeyspaceError):
    """The value is not what the caller made its write depend on. Nothing was changed.

    Raised by conditions on a tag (``if_tag``, ``If-Match``), by conditions that there is no
    value, and by operations that compare.
    """

    http_status = 412


class PartitionFull(KeyspaceError):
    """The partition has its maximum of keys. Existing keys can change; a delete makes room."""

    http_status = 507


class OperationTooOld(KeyspaceError):
    """So many later writes of this source are known that nobody can tell whether this one is."""

    http_status = 410


class OperationIdReused(KeyspaceError):
    """A write with this operation id took effect before, and did something else.

    Nothing was changed. This is an error of the caller: each write to a partition needs an id of
    its own, and a repetition of a write is the same in every key, operation and argument.
    """

    http_status = 409


class NotEnoughMembers(KeyspaceError):
    """The cluster is smaller than the keyspace's minimum, so no partition was assigned yet."""

    http_status = 503


class PartitionUnavailable(KeyspaceError):
    """Nobody serves the partition at the moment. The request was not started on; try again."""

    http_status = 503


class ActorBusy(KeyspaceError):
    """Too many messages wait for the actor, or too many actors are at work. It got nothing."""

    http_status = 503


class StoreUnavailable(KeyspaceError):
    """The store did not answer, or said that it cannot. Whether a write took place is open."""

    http_status = 503


class StoreFull(StoreUnavailable):
    """The store has no room left. The write did not take place."""

    http_status = 507


class OutcomeUnknown(KeyspaceError):
    """The write may have taken effect or not. Repeated with the same operation id, it is safe."""

    http_status = 504


class StateDamaged(KeyspaceError):
    """Something in the store cannot be read: it was damaged, or a newer version wrote it.

    The message names its key. Nothing of it was taken: no partition is served from it, and a
    request for such a partition was not begun. From a read of one key: its value, which a job has
    put, cannot be unpacked; everything else of the keyspace can be read.
    """


class SchemaMismatch(KeyspaceError):
    """A stored value does not fit the column that it was to be read into. Nothing was changed."""


class JobAborted(KeyspaceError):
    """The job was aborted before this: nothing of it was applied, and nothing will be.

    It can also have been given up because nothing was staged for a day. Use another name to try
    again.
    """

    http_status = 409


class RowsRefused(KeyspaceError):
    """The job was applied but for some rows, which the keyspace refused one by one.

    All others took effect. The store keeps some of the refused keys, with the reasons.
    """

    http_status = 409


class PipelineFailed(RingpopError):
    """Spark gave a pipeline's job up; the text says why. What was committed before stays so."""


class RebalanceUnderWay(KeyspaceError):
    """Partitions are moving already. Nothing was begun."""

    http_status = 409
