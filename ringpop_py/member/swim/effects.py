"""What a node asks of its driver, and what it reports.

`CallPeer`, `AnswerPeer`, `HostsWanted` and `DigestDiffers` are duties, which the driver carries out
in order. The others are facts for observers (the ring, logs, metrics, the checks of the simulator),
which also receive them in order. The effects of one input are returned together, so an observer
already sees the member list as it is after the last of them.
"""

from __future__ import annotations

from typing import Literal

from ringpop_py.base.address import Address
from ringpop_py.base.values.declared import Declared
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.messages import Request, Response

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


class CallPeer(Declared, frozen=True):
    """Duty: send *request*; report `Answered` or `Failed` under *call_id*.

    After *timeout_us* the node itself ends the call, and ignores a later answer.
    """

    call_id: int
    to: Address
    request: Request
    timeout_us: int


class AnswerPeer(Declared, frozen=True):
    """Duty: answer the request that arrived as `Asked` with *token*."""

    token: int
    response: Response


class ProbeReport(Declared, frozen=True):
    """The findings of a probe that ended in a suspicion.

    Attributes:
        ping: how our own ping failed, for example ``refused`` or ``timeout``.
        helpers: each helper that was asked, and how its ping failed (a nack: ``refused``,
            ``lost``, ``timeout`` …); ``silent`` if it did not answer in time, ``unreachable`` if
            the call to it failed.
        strong: whether there was evidence that the process is gone, and not only silence.
        nacks: how many helpers could not reach it either.
        duration_us: from the first ping to the verdict.
    """

    ping: str
    helpers: tuple[tuple[str, str], ...] = ()
    strong: bool = False
    duration_us: int = 0
    nacks: int = 0


class StatusChanged(Declared, frozen=True):
    """A member's row was replaced: *before* is None on arrival, *after* is None on eviction.

    Attributes:
        via: the cause: our own probe or timer, or a message of this kind.
        told_by: the name of the peer that sent the message; our own name if the cause is ours.
        source: the name of the node that first said so (the accuser, for a suspect).
        probe: what our own probe found, if *via* is ``probe``.
        accusers: the independent accusers, if our own timer made the member faulty; *waited_us* is
            then how long it was suspect.
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
        """The new row; for a member that was evicted, its last row."""
        member = self.after or self.before
        assert member is not None
        return member


class SuspicionConfirmed(Declared, frozen=True):
    """One more member accuses *member*, which is already suspect.

    Attributes:
        accusers: all accusers, in the order in which their accusations arrived.
        left_us: how long the suspicion still lasts.
        probe: what our own probe found, if we are the accuser.
    """

    member: Member
    accuser: str
    accusers: tuple[str, ...]
    left_us: int
    probe: ProbeReport | None = None


class HealthChanged(Declared, frozen=True):
    """Our local health is now *score* (0: healthy), because of *reason*."""

    score: int
    reason: str


class Stalled(Declared, frozen=True):
    """The node was called *for_us* after its deadline; its timers do not count that time."""

    for_us: int


class DampVoted(Declared, frozen=True):
    """A vote on whether *name* changes too often has ended.

    Attributes:
        score: our own score.
        answers: each voter that answered, with its score.
        damped: whether the member is damped now.
        reason: why not, if it is not.
    """

    name: str
    score: int
    answers: tuple[tuple[str, int], ...]
    damped: bool
    reason: str = ""


class NameTaken(Declared, frozen=True):
    """Another living process, *theirs*, has our name at another address.

    Attributes:
        lost: whether the name belongs to the other process: this one has stopped, and should end.
        since_ms: since when the other process has run without a long interruption, in milliseconds
            of its wall clock; None if it did not say.
    """

    ours: Member
    theirs: Member
    lost: bool
    since_ms: int | None = None


class StrangerRefused(Declared, frozen=True):
    """A node of *cluster* sent a request and was refused, because our cluster is *ours*."""

    address: Address
    cluster: str
    ours: str


class PeerTrouble(Declared, frozen=True):
    """This node cannot read or does not accept what a peer sent, or vice versa.

    Attributes:
        peer: its name or the address where it listens; its machine if it only calls.
        endpoint: the endpoint that was called, or the kind of message.
        reason: what was wrong, and what was done with the message.
        advice: what an operator can do about it.
    """

    peer: str
    endpoint: str
    reason: str
    advice: str


class HostsWanted(Declared, frozen=True):
    """Duty: read discovery again, and pass the hosts to `Node.hosts_read`."""


class DigestDiffers(Declared, frozen=True):
    """Duty: compare the application's state with that of *peer*, whose ping had this *digest*."""

    peer: str
    digest: int


class Refuted(Declared, frozen=True):
    """We refuted *accusation*, first made by *source*, with the higher incarnation of *now*."""

    accusation: Member
    now: Member
    source: str


class Ready(Declared, frozen=True):
    """The first join is done; *joined* hosts answered (0: this node starts a cluster alone)."""

    joined: int


class JoinRejected(Declared, frozen=True):
    """A host refuses to let us join. *fatal*: only our operator can remove the reason."""

    host: Address
    reason: str
    fatal: bool


class HostSilent(Declared, frozen=True):
    """*host* has not answered for a while; *why* says how the last call ended."""

    host: Address
    why: str


class Healed(Declared, frozen=True):
    """Healing has ended: *targets* answered, and received what they have to refute or lacked.

    Attributes:
        merged: the targets whose lists are now merged with ours; members of the others' lists have
            to refute first.
        failed: the addresses that were tried and sent no list.
        is_run: whether this was a run over all addresses that are apart, and not a try of one.
    """

    targets: tuple[Address, ...] = ()
    merged: tuple[Address, ...] = ()
    failed: tuple[Address, ...] = ()
    is_run: bool = True


class Announced(Declared, frozen=True):
    """Each member that `Node.announce` pinged has answered or failed to."""


class Evicted(Declared, frozen=True):
    """The farewell has been sent: the process may end."""


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
    | HostSilent
    | Healed
    | Announced
    | Evicted
)
