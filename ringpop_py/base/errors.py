"""Every exception that a caller can catch, in one tree.

Rules for this file: a name says what happened; the docstring says whose fault it is and what
was left behind; attributes are for programs, the message is for people. Programs do not compare
classes to find out whether a request may be repeated: `took_effect` and `passes` say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

TookEffect = Literal["no", "unknown"]

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypedDict, Unpack

    class _Attributes(TypedDict, total=False):
        code: str
        took_effect: TookEffect
        passes: bool
        http_status: int
        settles: bool


class RingpopError(Exception):
    """The root: every error that this package raises on purpose. What a request did is open.

    A subclass names its attributes as arguments of its class; the others are those of its base.

    Attributes:
        code: a name for programs, which stays if the class is renamed.
        took_effect: "no" only if it is certain that the request changed nothing.
        passes: whether the cause can go away without action, so that the same request can succeed
            later. Repeating it is safe if *took_effect* is "no", or if it may run twice.
        http_status: the status of an HTTP answer with this error.
    """

    code = "error"
    took_effect: TookEffect = "unknown"
    passes = False
    http_status = 500

    def __init_subclass__(cls, **attributes: Unpack[_Attributes]) -> None:
        super().__init_subclass__()
        for name, value in attributes.items():
            setattr(cls, name, value)


class ConfigError(RingpopError, ValueError, code="bad-config", took_effect="no", http_status=400):
    """The operator gave a value that cannot be used. Nothing was started."""


class HostsFileError(ConfigError, code="bad-hosts-file", http_status=500):
    """The bootstrap file is missing or malformed. The list read before it stays in force."""


class JoinRefused(RingpopError, code="join-refused", took_effect="no"):
    """The cluster refuses this node as it is configured; asking again is useless."""


class NameLost(RingpopError, code="name-lost", http_status=503):
    """The name of this node belongs to another running process. This node has stopped.

    The fault is in how the two were started: give one of them another name. A process also ends
    with this error if it was stopped or cut off until another one was started in its place.
    Requests of other nodes just before may have taken effect.
    """


class BadKey(RingpopError, ValueError, code="bad-key", took_effect="no", http_status=400):
    """A row of the input has no key although each must have one, or a key that is not text.

    That row was not sent; others may have been.
    """


class NoOwner(
    RingpopError, LookupError, code="no-owner", took_effect="no", passes=True, http_status=503
):
    """No member is in the ring, so no key has an owner. Nothing was sent."""


class SourceFailed(RingpopError, code="source-failed", took_effect="no", passes=True):
    """A source of a stream cannot be read now; the read is repeated. The message says why."""


class SinkFailed(RingpopError, code="sink-failed", passes=True):
    """A sink of a dataflow failed; whether it took any of the results is open.

    They are delivered again.
    """


class WireError(RingpopError, code="bad-bytes", passes=True, http_status=502):
    """A peer sent bytes that break the protocol. Nothing changed locally.

    If they were an answer, what the peer did before is open.
    """


class BadElement(WireError, code="bad-element", took_effect="no"):
    """A worker of a dataflow sent an element that is not allowed there. None of it was processed.

    Its workers begin again from the last epoch, so nothing is lost and nothing counts twice.
    """


class BodyError(WireError, code="bad-body"):
    """A frame was sound, but its body did not have the expected shape.

    A request was refused; if it was an answer, what the peer did before is open.
    """


class ApplicationError(RingpopError, code="application-error"):
    """The owner's handler ran and answered with an error of its own. It is never retried.

    Whether the handler changed anything before is open.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        self.message = message


class HandlerFailed(ApplicationError, code="handler-failed"):
    """The owner's handler has a bug: it raised another exception, or did not return bytes.

    It is never retried, and whether the handler changed anything before is open. `kind` is the name
    of the exception. The message ends with the endpoint and the owner, whose log has the traceback.
    """


class CallError(RingpopError, code="call-error", passes=True, http_status=502):
    """A call brought no answer. Whether the handler saw the request is open."""


class ConnectFailed(CallError, code="connect-failed", took_effect="no", http_status=503):
    """No connection could be made (refused, unreachable, or too slow); nothing was sent."""


class ConnectRefused(ConnectFailed, code="connect-refused"):
    """The peer's machine answered that no process listens there. Silence is not such an answer."""


class ConnectTooSlow(ConnectFailed, code="connect-too-slow"):
    """No connection was made in time."""


class ConnectUntrusted(ConnectFailed, code="connect-untrusted"):
    """One end does not trust the certificate of the other."""


class ConnectBroke(ConnectFailed, code="connect-broke"):
    """The connection was up, and broke before the request left."""


class ConnectionLost(CallError, code="connection-lost"):
    """The connection ended while the call was in flight. The call may have run."""


class PeerSilent(ConnectionLost, code="peer-silent"):
    """We ended the connection, while the call was in flight, because the peer was silent.

    The call may have run.
    """


class CallTimeout(CallError, code="call-timeout", http_status=504):
    """The time given to the call ran out before an answer came. It may have run."""


class CallCancelled(CallError, code="call-cancelled"):
    """The call was cancelled, by us or by the peer. It may have run."""


class PeerBusy(CallError, code="peer-busy", took_effect="no", http_status=503):
    """The peer has too much to do. It did not start on the request; try again or elsewhere."""


class PeerDeclined(CallError, code="peer-declined", took_effect="no", http_status=503):
    """The peer will not serve this request, by its own rules. It did not start on it."""


class PeerFailed(CallError, code="peer-failed"):
    """The peer failed unexpectedly while it worked on the request, which may have run."""


class BadRequest(CallError, code="bad-request", took_effect="no", passes=False, http_status=400):
    """The peer could not make sense of the request, or has no such endpoint. Never retried."""


class TooManyInFlight(CallError, code="too-many-in-flight", took_effect="no", http_status=503):
    """A limit on calls in flight was reached here, before anything was sent (back-pressure)."""


class ProxyError(RingpopError, code="proxy-error", passes=True, http_status=503):
    """A request could not be forwarded to its owner. It may have run, if an attempt may have.

    Attributes:
        history: one line for each attempt: to which member, and how it failed; oldest first.
    """

    def __init__(
        self, message: str, history: Sequence[str] = (), took_effect: TookEffect | None = None
    ) -> None:
        super().__init__("\n  ".join([message, *history]) if history else message)
        self.history = tuple(history)
        if took_effect is not None:  # which depends on the attempts
            self.took_effect = took_effect


class MaxRetriesExceeded(ProxyError, code="max-retries-exceeded"):
    """Every attempt that the retry schedule allowed has failed.

    Only a request with ``idempotent=True`` may have run.
    """


class KeysDiverged(ProxyError, code="keys-diverged", passes=False, http_status=409):
    """The keys of one request now belong to several owners. Split the request and try again.

    Only a request with ``idempotent=True`` may have run, in an attempt before.
    """


class Refused(ProxyError, code="refused", took_effect="no", passes=False, http_status=400):
    """The owner refused the request, and no retries were allowed. It did not run."""


class MayHaveRun(ProxyError, code="may-have-run", http_status=504):
    """An attempt failed, it is open whether it ran, and so it was not repeated.

    Pass ``idempotent=True`` to have such attempts repeated on the schedule.
    """


class DeadlineExceeded(ProxyError, code="deadline-exceeded", http_status=504):
    """The deadline for the request as a whole passed. The last attempt may still run."""


class NotEnoughReplies(ProxyError, code="not-enough-replies"):
    """Fewer of a key's members have answered, or can, than the caller needs.

    Those that answered keep what they did, and others may still do it: nothing is undone.

    Attributes:
        answered: the members that have answered.
        errors: why others do not, by member. A member in neither of the two has not answered yet.
    """

    def __init__(
        self,
        message: str,
        history: Sequence[str] = (),
        took_effect: TookEffect | None = None,
        *,
        answered: Sequence[str] = (),
        errors: Mapping[str, RingpopError] | None = None,
    ) -> None:
        super().__init__(message, history, took_effect)
        self.answered = tuple(answered)
        self.errors = dict(errors or {})


class ShuffleError(RingpopError, code="shuffle-error"):
    """A shuffle did not do what was requested; whether anything was done is open."""


class ShuffleRefused(ShuffleError, code="shuffle-refused", took_effect="no", http_status=400):
    """The request is impossible: a type without an order, another schema, or a bad name."""


class ShuffleUnknown(ShuffleError, code="shuffle-unknown", took_effect="no", http_status=404):
    """No shuffle of that name was created in this cluster."""


class ShuffleConflict(ShuffleError, code="shuffle-conflict", took_effect="no", http_status=409):
    """The shuffle has another definition, was ended with other attempts, or has other rows."""


class ShuffleEnded(ShuffleError, code="shuffle-ended", took_effect="no", http_status=409):
    """The shuffle was ended, and takes no more rows. Its record names those that count."""


class ShuffleIncomplete(ShuffleError, code="shuffle-incomplete", took_effect="no", http_status=409):
    """An end names attempts of which frames are missing. The shuffle goes on taking rows.

    Attributes:
        attempts: their numbers: run these again, and end the shuffle with the new ones.
    """

    def __init__(self, message: str = "", *, attempts: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.attempts = tuple(attempts)


class ShuffleDeleted(ShuffleError, code="shuffle-deleted", took_effect="no", http_status=410):
    """The shuffle was deleted; perhaps a new shuffle with the same name was created since."""


class ShuffleDamaged(ShuffleError, code="shuffle-damaged", took_effect="no"):
    """Rows are lost: several members that held them went at the same time. Run the job again."""


class ShuffleFull(
    ShuffleError, code="shuffle-full", took_effect="no", passes=True, http_status=507
):
    """No member has room for more rows. What ended before can still be read."""


class ShuffleUnavailable(ShuffleError, code="shuffle-unavailable", passes=True, http_status=503):
    """No member did what was asked in time; whether it was done is open. Repeating it is safe."""


class KeyspaceError(RingpopError, code="keyspace-error"):
    """A keyspace did not do what was requested; nothing was half done.

    Errors that only a newer version knows have this class itself: whether anything was done is
    open.

    Attributes:
        settles: whether it is the owner's own answer, which ends a request. Other errors end an
            attempt; what earlier attempts did stays as open as it was, also if this one *passes*.
    """

    settles = False


class KeyspaceUnknown(KeyspaceError, code="keyspace-unknown", took_effect="no", http_status=404):
    """No keyspace of that name was created in this cluster, or it was dropped."""


class KeyspaceConflict(KeyspaceError, code="keyspace-conflict", took_effect="no", http_status=409):
    """A keyspace of that name exists with another definition. It was left as it is."""


class KeyspaceForbidden(
    KeyspaceError, code="keyspace-forbidden", took_effect="no", http_status=403
):
    """The keyspace is not for the caller's role: one of the cluster's own, for example."""


class TooManyKeyspaces(KeyspaceError, code="too-many-keyspaces", took_effect="no", http_status=507):
    """The cluster has as many keyspaces or partitions as it may have. Nothing was created."""


class BadOperation(
    KeyspaceError, code="bad-operation", took_effect="no", http_status=400, settles=True
):
    """The operation does not fit the key's value, or is not known. Nothing was changed."""


class OperationRefused(BadOperation, ApplicationError, code="operation-refused"):
    """An aggregation of the application refused the change. Nothing was changed.

    `kind` and `message` are those of the `ApplicationError` that its function raised.
    """

    def __init__(self, kind: str, message: str | None = None) -> None:
        if message is None:  # as it travels
            kind, _, message = kind.partition(": ")
        super().__init__(kind, message)


class ConditionFailed(
    KeyspaceError, code="condition-failed", took_effect="no", http_status=412, settles=True
):
    """A condition of a write does not hold. Nothing was changed.

    The condition is on a tag (``if_tag``, ``If-Match``), or that there is no value, or part of
    an operation that compares.
    """


class WatchGap(KeyspaceError, code="watch-gap", took_effect="no", http_status=410, settles=True):
    """A watcher asked for changes that its partition does not keep any more.

    It keeps the last 4,096 of them, or 1 MiB. Read what you need again, and watch from there.
    """


class StaleTerm(KeyspaceError, code="stale-term", took_effect="no", http_status=412, settles=True):
    """A write under a fence was refused: the partition knows a later term. Nothing was changed.

    Another holder of the name has begun. To lead again, pass `term` as ``above`` to `leader`. A
    write under a lock on a key is also refused if nobody holds the lock.
    """

    @classmethod
    def of(cls, name: str, term: int, known: int) -> StaleTerm:
        """Return the error of a write in *term* where *known* has written."""
        return cls(f"term {term} of {name!r} is over: the partition knows term {known}")

    @property
    def term(self) -> int:
        """The highest term that the partition knows; 0 if the text does not say."""
        last = str(self).rpartition(" ")[2]
        return int(last) if last.isdecimal() else 0


class PartitionFull(
    KeyspaceError, code="partition-full", took_effect="no", http_status=507, settles=True
):
    """The partition has its maximum of keys. Existing keys can change; a delete makes room."""


class OperationTooOld(KeyspaceError, code="operation-too-old", http_status=410, settles=True):
    """The source has so many later writes that it is no longer known whether this one was done.

    Nothing was done now; whether it took effect before is open.
    """


class OperationIdReused(
    KeyspaceError, code="operation-id-reused", took_effect="no", http_status=409, settles=True
):
    """An earlier write with this operation id took effect, and was another write.

    Nothing was changed. This is an error of the caller: each write to a partition needs an id of
    its own, and a repetition of a write has the same keys, operations and arguments.
    """


class SpanRefused(
    KeyspaceError, code="span-refused", took_effect="no", http_status=409, settles=True
):
    """A partition has not come as far in a source of input as a write with a span assumes.

    Nothing was changed: records between its mark and the beginning of the span would be lost. The
    sender asks for the mark, and sends everything behind it.
    """


class RecordRefused(
    KeyspaceError, code="record-refused", took_effect="no", http_status=409, settles=True
):
    """A change in a write with a span cannot be made of the value that is there.

    Nothing was changed, by any of its changes. The same record would be refused again; others of
    the write may be good.
    """


class NotEnoughMembers(KeyspaceError, code="not-enough-members", took_effect="no", http_status=503):
    """The cluster is smaller than the keyspace's minimum, so no partition was assigned yet."""


class PartitionUnavailable(
    KeyspaceError, code="partition-unavailable", took_effect="no", passes=True, http_status=503
):
    """No node serves the partition at the moment. The request was not started; try again."""


class ActorBusy(
    KeyspaceError, code="actor-busy", took_effect="no", passes=True, http_status=503, settles=True
):
    """Too many messages wait for the actor, or too many actors are busy. It got nothing."""


class StoreUnavailable(KeyspaceError, code="store-unavailable", passes=True, http_status=503):
    """The store did not answer, or failed. Whether a write took place is open."""


class StoreRefused(StoreUnavailable, code="store-refused", took_effect="no", passes=False):
    """The store accepts no writes from this node: it is read-only, or the node has no permission.

    The write did not take place, unlike with its base class. Another node may be able to write.
    """


class StoreFull(StoreRefused, code="store-full", http_status=507):
    """The store has no room left. The write did not take place."""


class OutcomeUnknown(KeyspaceError, code="outcome-unknown", passes=True, http_status=504):
    """The write may have taken effect, or not. Repeating it with its operation id is safe."""


class StateDamaged(KeyspaceError, code="state-damaged", took_effect="no"):
    """Something in the store cannot be read: it was damaged, or a newer version wrote it.

    The message names its key. Nothing of it is used: its partition is not served, and a request
    for the partition was not begun. If one key was read: its value, which a job has put, cannot be
    unpacked; everything else in the keyspace can be read.
    """


class SchemaMismatch(KeyspaceError, code="schema-mismatch", took_effect="no"):
    """A stored value does not fit the column that it was read into. Nothing was changed."""


class JobAborted(
    KeyspaceError, code="job-aborted", took_effect="no", http_status=409, settles=True
):
    """The job was aborted before: nothing of it was applied, and nothing will be.

    A job is also aborted if nothing is staged for a day. Use another name to try again.
    """


class RowsRefused(KeyspaceError, code="rows-refused", http_status=409):
    """The job was applied except for some rows, which the keyspace refused one by one.

    All others took effect. The store keeps some of the refused keys, with the reasons.
    """


class LeadershipLost(RingpopError, code="leadership-lost", passes=True, http_status=503):
    """A name that was held is another's by now, was taken away, or could not be kept in time.

    What the holder began is open. Another holder has a higher term.
    """


class LockHeld(KeyspaceError, code="lock-held", took_effect="no", passes=True, http_status=409):
    """The lock on a key was another's for all the time that the caller wanted to wait."""


class LockLost(RingpopError, code="lock-lost", passes=True, http_status=503):
    """A lock on a key lapsed before its block ended, or is another's by now.

    What the holder began is open. Writes with the lock took effect or were refused, never after
    those of the next holder.
    """


class PipelineFailed(RingpopError, code="pipeline-failed"):
    """Spark gave up a pipeline's job; the text says why. What was committed before stays so.

    Whether the last batch was committed is open.
    """


class RebalanceUnderWay(
    KeyspaceError, code="rebalance-under-way", took_effect="no", passes=True, http_status=409
):
    """Partitions are moving already. Nothing was begun."""


__all__ = [
    "ActorBusy",
    "ApplicationError",
    "BadElement",
    "BadKey",
    "BadOperation",
    "BadRequest",
    "BodyError",
    "CallCancelled",
    "CallError",
    "CallTimeout",
    "ConditionFailed",
    "ConfigError",
    "ConnectBroke",
    "ConnectFailed",
    "ConnectRefused",
    "ConnectTooSlow",
    "ConnectUntrusted",
    "ConnectionLost",
    "DeadlineExceeded",
    "HandlerFailed",
    "HostsFileError",
    "JobAborted",
    "JoinRefused",
    "KeysDiverged",
    "KeyspaceConflict",
    "KeyspaceError",
    "KeyspaceForbidden",
    "KeyspaceUnknown",
    "LeadershipLost",
    "LockHeld",
    "LockLost",
    "MaxRetriesExceeded",
    "MayHaveRun",
    "NameLost",
    "NoOwner",
    "NotEnoughMembers",
    "NotEnoughReplies",
    "OperationIdReused",
    "OperationRefused",
    "OperationTooOld",
    "OutcomeUnknown",
    "PartitionFull",
    "PartitionUnavailable",
    "PeerBusy",
    "PeerDeclined",
    "PeerFailed",
    "PeerSilent",
    "PipelineFailed",
    "ProxyError",
    "RebalanceUnderWay",
    "RecordRefused",
    "Refused",
    "RingpopError",
    "RowsRefused",
    "SchemaMismatch",
    "ShuffleConflict",
    "ShuffleDamaged",
    "ShuffleDeleted",
    "ShuffleEnded",
    "ShuffleError",
    "ShuffleFull",
    "ShuffleIncomplete",
    "ShuffleRefused",
    "ShuffleUnavailable",
    "ShuffleUnknown",
    "SinkFailed",
    "SourceFailed",
    "SpanRefused",
    "StaleTerm",
    "StateDamaged",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "TooManyInFlight",
    "TooManyKeyspaces",
    "WatchGap",
    "WireError",
]
