"""What a node waits for, as data: deadlines, and what each call was made for.

`Node` dispatches both to its parts. A value refers to its cause by a name, an address or a number
that counts up, never by an object; so a late value finds no cause, and changes nothing.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal

from ringpop_py.base.address import Address
from ringpop_py.base.values.declared import Declared
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.messages import MemberChange, PingReq

# Deadlines: what is due at an instant.


class Due(Enum):
    """A deadline that needs no further data."""

    PERIOD = auto()  # the next protocol period begins
    VOTE = auto()  # other members are asked about flappers
    JOIN = auto()  # the next round of joins begins
    HEAL_TURN = auto()  # a node with `fast_heal` checks whether it is its turn
    HEAL_CHANCE = auto()  # a node without `fast_heal` draws whether it begins a run
    HEAL_HOSTS = auto()  # a run of healing no longer waits for discovery


class CallDue(Declared, frozen=True):
    """A call times out."""

    call_id: int


class SecondPingDue(Declared, frozen=True):
    """The target of a probe is pinged again, because there is no helper to ask."""

    probe: int


class StatusDue(Declared, frozen=True):
    """The status of a member expires."""

    name: str


class ScoreDue(Declared, frozen=True):
    """The score of a member is low enough to release or forget it."""

    name: str


class HealTryDue(Declared, frozen=True):
    """Refutations have had time to spread: the next pass with *target* begins."""

    target: Address
    passes_left: int


Deadline = Due | CallDue | SecondPingDue | StatusDue | ScoreDue | HealTryDue


# Continuations: what a call was made for. Those with a `then` do what all callers need first, and
# pass the outcome on.


class PingCall(Declared, frozen=True):
    """A ping that carried *sent*."""

    target: Member
    sent: tuple[MemberChange, ...]
    stall_count: int  # of `StallClock`, when it was sent
    timeout_us: int
    to_sync: bool  # whether lists that differ are synced in spite of news
    then: Continuation


class PingReqCall(Declared, frozen=True):
    """A ping-req to *helper* that carried *sent*."""

    helper: str
    sent: tuple[MemberChange, ...]
    then: Continuation


class ListCall(Declared, frozen=True):
    """A request for the member list of the process at *to*."""

    to: Address
    then: Continuation


class SyncCall(Declared, frozen=True):
    """A round of the sync *run*, which has its own continuation."""

    run: int


class ProbePing(Declared, frozen=True):
    """The ping of a probe."""

    probe: int


class ProbeHelp(Declared, frozen=True):
    """The ping of a probe through *helper*."""

    probe: int
    helper: str


class ExchangePing(Declared, frozen=True):
    """A ping of *name* to exchange news."""

    name: str


class BatchPing(Declared, frozen=True):
    """One of several pings; an effect follows when all are over."""

    batch: int


class PeerPing(Declared, frozen=True):
    """A ping of *target* for the peer that sent *request*, which is answered under *token*."""

    request: PingReq
    token: int
    target: Member
    gives_up_at: int  # a second ping may last until then
    is_second: bool = False


class ReverseList(Declared, frozen=True):
    """The list of a peer to which we sent ours."""


class PeerSync(Declared, frozen=True):
    """A sync with a peer whose checksum differs."""

    peer: Address


class JoinList(Declared, frozen=True):
    """The list of a host, in a round of joins."""

    host: Address


class JoinRest(Declared, frozen=True):
    """A sync for the rest of a list of which a host could send only a part."""


class HealPass(Declared, frozen=True):
    """A pass of healing with *target*: in a run, as a single try, or with a list that arrived."""

    target: Address
    cause: Literal["run", "try", "list"]
    passes_left: int  # this one included


class HealList(Declared, frozen=True):
    """The list of the target of a pass."""

    heals: HealPass


class HealRows(Declared, frozen=True):
    """The rows of the target of a pass that differ; all are read before any is applied."""

    heals: HealPass


class HealLast(Declared, frozen=True):
    """The last call of a pass: a sync, or changes that the target lacks."""

    heals: HealPass
    merges: bool  # whether the lists are merged once it succeeds
    theirs: tuple[Member, ...]  # the rows that were read before


class VoteCall(Declared, frozen=True):
    """The scores of *voter*, for a vote."""

    vote: int
    voter: str


class NameCall(Declared, frozen=True):
    """A `NameReq` to the namesake at *address*."""

    address: Address


class NameHelp(Declared, frozen=True):
    """A ping-req to a helper, for the namesake of an inquiry."""

    address: Address
    inquiry: int


class VouchCall(Declared, frozen=True):
    """A `NameReq` to the process called *name* at *address*, which alone can vouch for a row."""

    name: str
    address: Address


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
    | HealLast
    | VoteCall
    | NameCall
    | NameHelp
    | VouchCall
)
