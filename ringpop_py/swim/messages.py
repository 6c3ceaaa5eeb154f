"""What nodes say to each other, as values; how they are written as bytes is the codec's.

A request is answered by one response. Requests and responses find each other by a call id that
the asking node chose (`effects.Call`), and by a token that the answering node's driver chose
(`Asked`); neither travels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ringpop_py.address import Address  # noqa: TC001 - dataclass field, read at run time
from ringpop_py.swim.member import Member  # noqa: TC001 - dataclass field


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A member's new row, as gossiped, and who said so first (empty where that is kept back)."""

    member: Member
    source: str = ""
    source_incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there? And here is what I know.

    Here and below, *cluster* is None where the sender's implementation does not say. In the
    ringpop dialect, a process that a message does not name is empty text, at `NOWHERE`.

    Attributes:
        digest: the sender's `Node.digest`; None where its implementation has none.
    """

    cluster: str | None
    ring_points: int | None
    source: str
    source_address: Address
    source_incarnation: int
    checksum: int | None
    changes: tuple[MemberChange, ...] = ()
    digest: int | None = None


@dataclass(frozen=True, slots=True)
class PingReq:
    """Ping *target* (*target_address*) for me, and tell me whether it answered."""

    cluster: str | None
    source: str
    source_address: Address
    source_incarnation: int
    checksum: int | None
    target: str
    target_address: Address
    changes: tuple[MemberChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """Give me your member list."""

    cluster: str
    ring_points: int | None
    source: str
    source_address: Address
    incarnation: int
    timeout_s: float


DAMP_NAMES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class DampReq:
    """How much have *names*, at most `DAMP_NAMES_MAX`, changed in your view?"""

    cluster: str
    source: str
    source_address: Address
    source_incarnation: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NameReq:
    """I go by this name: who are you?  Asked where another process is said to have it.

    Attributes:
        since_ms: since when the sender has run without a long interruption (`StallClock.since_ms`).
        joined: whether its join is done.
    """

    cluster: str
    source: str
    source_address: Address
    source_incarnation: int
    since_ms: int
    joined: bool


@dataclass(frozen=True, slots=True)
class Ack:
    """The answer to `Ping`; *source* is empty where the other implementation leaves it out."""

    source: str
    source_incarnation: int
    checksum: int | None
    changes: tuple[MemberChange, ...] = ()


@dataclass(frozen=True, slots=True)
class PingReqAck:
    """The answer to `PingReq`: whether the target answered (no: a nack).

    Attributes:
        failure: how the ping failed, a `FailureReason`; empty if it did not.
    """

    target: str
    ping_ok: bool
    changes: tuple[MemberChange, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class JoinAck:
    """The answer to `Join`: the whole member list, or, where there are *more*, some of it."""

    cluster: str
    source: str
    source_incarnation: int
    checksum: int | None
    members: tuple[Member, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """Here are rows that you lack, and sums of what I have: what do you have otherwise?

    Attributes:
        bits: the members are in ``2**bits`` buckets (`membership.buckets`).
        first: the bucket that *sums* begin with.
        sums: of the buckets from *first* to the last, or none, if nothing is asked.
    """

    cluster: str
    ring_points: int
    source: str
    source_address: Address
    source_incarnation: int
    bits: int
    first: int
    sums: tuple[int, ...]
    rows: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAck:
    """The answer to `Sync`: the rows of buckets that differ.

    Attributes:
        checksum: of the list, with the rows taken in that came with the request.
        bits: of the buckets below, at least as many as were asked with.
        until: what differs in the buckets before this one is here; beyond, it may.
        buckets: those that *rows* hold whole, in order.
    """

    source: str
    checksum: int
    bits: int
    until: int
    buckets: tuple[int, ...] = ()
    rows: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class DampAck:
    """The answer to `DampReq`: each name with its score (`membership.damping`)."""

    scores: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class NameAck:
    """The answer to `NameReq`: the same of the process that listens there."""

    source: str
    source_address: Address
    source_incarnation: int
    since_ms: int
    joined: bool


RefusalKind = Literal[
    "not-ready",
    "wrong-cluster",
    "ring-points",
    "self-join",
    "bad-source",
    "name-taken",
    "leaving",
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The request was understood and is not served; *message* is for a person."""

    kind: RefusalKind | str
    message: str


Request = Ping | PingReq | Join | DampReq | Sync | NameReq
Response = Ack | PingReqAck | JoinAck | DampAck | SyncAck | NameAck | Refusal

FailureReason = Literal["refused", "lost", "replaced", "timeout", "declined", "failed"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call brought no answer; *detail* is for a person.

    Attributes:
        reason: ``refused``: the peer's machine says that nobody listens there. ``lost``: the
            connection broke under the call. ``replaced``: another member answers at its address.
            ``timeout``: silence. ``declined``: the peer will not
            serve it. ``failed``: anything else, for example no way to the peer's network.
    """

    reason: FailureReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


@dataclass(frozen=True, slots=True)
class Asked:
    """Input: a peer sent *request*; answer it with `effects.Answer` under *token*."""

    token: int
    request: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """Input: *response* came to the call *call_id*."""

    call_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class Failed:
    """Input: the call *call_id* will bring no answer."""

    call_id: int
    reason: FailureReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """Input: the connection to the peer that listens at *address* broke."""

    address: Address


Input = Asked | Answered | Failed | Disconnected
