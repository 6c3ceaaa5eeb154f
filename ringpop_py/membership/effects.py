"""What a Node asks of its driver, and what it tells of itself.

A driver carries out effects in their order. `Call` and `Answer` are duties; the others are
facts for those who listen (the ring, logs, metrics, the checks of the simulator).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ringpop_py.address import Address  # noqa: TC001 - dataclass field, read at run time
from ringpop_py.membership.member import Member  # noqa: TC001 - dataclass field
from ringpop_py.membership.messages import Request, Response  # noqa: TC001 - dataclass fields

Via = Literal[
    "local", "probe", "timer", "ping", "ack", "ping-req", "join", "full-sync", "reap", "heal"
]


@dataclass(frozen=True, slots=True)
class Call:
    """Duty: send *request*; report `Answered` or `Failed` under *call_id*.

    The node gives up by itself after *timeout_us*; what comes later is ignored.
    """

    call_id: int
    to: Address
    request: Request
    timeout_us: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Duty: answer the request that came under *token*."""

    token: int
    response: Response


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """A member's row was replaced: *before* is None on arrival, *after* None on eviction.

    Attributes:
        via: what brought it: our own probe or timer, or a message of this kind.
        told_by: the name of the peer whose message it was; our own where *via* is ours.
        source: the name of the node that first said so (the accuser, for a suspect).
    """

    before: Member | None
    after: Member | None
    via: Via
    told_by: str
    source: str


@dataclass(frozen=True, slots=True)
class Refuted:
    """Others believed *accusation* of us; we answer it with the higher incarnation of *now*."""

    accusation: Member
    now: Member
    source: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The first join is done: *joined* hosts answered (0: this node starts a cluster alone)."""

    joined: int


@dataclass(frozen=True, slots=True)
class JoinRejected:
    """A host will not have us. *fatal*: for a reason that only our operator can mend."""

    address: Address
    reason: str
    fatal: bool


@dataclass(frozen=True, slots=True)
class Healed:
    """A run of healing is over: *targets* were reached, and told what they had to know."""

    targets: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Evicted:
    """The farewell is done: the process may end."""


Effect = Call | Answer | StatusChanged | Refuted | Ready | JoinRejected | Healed | Evicted
