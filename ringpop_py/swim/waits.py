"""What a node waits for, as data: deadlines, and what each call was made for.

`Node` dispatches both to its parts. A value refers to its cause by a name, an address or a number
that counts up, never by an object. A late one finds nothing there, and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.swim.member import Member
    from ringpop_py.swim.messages import MemberChange, PingReq

# Deadlines: what is due at an instant.


@dataclass(frozen=True, slots=True)
class CallDue:
    """A call is over without an answer."""

    call_id: int


@dataclass(frozen=True, slots=True)
class PeriodDue:
    """The next protocol period begins."""


@dataclass(frozen=True, slots=True)
class SecondPingDue:
    """The target of a probe is pinged again, because nobody else can be asked."""

    probe: int


@dataclass(frozen=True, slots=True)
class StatusDue:
    """The status of a member ends by itself."""

    name: str


@dataclass(frozen=True, slots=True)
class ScoreDue:
    """The score of a member has fallen to a point at which something follows."""

    name: str


@dataclass(frozen=True, slots=True)
class VoteDue:
    """Others are asked about flappers."""


@dataclass(frozen=True, slots=True)
class JoinDue:
    """The next round of joins begins."""


@dataclass(frozen=True, slots=True)
class HealTurnDue:
    """A node that heals fast looks whether it is its turn."""


@dataclass(frozen=True, slots=True)
class HealChanceDue:
    """A node that heals as Ringpop does draws whether it begins a run."""


@dataclass(frozen=True, slots=True)
class HealHostsDue:
    """A run of healing waits for discovery no longer."""


@dataclass(frozen=True, slots=True)
class HealTryDue:
    """Refutations have had the time to spread: the next pass with a target begins."""

    target: Address
    passes_left: int


Deadline = (
    CallDue
    | PeriodDue
    | SecondPingDue
    | StatusDue
    | ScoreDue
    | VoteDue
    | JoinDue
    | HealTurnDue
    | HealChanceDue
    | HealHostsDue
    | HealTryDue
)


# Continuations: what a call was made for. Those with a `then` see to what every caller wants
# first, and hand the outcome on.


@dataclass(frozen=True, slots=True)
class PingCall:
    """A ping that carried *sent*.

    Attributes:
        stall_count: how often we had stalled when it was sent.
        to_sync: whether views that differ are synced in spite of news.
    """

    target: Member
    sent: tuple[MemberChange, ...]
    stall_count: int
    timeout_us: int
    to_sync: bool
    then: Continuation


@dataclass(frozen=True, slots=True)
class PingReqCall:
    """A request to *helper* that carried *sent*."""

    helper: str
    sent: tuple[MemberChange, ...]
    then: Continuation


@dataclass(frozen=True, slots=True)
class ListCall:
    """A request for the member list of whoever listens at *to*."""

    to: Address
    then: Continuation


@dataclass(frozen=True, slots=True)
class SyncCall:
    """A round of a sync; the run knows what comes after it."""

    run: int


@dataclass(frozen=True, slots=True)
class ProbePing:
    """The ping of a probe."""

    probe: int


@dataclass(frozen=True, slots=True)
class ProbeHelp:
    """The ping of a probe through *helper*."""

    probe: int
    helper: str


@dataclass(frozen=True, slots=True)
class ExchangePing:
    """A ping for what *name* knows."""

    name: str


@dataclass(frozen=True, slots=True)
class BatchPing:
    """One of several pings; what they were sent for follows when all are over."""

    batch: int


@dataclass(frozen=True, slots=True)
class PeerPing:
    """A ping of *target* that *request* asked for, which is to be answered under *token*.

    Attributes:
        gives_up_at: until when there may be a second ping.
        is_second: whether this is it.
    """

    request: PingReq
    token: int
    target: Member
    gives_up_at: int
    is_second: bool = False


@dataclass(frozen=True, slots=True)
class ReverseList:
    """The list of a peer that got ours."""


@dataclass(frozen=True, slots=True)
class PeerSync:
    """A sync with a peer whose view differs."""

    peer: Address


@dataclass(frozen=True, slots=True)
class JoinList:
    """The list of a host, in a round of joins."""

    host: Address


@dataclass(frozen=True, slots=True)
class JoinRest:
    """A sync for the rest of a list of which a host could send only a part."""


@dataclass(frozen=True, slots=True)
class HealPass:
    """A pass of healing with *target*.

    Attributes:
        cause: a run; a single try; or a list that came without being asked for by healing.
        passes_left: how many passes there may be, this one included.
    """

    target: Address
    cause: Literal["run", "try", "list"]
    passes_left: int


@dataclass(frozen=True, slots=True)
class HealList:
    """The list of the target of a pass."""

    heals: HealPass


@dataclass(frozen=True, slots=True)
class HealRows:
    """The rows of the target of a pass that differ, which are read before any is taken in."""

    heals: HealPass


@dataclass(frozen=True, slots=True)
class HealSync:
    """The sync that ends a pass; *theirs* was read before."""

    heals: HealPass
    theirs: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class HealNews:
    """What the target of a pass has to be told; *merges*: with it, the lists are one."""

    heals: HealPass
    merges: bool
    theirs: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class VoteCall:
    """The scores of *voter*, for a vote."""

    vote: int
    voter: str


@dataclass(frozen=True, slots=True)
class NameCall:
    """A question to the namesake at *address* who it is."""

    address: Address


@dataclass(frozen=True, slots=True)
class NameHelp:
    """A helper's try to reach the namesake of an inquiry."""

    address: Address
    inquiry: int


Continuation = (
    PingCall
    | PingReqCall
    | ListCall
    | SyncCall
    | ProbePing
    | ProbeHelp
    | ExchangePing
    | BatchPing
    | PeerPing
    | ReverseList
    | PeerSync
    | JoinList
    | JoinRest
    | HealList
    | HealRows
    | HealSync
    | HealNews
    | VoteCall
    | NameCall
    | NameHelp
)
