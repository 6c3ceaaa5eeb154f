"""What nodes say to each other, as values; how they are written as bytes is the codec's.

A request is answered by one response. Requests and responses find each other by a call id that
the asking node chose (`effects.Call`), and by a token that the answering node's driver chose
(`Asked`); neither travels.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol

from ringpop_py.address import Address
from ringpop_py.config.settings import SYNC_ROWS_RANGE
from ringpop_py.swim.buckets import BITS_MAX
from ringpop_py.swim.member import Member
from ringpop_py.values.declared import Checksum, Declared, Host, Meta, Natural, Port, Text

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Source(Protocol):
    @property
    def source_host(self) -> str: ...
    @property
    def source_port(self) -> int: ...


class _Sourced(Declared, frozen=True):
    """A message that says where its sender listens."""

    @property
    def source_address(self: _Source) -> Address:
        """Where the sender listens."""
        return Address(self.source_host, self.source_port)


class MemberChange(Declared, frozen=True, kw_only=True):
    """A member's new row, as gossiped, and who said so first (empty where that is kept back)."""

    source: Text = ""
    source_incarnation: Natural = 0
    member: Member


class Ping(_Sourced, frozen=True):
    """Are you there? And here is what I know.

    Here and below, *cluster* is None where the sender's implementation does not say. In the
    ringpop dialect, a process that a message does not name is empty text, at `NOWHERE`.

    Attributes:
        digest: the sender's `Node.digest`; None where its implementation has none.
    """

    cluster: Text | None
    ring_points: Natural | None
    source: Text
    source_host: Host
    source_port: Port
    source_incarnation: Natural
    checksum: Checksum | None
    changes: tuple[MemberChange, ...] = ()
    digest: Checksum | None = None


class PingReq(_Sourced, frozen=True):
    """Ping *target* (at *target_address*) for me, and tell me whether it answered."""

    cluster: Text | None
    source: Text
    source_host: Host
    source_port: Port
    source_incarnation: Natural
    checksum: Checksum | None
    target: Text
    target_host: Host
    target_port: Port
    changes: tuple[MemberChange, ...] = ()

    @property
    def target_address(self) -> Address:
        """Where *target* listens."""
        return Address(self.target_host, self.target_port)


class Join(_Sourced, frozen=True):
    """Give me your member list."""

    cluster: Text
    ring_points: Natural | None
    source: Text
    source_host: Host
    source_port: Port
    incarnation: Natural
    timeout_ms: Natural


DAMP_NAMES_MAX: Final = 16


class DampReq(_Sourced, frozen=True):
    """How much have *names*, at most `DAMP_NAMES_MAX`, changed in your view?"""

    cluster: Text
    source: Text
    source_host: Host
    source_port: Port
    source_incarnation: Natural
    names: Annotated[tuple[Text, ...], Meta(max_length=DAMP_NAMES_MAX)]


class NameReq(_Sourced, frozen=True):
    """I go by this name: who are you?  Asked where another process is said to have it.

    Attributes:
        since_ms: since when the sender has run without a long interruption (`StallClock.since_ms`).
        joined: whether its join is done.
    """

    cluster: Text
    source: Text
    source_host: Host
    source_port: Port
    source_incarnation: Natural
    since_ms: Natural
    joined: bool


class Ack(Declared, frozen=True):
    """The answer to `Ping`; *source* is empty where the other implementation leaves it out."""

    source: Text
    source_incarnation: Natural
    checksum: Checksum | None
    changes: tuple[MemberChange, ...] = ()


class PingReqAck(Declared, frozen=True):
    """The answer to `PingReq`: whether the target answered (no: a nack).

    Attributes:
        failure: how the ping failed, a `FailureReason`; empty if it did not.
    """

    target: Text
    ping_ok: bool
    changes: tuple[MemberChange, ...] = ()
    failure: Text = ""


class JoinAck(Declared, frozen=True):
    """The answer to `Join`: the whole member list, or, where there are *more*, some of it."""

    cluster: Text
    source: Text
    source_incarnation: Natural
    checksum: Checksum | None
    members: tuple[Member, ...] = ()
    more: bool = False


Bits = Annotated[int, Meta(ge=0, le=BITS_MAX)]
Rows = Annotated[tuple[Member, ...], Meta(max_length=SYNC_ROWS_RANGE[1])]


class Sync(_Sourced, frozen=True):
    """Here are rows that you lack, and sums of what I have: what do you have otherwise?

    Attributes:
        bits: the members are in ``2**bits`` buckets (`membership.buckets`).
        first: the bucket that *sums* begin with.
        sums: of the buckets from *first* to the last, each a number of 8 bytes; or none, if nothing
            is asked.
    """

    cluster: Text
    ring_points: Natural
    source: Text
    source_host: Host
    source_port: Port
    source_incarnation: Natural
    bits: Bits
    first: Natural
    sums: bytes
    rows: Rows = ()

    def __post_init__(self) -> None:
        count = (1 << self.bits) - self.first
        if count < 0 or len(self.sums) not in (0, 8 * count):
            message = f"the sums are not those of {count} buckets"
            raise ValueError(message)

    @property
    def bucket_sums(self) -> tuple[int, ...]:
        """*sums* as numbers."""
        return struct.unpack(f">{len(self.sums) // 8}Q", self.sums)


def packed_sums(sums: Sequence[int]) -> bytes:
    """*sums* as they stand in a `Sync`."""
    return struct.pack(f">{len(sums)}Q", *sums)


class SyncAck(Declared, frozen=True):
    """The answer to `Sync`: the rows of buckets that differ.

    Attributes:
        checksum: of the list, with the rows taken in that came with the request.
        bits: of the buckets below, at least as many as were asked with.
        until: what differs in the buckets before this one is here; beyond, it may.
        buckets: those that *rows* hold whole, in order.
    """

    source: Text
    checksum: Checksum
    bits: Bits
    until: Natural
    buckets: tuple[Natural, ...] = ()
    rows: Rows = ()

    def __post_init__(self) -> None:
        bounds = (-1, *self.buckets, self.until)
        if self.until > 1 << self.bits or any(b <= a for a, b in itertools.pairwise(bounds)):
            message = "buckets are not in order, or beyond their end"
            raise ValueError(message)


class DampAck(Declared, frozen=True):
    """The answer to `DampReq`: each name with its score (`membership.damping`)."""

    scores: Annotated[tuple[tuple[Text, Natural], ...], Meta(max_length=DAMP_NAMES_MAX)]


class NameAck(_Sourced, frozen=True):
    """The answer to `NameReq`: the same of the process that listens there."""

    source: Text
    source_host: Host
    source_port: Port
    source_incarnation: Natural
    since_ms: Natural
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


class Refusal(Declared, frozen=True):
    """The request was understood and is not served; *message* is for a person."""

    kind: Text  # a `RefusalKind`, of peers of our version
    message: Text


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
