"""Node: one member of a cluster as a state machine. Read this file first.

A driver owns a node. It passes in what arrived (`receive`), lets the node act when its deadline
has come (`advance`, at `next_deadline`), and carries out the effects that both return, in order.
Instants are microseconds of a clock that never goes backwards: of the driver's at the surface.
Inside, the node's own clock stands still while the node does not run (`Core.enter`).

`docs/protocol.md` describes the protocol. The parts, each in a module of its own, share one `Core`.
Each uses those below it; none uses the node:

    Joiner                                   which hosts to ask for the list
    Prober  Healer  Damper  Answerer         when to ask which member, and what to answer
            Passes                           what the sides of a split send each other
            Asker                            requests to peers, and the news in the answers
            Syncer                           how two lists become one
            Rows                             what we believe, and what follows from a change of it
    Scores  Namesakes  Periods               flappers; processes of our name; when to probe
            Calls                            open calls
            Core                             our identity, the timers, the effects so far

What they wait for is data (`waits.py`): deadlines, and what calls were made for. The node
dispatches both to the parts (`_do`, `_end`).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final, assert_never

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim import waits
from ringpop_py.member.swim.answerer import Answerer
from ringpop_py.member.swim.asker import Asker
from ringpop_py.member.swim.calls import Calls
from ringpop_py.member.swim.core import Core
from ringpop_py.member.swim.damper import Damper, DampState
from ringpop_py.member.swim.effects import Announced, Effect, Evicted
from ringpop_py.member.swim.healer import Healer
from ringpop_py.member.swim.joiner import Joiner
from ringpop_py.member.swim.member import DRAINING, DRAINING_LABEL, Labels, Member, Status
from ringpop_py.member.swim.messages import (
    Answered,
    Asked,
    Disconnected,
    Failed,
    Failure,
    Input,
    Quiet,
)
from ringpop_py.member.swim.namesakes import Namesakes, Settled
from ringpop_py.member.swim.passes import Passes
from ringpop_py.member.swim.periods import Periods
from ringpop_py.member.swim.prober import Prober
from ringpop_py.member.swim.rounds import JoinRounds
from ringpop_py.member.swim.rows import Rows
from ringpop_py.member.swim.scores import Scores
from ringpop_py.member.swim.syncer import Syncer
from ringpop_py.member.swim.vouching import Vouching

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.base.config.settings import GossipConfig
    from ringpop_py.base.dialect import Dialect
    from ringpop_py.member.swim.calls import Outcome


ANNOUNCED_MAX: Final = 32
"""How many members an announcement pings at most; the others receive the news by gossip."""


class Node:
    """One member of a cluster: itself, and what it believes about the others.

    Args:
        local: our row; its incarnation is the wall clock's milliseconds at *now*, so that a
            restart overrides what was said about us before.
        cluster: the name that peers must have, too.
        rng: the only source of chance.
        now: the instant of creation, on the driver's clock.
    """

    def __init__(
        self,
        local: Member,
        *,
        cluster: str,
        ring_points: int,
        dialect: Dialect,
        config: GossipConfig,
        rng: random.Random,
        now: int,
    ) -> None:
        core = self._core = Core(local, cluster, ring_points, dialect, config, rng, now)
        self.cluster = cluster
        self.ring_points = ring_points
        self.dialect = dialect
        self.members = core.members
        self.counts = core.counts
        rounds = JoinRounds(local.address, config, rng)
        calls = self._calls = Calls(core)
        scores = Scores(core)
        periods = self._periods = Periods(core, now)
        namesakes = self._namesakes = Namesakes(core, calls)
        rows = self._rows = Rows(core, scores, namesakes, Vouching(core, calls), periods)
        syncer = self._syncer = Syncer(core, calls, rows)
        asker = self._asker = Asker(core, calls, rows, syncer)
        self._damper = Damper(core, scores, rows, calls)
        self._answerer = Answerer(core, rows, namesakes, asker, syncer, scores)
        passes = self._passes = Passes(core, rows, asker, syncer)
        self._prober = prober = Prober(core, rows, asker, periods)
        self._healer = healer = Healer(core, rows, asker, passes, rounds)
        self._joiner = Joiner(core, rows, asker, syncer, rounds, prober, healer)

    # The state of a node.

    def __repr__(self) -> str:
        core, local = self._core, self.local
        counted = Counter(member.status.label for member in self.members)
        members = ", ".join(f"{count} {status}" for status, count in counted.items())
        phase = "name lost" if core.name_lost else "evicting" if core.evicting else None
        phase = phase or ("ready" if core.ready else "joining")
        calls = f"{len(self._calls)} calls, next deadline {self.next_deadline}"
        return f"<Node {local.name} at {local.address}, {phase}; members: {members}; {calls}>"

    @property
    def under_way(self) -> dict[str, int]:
        """How much of each kind of work has not ended; all 0 some time after `stop_gossip`."""
        return {
            "calls": len(self._calls),
            **self._prober.under_way,
            "batches": len(self._asker.batches),
            "syncs": self._syncer.open_count,
            "heal tries": len(self._healer.trying),
            "inquiries": len(self._namesakes.inquiries) + len(self._rows.vouching),
            "votes": int(self._damper.vote is not None),
        }

    @property
    def local(self) -> Member:
        """Our own row."""
        return self.members.local

    @property
    def config(self) -> GossipConfig:
        """See `Core.config`."""
        return self._core.config

    @property
    def ready(self) -> bool:
        """Whether the first join is done."""
        return self._core.ready

    @property
    def gossiping(self) -> bool:
        """Whether the protocol periods run."""
        return self._periods.running

    @property
    def evicting(self) -> bool:
        """Whether we are leaving."""
        return self._core.evicting

    @property
    def name_in_doubt(self) -> bool:
        """Whether we are joining, and do not know yet whether our name is free."""
        return self._core.name_in_doubt

    @property
    def name_lost(self) -> bool:
        """Whether our name belongs to another process: this one should end."""
        return self._core.name_lost

    @property
    def period_us(self) -> int:
        """The current protocol period, as `Pace` computes it, times the factor of local health."""
        return self._periods.length_us

    @property
    def health_score(self) -> int:
        """Our local health: 0 is healthy, and more is slower; see `Health`."""
        return self._core.health.score

    def timing(self) -> dict[str, float]:
        """Return how long the last probes took, in milliseconds, under Ringpop's names."""
        return self._periods.pace.timing()

    @property
    def silent_hosts(self) -> dict[Address, str]:
        """The hosts that did not answer when they were last asked, and why."""
        return self._joiner.rounds.silences

    @property
    def healing(self) -> bool:
        """Whether a run of healing is open; `Healed` ends it."""
        return self._healer.running

    @property
    def reapable(self) -> list[Member]:
        """The members that are gone: faulty ones, and in the native dialect those that left."""
        gone = (Status.FAULTY, Status.LEAVE) if self.dialect.retires_leavers else (Status.FAULTY,)
        return [m for m in self.members if m.status in gone and m.name != self.local.name]

    def damp_states(self, now: int) -> list[DampState]:
        """Return the members that have changed lately or were ever judged, by name."""
        return self._damper.states(self._core.clock.instant(now))

    def damp_state(self, member: Member, now: int) -> DampState:
        """Return how much *member* has changed lately, and whether it is damped."""
        return self._damper.state(member, self._core.clock.instant(now))

    # The surface of a driver.

    @property
    def digest(self) -> int:
        """A digest of 64 bits of the application's state, set by the driver; at first 0.

        Our pings carry it. The protocol only compares it: if a peer's differs, the driver has to
        compare the state itself (`DigestDiffers`).
        """
        return self._core.digest

    @digest.setter
    def digest(self, digest: int) -> None:
        self._core.digest = digest

    @property
    def next_deadline(self) -> int | None:
        """The instant at which to call `advance`; None if no timer is set."""
        at = self._core.timers.next_at
        return None if at is None else at + self._core.clock.lost_us

    def start(self, hosts: Sequence[Address], now: int) -> list[Effect]:
        """Join the cluster of the seeds *hosts*, which may include our own address."""
        self._joiner.start(hosts, self._core.enter(now))
        return self._core.take_effects()

    def hosts_read(self, hosts: Sequence[Address], now: int) -> list[Effect]:
        """Replace the hosts by *hosts*, which discovery returned.

        A driver that cannot read discovery does not call this, and the known hosts stay.
        """
        now = self._core.enter(now)
        self._joiner.set_hosts(hosts, now)
        self._healer.hosts_read(now)
        self._healer.plan_look(now, rests=self._periods.rests)
        return self._core.take_effects()

    def receive(self, message: Input, now: int) -> list[Effect]:
        """Handle one event from outside."""
        now = self._core.enter(now)
        match message:
            case Asked(token, request):
                self._answerer.answer(request, token, now)
            case Answered(call_id, response):
                self._prober.hear(now)  # even a late answer shows that a peer reaches us
                self._close(call_id, response, now)
            case Failed(call_id, reason, detail):
                self._close(call_id, Failure(reason, detail), now)
            case Disconnected(address):
                self._prober.probe_soon(address, now)
            case Quiet(address):
                self._prober.probe_soon(address, now, quiet=True)
            case _:
                assert_never(message)
        for name in self._rows.take_condemned():  # one that lives can refute
            if self._core.may_speak:
                self._prober.exchange(name, now)
        return self._core.take_effects()

    def advance(self, now: int) -> list[Effect]:
        """Do what is due at *now*."""
        now, timers = self._core.enter(now), self._core.timers
        while (due := timers.take(now)) is not None:
            self._do(due, now)
        return self._core.take_effects()

    def note_suspension(self, lasted_us: int, now: int) -> list[Effect]:
        """Note that the machine was suspended for *lasted_us*, which *now* does not count.

        Call it before any other input that follows the suspension.
        """
        self._core.note_suspension(lasted_us, now)
        return self._core.take_effects()

    def doubt(self, name: str, now: int) -> list[Effect]:
        """Probe *name* immediately, with helpers, because work here depends on whether it lives."""
        now, member = self._core.enter(now), self.members.get(name)
        if member is not None and self._core.may_speak:
            self._prober.probe_soon(member.address, now, quiet=True)
        return self._core.take_effects()

    def is_silent(self, name: str) -> bool:
        """Return whether the member *name* is suspect, and we and others have not reached it.

        That is far less than `Status.FAULTY`: it may be back in a moment.
        """
        return self._rows.is_witnessed(name)

    def exchange(self, name: str, now: int) -> list[Effect]:
        """Exchange news with *name*, whose view of the cluster differs from ours, by a ping.

        There is one such ping at a time, however many requests the peer refuses meanwhile.
        """
        now = self._core.enter(now)
        if self._core.may_speak:
            self._prober.exchange(name, now)
        return self._core.take_effects()

    # The surface of an operator.

    def leave(self, now: int) -> list[Effect]:
        """Leave the ring, but go on answering and gossiping."""
        self._rows.set_local_status(Status.LEAVE, self._core.enter(now))
        return self._core.take_effects()

    def rejoin(self, now: int) -> list[Effect]:
        """Come back after `leave`; do nothing if we have not left, or once we evict ourselves."""
        if self.local.status is not Status.ALIVE and not self.evicting:
            self._rows.set_local_status(Status.ALIVE, self._core.enter(now))
        return self._core.take_effects()

    def set_labels(self, labels: Labels, now: int) -> list[Effect]:
        """Replace our labels by *labels*, which `member.checked_labels` must have returned."""
        self._rows.set_local(replace(self.local, labels=labels), self._core.enter(now))
        return self._core.take_effects()

    def drain(self, now: int) -> list[Effect]:
        """Own no keys, but go on serving, until `undrain`; others see it by a label."""
        return self._label_draining(DRAINING, now)

    def undrain(self, now: int) -> list[Effect]:
        """Own keys again after `drain`."""
        return self._label_draining(None, now)

    def _label_draining(self, label: tuple[str, str] | None, now: int) -> list[Effect]:
        others = [(key, value) for key, value in self.local.labels if key != DRAINING_LABEL]
        labels = tuple(sorted([*others, label] if label else others))
        if labels == self.local.labels:
            return []
        return self.set_labels(labels, now)

    def clear_damping(self, name: str, now: int) -> list[Effect]:
        """Release the member *name* on all nodes, and forget our score of it."""
        self._damper.clear(name, self._core.enter(now))
        return self._core.take_effects()

    def reap(self, now: int, *members: Member) -> list[Effect]:
        """Declare *members* tombstones; without them, all that are `reapable`."""
        now = self._core.enter(now)
        for member in members or self.reapable:
            self._rows.declare(replace(member, status=Status.TOMBSTONE), now, via="reap")
        return self._core.take_effects()

    def start_gossip(self, now: int) -> list[Effect]:
        """Begin the protocol periods now; do nothing if they already run."""
        self._joiner.begin_gossip(self._core.enter(now))
        return self._core.take_effects()

    def stop_gossip(self, _now: int) -> list[Effect]:
        """Stop the protocol periods and healing; go on answering."""
        self._periods.stop()
        self._healer.stop()
        return self._core.take_effects()

    def configure(self, config: GossipConfig, _now: int) -> list[Effect]:
        """Use *config* from now on, apart from what is fixed at the start (see `Core.config`)."""
        self._core.config = config
        return self._core.take_effects()

    def heal(self, now: int) -> list[Effect]:
        """Begin a run of healing, which ends with `Healed`; do nothing if one is open."""
        self._healer.begin(self._core.enter(now))
        return self._core.take_effects()

    def tick(self, now: int) -> list[Effect]:
        """Probe the next member now, whether or not the protocol periods run."""
        now = self._core.enter(now)
        if self._core.may_speak:
            self._prober.probe_next(now)
        return self._core.take_effects()

    def announce(self, now: int) -> list[Effect]:
        """Ping up to `ANNOUNCED_MAX` members now; emit `Announced` when all of them are done.

        Use it for news that should not wait for the next periods, for example that we drain.
        """
        if self._core.stopped or not self._core.may_speak:
            self._core.emit(Announced())
        else:
            self._asker.ping_some(ANNOUNCED_MAX, Announced(), self._core.enter(now))
        return self._core.take_effects()

    def evict_self(self, now: int) -> list[Effect]:
        """Leave, ping a share of the members to say so, then emit `Evicted`; only once."""
        if self.evicting:
            return []
        if not self._core.may_speak:
            self._core.evicting = True
            self._core.emit(Evicted())  # a farewell would be about the process that has the name
            return self._core.take_effects()
        now = self._core.enter(now)
        leaves = self.dialect.leaves_on_eviction
        self._rows.set_local_status(Status.LEAVE if leaves else Status.FAULTY, now)
        self._core.evicting = True
        self._fall_silent()
        pingable = self.members.pingable_count
        share = math.ceil(pingable * self.config.eviction_ping_ratio)
        # More members than a change rides times would only repeat the news.
        count = min(self._rows.dissemination.maximum, pingable, share)
        self._asker.ping_some(count, Evicted(), now)
        return self._core.take_effects()

    # What involves several parts.

    def _fall_silent(self) -> None:
        self._periods.stop()
        self._healer.stop()
        self._joiner.stop()

    def _name_settled(self, settled: Settled | None, now: int) -> None:
        if self._core.name_lost:
            self._fall_silent()
        if settled is None:
            return
        if settled.outbid is not None:
            self._rows.outbid(settled.outbid, now)
        self._joiner.name_settled(now)
        if settled.yields and self._core.ready:
            self._asker.ping_some(ANNOUNCED_MAX, None, now)

    # What the parts waited for.

    def _do(self, due: waits.Deadline, now: int) -> None:  # noqa: C901 - one case a kind
        match due:
            case waits.Due.PERIOD:
                self._prober.begin_period(now)
                self._healer.plan_look(now, rests=self._periods.rests)
            case waits.CallDue(call_id):
                self._close(call_id, Failure("timeout"), now)
            case waits.StatusDue(name):
                self._rows.status_due(name, now)
            case waits.Due.HEAL_TURN:
                self._healer.look(now)
            case waits.HealTryDue(target, passes_left):
                self._healer.attempt(target, passes_left, now)
            case waits.Due.JOIN:
                self._joiner.later_round(now)
            case waits.SecondPingDue(probe):
                self._prober.ping_again(probe, now)
            case waits.ScoreDue(name):
                self._damper.look(name, now)
            case waits.Due.VOTE:
                self._damper.begin_vote(now)
            case waits.Due.HEAL_CHANCE:
                self._healer.begin_by_chance(now)
            case waits.Due.HEAL_HOSTS:
                self._healer.begin_if_apart(now)
            case _:
                assert_never(due)

    def _close(self, call_id: int, outcome: Outcome, now: int) -> None:
        then = self._calls.close(call_id)
        if then is not None:
            self._end(then, outcome, now)

    def _end(  # noqa: C901, PLR0912 - one case a kind
        self, then: waits.Continuation, outcome: Outcome, now: int
    ) -> None:
        match then:
            case waits.PingCall():
                ended = self._asker.pinged(then, outcome, now)
                if ended is not None:
                    self._end(then.then, ended, now)
            case waits.ProbePing(probe):
                self._prober.pinged(probe, outcome, now)
            case waits.PingReqCall():
                self._asker.pinged_through(then, outcome, now)
                self._end(then.then, outcome, now)
            case waits.ListCall():
                self._end(then.then, self._asker.list_fetched(then, outcome), now)
            case waits.SyncCall(run):
                run_ended = self._syncer.answered(run, outcome, now)
                if run_ended is not None:
                    self._end(*run_ended, now)
            case waits.ProbeHelp(probe, helper):
                self._prober.helped(probe, helper, outcome, now)
            case waits.PeerPing():
                self._answerer.pinged_for_peer(then, outcome, now)
            case waits.ExchangePing(name):
                self._prober.exchanged(name)
            case waits.BatchPing(batch):
                self._asker.batch_pinged(batch)
            case waits.PeerSync(peer):
                self._syncer.synced(peer)
            case waits.ReverseList():
                self._answerer.list_fetched(outcome, now)
            case waits.VoteCall():
                self._damper.voted(then, outcome, now)
            case waits.NameCall(address):
                self._name_settled(self._namesakes.answered(address, outcome, now), now)
            case waits.VouchCall():
                self._rows.vouched(then, outcome, now)
            case waits.NameHelp():
                self._name_settled(self._namesakes.helped(then, outcome), now)
            case waits.JoinList(host):
                self._joiner.answered(host, outcome, now)
            case waits.JoinRest():
                self._joiner.rest_fetched(outcome, now)
            case waits.HealList(heals):
                self._healer.list_fetched(heals, outcome, now)
            case waits.HealRows(heals) | waits.HealLast(heals):
                self._healer.went_on(heals, self._passes.go_on(then, outcome, now), now)
            case _:
                assert_never(then)
