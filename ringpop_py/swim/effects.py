"""What a Node asks of its driver, and what it tells of itself.

`CallPeer`, `AnswerPeer`, `HostsWanted` and `DigestDiffers` are duties, which a driver carries out
in their order. The others are facts for observers (the ring, logs, metrics, the checks of the
simulator), which get them in their order. All effects of one input come together: the member list
is as it is after the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ringpop_py.address import Address  # noqa: TC001 - dataclass field, read at run time
from ringpop_py.swim.member import Member  # noqa: TC001 - dataclass field
from ringpop_py.swim.messages import Request, Response  # noqa: TC001 - dataclass fields

Via = Literal[
    "local",
    "probe",
    "timer",
    "ping",
    "ack",
    "ping-req",
    "join",
    "full-sync",
    "reap",
    "heal",
    "damping",
]


@dataclass(frozen=True, slots=True)
class CallPeer:
    """Duty: send *request*; report `Answered` or `Failed` under *call_id*.

    The node gives up by itself after *timeout_us*; what comes later is ignored.
    """

    call_id: int
    to: Address
    request: Request
    timeout_us: int


@dataclass(frozen=True, slots=True)
class AnswerPeer:
    """Duty: answer the request that came under *token*."""

    token: int
    response: Response


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What one probe of a member found, of which came a suspicion.

    Attributes:
        ping: how our own ping failed, for example ``refused`` or ``timeout``.
        helpers: each helper that was asked, and what it said: ``refused``, ``lost``, ``timeout``
            and so on for how its ping failed (a nack), ``silent`` if it did not answer us.
        strong: whether it was evidence of a process that is gone, and not silence alone.
        duration_us: from the first ping to the verdict.
    """

    ping: str
    helpers: tuple[tuple[str, str], ...] = ()
    strong: bool = False
    duration_us: int = 0


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """A member's row was replaced: *before* is None on arrival, *after* None on eviction.

    Attributes:
        via: what brought it: our own probe or timer, or a message of this kind.
        told_by: the name of the peer whose message it was; our own where *via* is ours.
        source: the name of the node that first said so (the accuser, for a suspect).
        probe: what our own probe found, where *via* is ``probe``.
        accusers: who had accused it independently, and *waited_us* how long it was suspect, where
            our own timer made it faulty.
    """

    before: Member | None
    after: Member | None
    via: Via
    told_by: str
    source: str
    probe: ProbeReport | None = None
    accusers: tuple[str, ...] = ()
    waited_us: int = 0

    @property
    def member(self) -> Member:
        """The row as it is now; the last one of a member that was evicted."""
        member = self.after or self.before
        assert member is not None
        return member


@dataclass(frozen=True, slots=True)
class SuspicionConfirmed:
    """One more member accuses *member*, which we hold for suspect already.

    Attributes:
        accusers: all so far, in the order in which we learnt of them.
        left_us: how long the suspicion still lasts now.
        probe: what our own probe found, if the accuser is us.
    """

    member: Member
    accuser: str
    accusers: tuple[str, ...]
    left_us: int
    probe: ProbeReport | None = None


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """How slow we hold ourselves for: 0 is healthy; *reason* is what changed it."""

    score: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stalled:
    """We were not called for so long after our deadline; our timers do not count that time."""

    for_us: int


@dataclass(frozen=True, slots=True)
class DampVoted:
    """Others were asked whether *name* changes too often.

    Attributes:
        score: our own.
        answers: who answered, and their scores.
        damped: whether they agreed.
        reason: why not, if they did not.
    """

    name: str
    score: int
    answers: tuple[tuple[str, int], ...]
    damped: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NameTaken:
    """Another living process, *theirs*, goes by our name, *ours*, at another address.

    Attributes:
        lost: whether the name belongs to them: this node has stopped, and should end.
        since_ms: since when they have run without a long interruption, in milliseconds of their
            wall clock; None if they could not be asked, but another member has reached them.
    """

    ours: Member
    theirs: Member
    lost: bool
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StrangerRefused:
    """A node of another *cluster* than *ours* called us, and was refused."""

    address: Address
    cluster: str
    ours: str


@dataclass(frozen=True, slots=True)
class PeerTrouble:
    """A peer sent something that this node cannot read or does not accept, or the other way round.

    Attributes:
        peer: its name, where it listens, or, if it only calls, its machine.
        endpoint: what was called, or what kind of message it was.
        reason: what was wrong, and what became of the message.
        advice: what an operator can do about it.
    """

    peer: str
    endpoint: str
    reason: str
    advice: str


@dataclass(frozen=True, slots=True)
class HostsWanted:
    """Duty: read discovery again, and hand what it says to `Node.hosts_read`."""


@dataclass(frozen=True, slots=True)
class DigestDiffers:
    """Duty: see what the application has otherwise than *peer*, whose ping had that *digest*."""

    peer: str
    digest: int


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
    """Healing has ended: *targets* were reached, and got what they had to know.

    Attributes:
        merged: those of them with whom the lists are one now; the others have to refute first.
        failed: the addresses that were tried and gave no list.
        is_run: whether that was a run over all addresses that are apart; otherwise it was a try of
            one address.
    """

    targets: tuple[Address, ...] = ()
    merged: tuple[Address, ...] = ()
    failed: tuple[Address, ...] = ()
    is_run: bool = True


@dataclass(frozen=True, slots=True)
class Announced:
    """Each member that `Node.announce` picked has answered, or will not answer."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """The farewell is done: the process may end."""


Effect = (
    CallPeer
    | AnswerPeer
    | HostsWanted
    | DigestDiffers
    | StatusChanged
    | SuspicionConfirmed
    | HealthChanged
    | Stalled
    | DampVoted
    | NameTaken
    | StrangerRefused
    | PeerTrouble
    | Refuted
    | Ready
    | JoinRejected
    | Healed
    | Announced
    | Evicted
)
