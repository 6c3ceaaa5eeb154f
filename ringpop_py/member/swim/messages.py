"""The messages between nodes, as values; the codec turns them into bytes.

Each request is answered by one response. The sender of a request identifies it by a call id
(`effects.CallPeer`), and the driver of its receiver by a token (`Asked`); neither is sent.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import CHANGES_MAX, SYNC_ROWS_RANGE
from ringpop_py.base.values.declared import Checksum, Declared, Host, Meta, Natural, Port, Text
from ringpop_py.member.swim.buckets import BITS_MAX
from ringpop_py.member.swim.member import Member

if TYPE_CHECKING:
    from collections.abc import Sequence

QUIET_US: Final = 500_000
"""How long a peer may owe answers and send nothing before it is probed: shorter pauses of its
process cost nothing."""


class _Source(Protocol):
    @property
    def source_host(self) -> str: ...
    @property
    def source_port(self) -> int: ...


class _Sourced(Declared, frozen=True):
    """A message with its sender's address."""

    @property
    def source_address(self: _Source) -> Address:
        """The address where the sender listens."""
        return Address(self.source_host, self.source_port)


class MemberChange(Declared, frozen=True, kw_only=True):
    """A member's new row, as gossiped, and the node that said so first (empty: not given)."""

    source: Text = ""
    source_incarnation: Natural = 0
    member: Member


Changes = Annotated[tuple[MemberChange, ...], Meta(max_length=CHANGES_MAX)]


class Ping(_Sourced, frozen=True):
    """Are you there? Here is my news.

    Here and below, *cluster* is None if the sender's implementation does not send it. In the
    ringpop dialect, a process that a message does not name is empty text, at `NOWHERE`.

    Attributes:
        digest: the sender's `Node.digest`; None if its implementation has none.
    """

    cluster: Text | None
    ring_points: Natural | None
    source: Text
    source_host: Host
    source_port: Port
    source_incarnation: Natural
    checksum: Checksum | None
    changes: Changes = ()
    digest: Checksum | None = None


class PingReq(_Sourced, frozen=True):
    """Ping *target* (at *target_address*) for me: does it answer?"""

    cluster: Text | None
    source: Text
    source_host: Host
    source_port: Port
    source_incarnation: Natural
    checksum: Checksum | None
    target: Text
    target_host: Host
    target_port: Port
    changes: Changes = ()

    @property
    def target_address(self) -> Address:
        """The address where *target* listens."""
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
    """What are your scores of *names*, `DAMP_NAMES_MAX` at most?"""

    cluster: Text
    source: Text
    source_host: Host
    source_port: Port
    source_incarnation: Natural
    names: Annotated[tuple[Text, ...], Meta(max_length=DAMP_NAMES_MAX)]


class NameReq(_Sourced, frozen=True):
    """I have this name: who are you? It is sent to an address at which a row has our own name.

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
    """The answer to `Ping`; *source* is empty if the peer's implementation omits it."""

    source: Text
    source_incarnation: Natural
    checksum: Checksum | None
    changes: Changes = ()


class PingReqAck(Declared, frozen=True):
    """The answer to `PingReq`: whether the target answered (no: a nack).

    Attributes:
        failure: how the ping failed, a `FailureReason`; empty if it succeeded.
    """

    target: Text
    ping_ok: bool
    changes: Changes = ()
    failure: Text = ""


class JoinAck(Declared, frozen=True):
    """The answer to `Join`: the member list, or a part of it if there are *more* members."""

    cluster: Text
    source: Text
    source_incarnation: Natural
    checksum: Checksum | None
    members: tuple[Member, ...] = ()
    more: bool = False


Bits = Annotated[int, Meta(ge=0, le=BITS_MAX)]
Rows = Annotated[tuple[Member, ...], Meta(max_length=SYNC_ROWS_RANGE[1])]


class Sync(_Sourced, frozen=True):
    """Here are rows that you lack, and the sums of my buckets: which of your rows differ?

    Attributes:
        bits: the members are in ``2**bits`` buckets (`swim.buckets`).
        first: the bucket that *sums* begin with.
        sums: of the buckets from *first* to the last, 8 bytes each; empty if nothing is asked.
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
        # Checked here, because `bucket_sums` would raise an error that no reader expects.
        count = (1 << self.bits) - self.first
        if count < 0 or len(self.sums) not in (0, 8 * count):
            raise ValueError(f"the sums are not those of {count} buckets")

    @property
    def bucket_sums(self) -> tuple[int, ...]:
        """The *sums* as numbers."""
        return struct.unpack(f">{len(self.sums) // 8}Q", self.sums)


def packed_sums(sums: Sequence[int]) -> bytes:
    """Return *sums* as bytes, for a `Sync`."""
    return struct.pack(f">{len(sums)}Q", *sums)


class SyncAck(Declared, frozen=True):
    """The answer to `Sync`: the rows of buckets that differ.

    Attributes:
        checksum: of the list, after the rows in the request were applied.
        bits: of the buckets below; at least as many as in the request.
        until: the answer covers the buckets before this one; the next request begins here.
        buckets: the buckets of which *rows* hold all members, in order.
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
            raise ValueError("buckets are not in order, or beyond their end")


class DampAck(Declared, frozen=True):
    """The answer to `DampReq`: each name with its score (`swim.scores`)."""

    scores: Annotated[tuple[tuple[Text, Natural], ...], Meta(max_length=DAMP_NAMES_MAX)]


class NameAck(_Sourced, frozen=True):
    """The answer to `NameReq`: the same about the process that listens there."""

    source: Text
    source_host: Host
    source_port: Port
    source_incarnation: Natural
    since_ms: Natural
    joined: bool


RefusalKind = Literal[
    "not-ready", "wrong-cluster", "ring-points", "self-join", "bad-source", "name-taken", "leaving"
]


class Refusal(Declared, frozen=True):
    """The request was understood, but is not served; *message* is for a person."""

    kind: Text  # a `RefusalKind` if the peer has our version
    message: Text


Request = Ping | PingReq | Join | DampReq | Sync | NameReq
Response = Ack | PingReqAck | JoinAck | DampAck | SyncAck | NameAck | Refusal

FailureReason = Literal["refused", "lost", "replaced", "timeout", "declined", "untrusted", "failed"]


class Failure(Declared, frozen=True):
    """Why a call has no answer; *detail* is for a person.

    Attributes:
        reason: ``refused``: the peer's machine says that no process listens there. ``lost``: the
            connection broke during the call. ``replaced``: another member answers at the address.
            ``timeout``: silence. ``declined``: the peer does not serve the request. ``failed``:
            anything else, for example no route to the peer's network.
    """

    reason: FailureReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class Asked(Declared, frozen=True):
    """Input: a peer sent *request*; it is answered by `effects.AnswerPeer` with *token*."""

    token: int
    request: Request


class Answered(Declared, frozen=True):
    """Input: the call *call_id* was answered by *response*."""

    call_id: int
    response: Response


class Failed(Declared, frozen=True):
    """Input: the call *call_id* failed, and will not be answered."""

    call_id: int
    reason: FailureReason
    detail: str = ""


class Disconnected(Declared, frozen=True):
    """Input: the connection to the peer that listens at *address* broke."""

    address: Address


class Quiet(Declared, frozen=True):
    """Input: the peer that listens at *address* owes us answers, and sent nothing for `QUIET_US`.

    The input is repeated each time that the silence goes on for as long again.
    """

    address: Address


Input = Asked | Answered | Failed | Disconnected | Quiet
