"""The requests of peers: which are served, what is applied of them, and how they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from ringpop_py.base.address import NOWHERE
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.calls import failure_of
from ringpop_py.member.swim.effects import AnswerPeer, DigestDiffers, StrangerRefused
from ringpop_py.member.swim.member import Member, overrides
from ringpop_py.member.swim.messages import (
    Ack,
    DampAck,
    DampReq,
    Failure,
    Join,
    JoinAck,
    MemberChange,
    NameReq,
    Ping,
    PingReq,
    PingReqAck,
    Refusal,
    Request,
    Sync,
)
from ringpop_py.member.swim.timers import microseconds
from ringpop_py.member.swim.waits import PeerPing, ReverseList

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.asker import Asker
    from ringpop_py.member.swim.calls import Outcome
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.namesakes import Namesakes
    from ringpop_py.member.swim.rows import Rows
    from ringpop_py.member.swim.scores import Scores
    from ringpop_py.member.swim.syncer import Syncer


OTHER_CLUSTER: Final = "this is another cluster"
_RINGLESS: Final = (PingReq, DampReq, NameReq)
RECEIVED_COUNTS: Final[dict[type[Request], str]] = {
    Ping: "pings_received",
    PingReq: "ping_reqs_received",
    Join: "joins_received",
    DampReq: "damp_reqs_received",
    Sync: "syncs_received",
    NameReq: "name_reqs_received",
}
"""The field of `NodeCounts` that counts each kind of request, refused ones included."""


class Answerer:
    """Answers each request once: immediately, or, for a ping-req, when its target has answered."""

    def __init__(
        self,
        core: Core,
        rows: Rows,
        namesakes: Namesakes,
        asker: Asker,
        syncer: Syncer,
        scores: Scores,
    ) -> None:
        self._core = core
        self._rows = rows
        self._namesakes = namesakes
        self._asker = asker
        self._syncer = syncer
        self._scores = scores
        self._reverse_full_syncs_open = 0

    def answer(self, request: Request, token: int, now: int) -> None:
        """Answer *request* under *token*, now or later."""
        count = RECEIVED_COUNTS[type(request)]
        setattr(self._core.counts, count, getattr(self._core.counts, count) + 1)
        refusal = self._refusal_of_stranger(request) or self._refusal_for_now(request)
        if refusal is not None:
            self._core.counts.refusals += 1
            self._core.emit(AnswerPeer(token, refusal))
            return
        match request:
            case Ping():
                self._pinged(request, token, now)
            case PingReq():
                self._asked_to_ping(request, token, now)
            case Join():
                self._asked_to_join(token)
            case DampReq(names=names):
                scores = tuple((name, self._scores.of(name, now)) for name in names)
                self._core.emit(AnswerPeer(token, DampAck(scores)))
            case Sync():
                self._core.emit(AnswerPeer(token, self._syncer.answer(request, now)))
            case NameReq():
                self._asked_for_name(request, token, now)
            case _:
                assert_never(request)

    def _refusal_of_stranger(self, request: Request) -> Refusal | None:
        # A stranger learns nothing, not even our cluster's name. In the ringpop dialect it learns
        # the name, which every message has and operators look for.
        core = self._core
        if request.cluster not in (None, core.cluster):
            theirs = request.cluster or ""
            core.emit(StrangerRefused(request.source_address, theirs, core.cluster))
            named = f"the app here is {core.cluster!r}, not {theirs!r}"
            return Refusal("wrong-cluster", OTHER_CLUSTER if core.dialect.extends else named)
        if isinstance(request, _RINGLESS):
            return None
        if request.ring_points not in (None, core.ring_points):
            message = (
                f"cluster {core.cluster!r} has {core.ring_points} ring points a member, "
                f"{request.source} has {request.ring_points}: set --ring-points to one number"
            )
            return Refusal("ring-points", message)
        return None

    def _refusal_for_now(self, request: Request) -> Refusal | None:
        core = self._core
        if core.name_lost:
            why = f"{core.name} belongs to another process; this one is about to end"
            return Refusal("name-taken", why)
        if isinstance(request, NameReq):
            # A process that is ending releases its name, so that its replacement can join.
            return Refusal("leaving", f"{core.name} is about to end") if core.evicting else None
        if core.name_in_doubt:
            return Refusal("not-ready", "node is finding out whether its name is free")
        if isinstance(request, Join):
            by_itself = (request.source, request.source_address) == (core.name, core.address)
            return Refusal("self-join", f"{core.name} asked itself to join") if by_itself else None
        # Until our join is done, our own row may have a name that belongs to another process.
        early = core.dialect.answers_while_joining and not isinstance(request, Sync)
        if core.ready or early:
            return None
        return Refusal("not-ready", "node is not ready to handle requests")

    def _pinged(self, ping: Ping, token: int, now: int) -> None:
        core = self._core
        # Its news comes first, so that our checksum in the answer counts it.
        if ping.changes:  # few pings have any
            self._rows.update(ping.changes, now, via="ping", told_by=ping.source)
        news = self._news_of_its_name(ping, now)
        changes, is_full_sync = self._changes_for(ping)
        if news:
            changes += tuple(change for change in news if change not in changes)
        ack = Ack(core.name, core.local.incarnation, core.members.checksum, changes)
        core.emit(AnswerPeer(token, ack))
        if is_full_sync and ping.source_address != NOWHERE:
            self._begin_reverse_full_sync(ping.source_address, now)
        if ping.digest is not None and ping.digest != core.digest:
            core.emit(DigestDiffers(ping.source, ping.digest))

    def _news_of_its_name(self, ping: Ping, now: int) -> tuple[MemberChange, ...]:
        # If our row of its name overrides its own and has another address, the pinger must receive
        # it, to ask there. If the name is ours, we may have to ask, too.
        row = self._core.members.get(ping.source)
        if row is None or not self._core.dialect.extends:
            return ()
        if row.port == ping.source_port and row.host == ping.source_host:
            return ()
        pinger = Member(ping.source, *ping.source_address, ping.source_incarnation)
        if row.name == self._core.name and self._namesakes.pinged_by(pinger, now):
            self._rows.hear_of_namesake(pinger, now)
        claimed = row.status.reachable and overrides(row, pinger)
        return (self._rows.own_change(row),) if claimed else ()

    def _asked_to_ping(self, request: PingReq, token: int, now: int) -> None:
        self._rows.update(request.changes, now, via="ping-req", told_by=request.source)
        target = self._core.members.get(request.target)
        if target is None or target.address != request.target_address:
            target = Member(request.target, *request.target_address, 0)

        # The asker waits for our nack, so our own health must not lengthen the time-out.
        timeout_us = microseconds(self._core.config.ping_timeout_s)
        ping = PeerPing(request, token, target, now + timeout_us)
        if request.target_address == NOWHERE:
            self._answer_ping(ping, Failure("failed", "the request names no target"))
        else:
            self._asker.ping(target, ping, now, timeout_us=timeout_us)

    def pinged_for_peer(self, ping: PeerPing, outcome: Outcome, now: int) -> None:
        """Answer the ping-req of *ping*. If the connection broke, first ping again on a new one.

        Only the second ping shows whether the process is gone or just the connection.
        """
        left_us = ping.gives_up_at - now
        lost = not isinstance(outcome, Ack) and failure_of(outcome).reason == "lost"
        again = lost and not ping.is_second and left_us > 0 and not self._core.stopped
        if again and self._core.config.evidence:
            second = replace(ping, is_second=True)
            self._asker.ping(ping.target, second, now, timeout_us=left_us)
        else:
            self._answer_ping(ping, outcome)

    def _answer_ping(self, ping: PeerPing, outcome: Outcome) -> None:
        request = ping.request
        changes, _ = self._changes_for(request)
        failure = "" if isinstance(outcome, Ack) else failure_of(outcome).reason
        ack = PingReqAck(request.target, not failure, changes, failure)
        self._core.emit(AnswerPeer(ping.token, ack))

    def _asked_for_name(self, request: NameReq, token: int, now: int) -> None:
        namesake = self._namesakes.asked_by(request, now)
        if namesake is not None:
            self._rows.hear_of_namesake(namesake, now)
        self._core.emit(AnswerPeer(token, self._namesakes.ack()))

    def _asked_to_join(self, token: int) -> None:
        # The joiner is not added here: it announces itself by its pings, once its name is settled.
        core = self._core
        rows, members = self._rows_for_joiner(), core.members
        more, incarnation = len(rows) < len(members), core.local.incarnation
        ack = JoinAck(core.cluster, core.name, incarnation, members.checksum, rows, more)
        core.emit(AnswerPeer(token, ack))

    def _rows_for_joiner(self) -> tuple[Member, ...]:
        # If our list is too long for a message, chance picks the rows, reachable members first, so
        # that not all newcomers turn to the same members.
        core, members = self._core, self._core.members
        count = core.config.sync_rows_max if core.config.delta_sync else len(members)
        if len(members) <= count:
            return tuple(members)
        chosen = [core.local, *members.random_pingable(count - 1)]
        if len(chosen) < count:
            others = [m for m in members if m.name != core.name and not members.is_pingable(m)]
            chosen += core.rng.sample(others, count - len(chosen))
        return tuple(chosen)

    def _changes_for(self, request: Ping | PingReq) -> tuple[tuple[MemberChange, ...], bool]:
        """Return the changes to answer *request* with, and whether they are the whole list."""
        core, dissemination = self._core, self._rows.dissemination
        if not core.ready:
            return (), False  # our name may belong to another process
        changes = dissemination.for_peer(request.source, request.source_incarnation)
        dissemination.count_sent(changes)
        if changes or core.config.delta_sync or request.checksum == core.members.checksum:
            return changes, False  # with `delta_sync` the pinger begins a sync
        core.counts.full_syncs += 1
        return tuple(self._rows.listed_change(member) for member in core.members), True

    def _begin_reverse_full_sync(self, peer: Address, now: int) -> None:
        counts, config = self._core.counts, self._core.config
        if self._reverse_full_syncs_open >= config.reverse_full_syncs_max:
            counts.reverse_full_syncs_omitted += 1
            return
        self._reverse_full_syncs_open += 1
        counts.reverse_full_syncs += 1
        self._asker.fetch_list(peer, config.join_timeout_s, ReverseList(), now)

    def list_fetched(self, outcome: Outcome, now: int) -> None:
        """Apply the list that a reverse full sync fetched, if it arrived."""
        self._reverse_full_syncs_open -= 1
        if isinstance(outcome, JoinAck):
            self._rows.update_from_list(outcome, now, via="full-sync")
