"""Node: one member of a cluster as a state machine. Read this file first.

A driver owns a node. It tells it what arrived (`receive`), lets it act when a time has come
(`advance`, at `next_deadline`), and carries out the effects that both return, in their order.
Instants are integers: microseconds of a clock that never goes backwards. Inside, a node's own
clock stands still while it is not run (`Core.enter`): at the surface, instants are the driver's.

The protocol is SWIM as Ringpop runs it: every period the next member of the rotation is pinged;
one that does not answer is pinged through helpers; one that they cannot reach either becomes
suspect, and unless it refutes, faulty. What changed rides on pings and their answers.

The parts, each in a module of its own, share one `Core`; none knows the node:

    Joiner  Prober  Healer  Damper  Answerer when to ask whom, and what to answer
               Asker                         how to ask, and what to take in of each answer
          Namesakes  Syncer                  whose name it is; how two lists become one
          Rows        Calls                  what we believe; whom we wait for
               Core                          who we are, the timers, the effects so far
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from ringpop_py.swim.answerer import Answerer
from ringpop_py.swim.asker import Asker
from ringpop_py.swim.calls import Calls
from ringpop_py.swim.core import Core
from ringpop_py.swim.damper import Damper, DampState, Scores
from ringpop_py.swim.effects import Announced, Effect, Evicted
from ringpop_py.swim.healer import Healer
from ringpop_py.swim.joiner import Joiner, JoinRounds
from ringpop_py.swim.member import DRAINING, DRAINING_LABEL, Labels, Member, Status
from ringpop_py.swim.messages import (
    Answered,
    Asked,
    Disconnected,
    Failed,
    Failure,
    Input,
)
from ringpop_py.swim.namesakes import Namesakes
from ringpop_py.swim.prober import Prober
from ringpop_py.swim.rows import Rows
from ringpop_py.swim.syncer import Syncer

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from ringpop_py.address import Address
    from ringpop_py.config.settings import GossipConfig
    from ringpop_py.dialect import Dialect
    from ringpop_py.swim.calls import Outcome


ANNOUNCED_MAX: Final = 32
"""So many members `Node.announce` pings at most; the others get the news by gossip."""


class Node:
    """Ourselves, and what we believe of the others.

    Args:
        local: our row; its incarnation is the wall clock's milliseconds at *now*, so that a
            restart outbids what was said of us before.
        cluster: the name that peers must have, too.
        rng: the only source of chance.
        now: the instant of making, on the driver's clock.
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
        core = self._core = Core(
            local,
            cluster=cluster,
            ring_points=ring_points,
            dialect=dialect,
            config=config,
            rng=rng,
            now=now,
        )
        self.cluster = cluster
        self.ring_points = ring_points
        self.dialect = dialect
        self.members = core.members
        self.counts = core.counts
        rounds = JoinRounds(local.address, config, rng)
        self._calls = Calls(core)
        self._rows = Rows(core)
        self._namesakes = Namesakes(core, self._rows, self._calls)
        self._namesakes.on_lost = self._fall_silent
        self._namesakes.on_kept = self._spread_the_word
        self._syncer = Syncer(core, self._calls, self._rows)
        self._asker = Asker(core, self._calls, self._rows, self._syncer)
        scores = Scores(core)
        self._damper = Damper(core, self._rows, self._calls, scores)
        self._rows.on_change = self._damper.row_changed
        self._answerer = Answerer(
            core, self._rows, self._namesakes, self._asker, self._syncer, scores
        )
        self._prober = Prober(core, self._rows, self._asker, now)
        self._healer = Healer(core, self._rows, self._asker, self._syncer, rounds)
        self._joiner = Joiner(
            core,
            self._rows,
            self._namesakes,
            self._asker,
            self._syncer,
            rounds,
            self._begin_gossip,
            self._healer.met,
        )

    # The state of a node.

    @property
    def local(self) -> Member:
        """Our own row."""
        return self.members.local

    @property
    def config(self) -> GossipConfig:
        """The timing. What is set counts from the next use on, where it is not fixed at start."""
        return self._core.config

    @property
    def ready(self) -> bool:
        """Whether the first join is done."""
        return self._core.ready

    @property
    def gossiping(self) -> bool:
        """Whether the protocol periods run."""
        return self._prober.gossiping

    @property
    def evicting(self) -> bool:
        """Whether we are on our way out."""
        return self._core.evicting

    @property
    def name_in_doubt(self) -> bool:
        """Whether we are joining, and are finding out whether our name is free."""
        return self._core.name_in_doubt

    @property
    def name_lost(self) -> bool:
        """Whether our name belongs to another process: this one should end."""
        return self._core.name_lost

    @property
    def period_us(self) -> int:
        """The protocol period as it is now: twice the median probe, but at least the set one.

        And so many times longer as our own health demands (`health`).
        """
        return self._prober.period_us

    def timing(self) -> dict[str, float]:
        """How long the last probes took, in milliseconds, in the names that Ringpop uses."""
        return self._prober.pace.timing()

    @property
    def healing(self) -> bool:
        """Whether a run of healing is open; `Healed` ends it."""
        return self._healer.running

    @property
    def reapable(self) -> list[Member]:
        """The members that are gone: faulty, or left, where those who left retire."""
        gone = (Status.FAULTY, Status.LEAVE) if self.dialect.retires_leavers else (Status.FAULTY,)
        return [m for m in self.members if m.status in gone and m.name != self.local.name]

    def damp_states(self, now: int) -> list[DampState]:
        """The members that have changed lately, or were judged for it; by name."""
        return self._damper.states(self._core.instant(now))

    def damp_state(self, member: Member, now: int) -> DampState:
        """How much *member* has changed lately, and what came of it."""
        return self._damper.state(member, self._core.instant(now))

    # The surface of a driver.

    @property
    def digest(self) -> int:
        """What the driver says that its application knows, in 64 bits; 0 until it says something.

        It rides on our pings. Membership knows no more of it than whether a peer's is the same:
        if it is not, the driver is asked to compare what lies behind (`DigestDiffers`).
        """
        return self._core.digest

    @digest.setter
    def digest(self, digest: int) -> None:
        self._core.digest = digest

    @property
    def next_deadline(self) -> int | None:
        """When `advance` has something to do, if nothing arrives before."""
        at = self._core.timers.next_at
        return None if at is None else at + self._core.lost_us

    def start(self, hosts: Sequence[Address], now: int) -> list[Effect]:
        """Join the cluster that *hosts* are seeds of; ourselves among them do no harm."""
        self._joiner.start(hosts, self._core.enter(now))
        return self._core.take_effects()

    def hosts_read(self, hosts: Sequence[Address], now: int) -> list[Effect]:
        """Discovery says *hosts*, by now: ask these from now on, the new ones at once.

        Whoever cannot read it does not call this: the hosts known before stay in force.
        """
        now = self._core.enter(now)
        self._joiner.set_hosts(hosts, now)
        self._healer.hosts_read(now)
        return self._core.take_effects()

    def receive(self, message: Input, now: int) -> list[Effect]:
        """Take in one thing that has happened outside."""
        now = self._core.enter(now)
        match message:
            case Asked(token, request):
                self._answerer.answer(request, token, now)
            case Answered(call_id, response):
                self._core.hear(now)
                self._calls.close(call_id, response, now)
            case Failed(call_id, reason, detail):
                self._calls.close(call_id, Failure(reason, detail), now)
            case Disconnected(address):
                self._prober.probe_soon(address, now)
            case _:
                assert_never(message)
        return self._core.take_effects()

    def advance(self, now: int) -> list[Effect]:
        """Do what is due at *now*."""
        self._core.timers.fire(self._core.enter(now))
        return self._core.take_effects()

    def note_suspension(self, lasted_us: int, now: int) -> list[Effect]:
        """Take note that the machine was suspended for *lasted_us*, which *now* does not count.

        Call it before anything else that happens after that.
        """
        self._core.note_suspension(lasted_us, now)
        return self._core.take_effects()

    def exchange(self, name: str, now: int) -> list[Effect]:
        """Exchange what is known with *name*, whose view of the cluster differs from ours.

        One ping at a time, however many requests the peer refuses meanwhile.
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
        """Come back after `leave`; without effect otherwise, and once we evict ourselves."""
        if self.local.status is not Status.ALIVE and not self.evicting:
            self._rows.set_local_status(Status.ALIVE, self._core.enter(now))
        return self._core.take_effects()

    def set_labels(self, labels: Labels, now: int) -> list[Effect]:
        """Replace our labels (`member.checked_labels` has seen them)."""
        self._rows.set_local(replace(self.local, labels=labels), self._core.enter(now))
        return self._core.take_effects()

    def drain(self, now: int) -> list[Effect]:
        """Own no keys any more, but go on serving, until `undrain`; a label says so."""
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
        """Release the member *name* everywhere, and have nothing against it any more."""
        self._damper.clear(name, self._core.enter(now))
        return self._core.take_effects()

    def reap(self, now: int) -> list[Effect]:
        """Make tombstones of all that are `reapable`."""
        now = self._core.enter(now)
        for member in self.reapable:
            self._rows.declare(replace(member, status=Status.TOMBSTONE), now, via="reap")
        return self._core.take_effects()

    def start_gossip(self, now: int) -> list[Effect]:
        """Begin with the protocol periods, at once; without effect where they run."""
        self._begin_gossip(self._core.enter(now))
        return self._core.take_effects()

    def stop_gossip(self, _now: int) -> list[Effect]:
        """Send no more pings of our own; go on answering."""
        self._prober.stop()
        self._healer.stop()
        return self._core.take_effects()

    def configure(self, config: GossipConfig, _now: int) -> list[Effect]:
        """Go by *config* from now on; what is fixed at the start (see `Core`) stays as it is."""
        self._core.config = config
        return self._core.take_effects()

    def heal(self, now: int) -> list[Effect]:
        """Look for sides of a split among hosts and lost members; merge; ends with `Healed`.

        While a run is open, a second one does nothing.
        """
        self._healer.begin(self._core.enter(now))
        return self._core.take_effects()

    def tick(self, now: int) -> list[Effect]:
        """Probe the next member now, whether or not the protocol periods run."""
        now = self._core.enter(now)
        if self._core.may_speak:
            self._prober.probe_next(now)
        return self._core.take_effects()

    def announce(self, now: int) -> list[Effect]:
        """Ping up to `ANNOUNCED_MAX` members now, with what there is to tell; ends in `Announced`.

        For news that should not wait for the next periods, such as that we drain.
        """
        if self._core.stopped or not self._core.may_speak:
            self._core.emit(Announced())
        else:
            self._ping_some(ANNOUNCED_MAX, Announced(), self._core.enter(now))
        return self._core.take_effects()

    def evict_self(self, now: int) -> list[Effect]:
        """Say farewell to a share of the members; `Evicted` comes when it is said.

        A second time does nothing.
        """
        if self.evicting:
            return []
        if not self._core.may_speak:
            self._core.evicting = True
            self._core.emit(Evicted())  # the process that has the name must not be taken for gone
            return self._core.take_effects()
        now = self._core.enter(now)
        leaves = self.dialect.leaves_on_eviction
        self._rows.set_local_status(Status.LEAVE if leaves else Status.FAULTY, now)
        self._core.evicting = True
        self._fall_silent()
        self._say_farewell(now)
        return self._core.take_effects()

    # What takes several parts.

    def _begin_gossip(self, now: int) -> None:
        if self.gossiping or self._core.stopped or not self._core.may_speak:
            return
        self._prober.start(now)
        self._healer.plan(now)

    def _fall_silent(self) -> None:
        """Begin nothing any more."""
        self._prober.stop()
        self._healer.stop()
        self._joiner.stop()

    def _say_farewell(self, now: int) -> None:
        pingable = self.members.pingable_count
        share = math.ceil(pingable * self.config.eviction_ping_ratio)
        count = min(self._rows.dissemination.maximum, pingable, share)
        self._ping_some(count, Evicted(), now)

    def _spread_the_word(self, now: int) -> None:
        """Tell up to `ANNOUNCED_MAX` members now what there is to tell."""
        for target in self.members.random_pingable(ANNOUNCED_MAX):
            self._asker.ping(target, _ignore, now)

    def _ping_some(self, count: int, then: Effect, now: int) -> None:
        """Ping up to *count* members at random; emit *then* when each has answered, or will not."""
        targets = self.members.random_pingable(count)
        open_count = len(targets)

        def told(_outcome: Outcome, _now: int) -> None:
            nonlocal open_count
            open_count -= 1
            if open_count == 0:
                self._core.emit(then)

        for target in targets:
            self._asker.ping(target, told, now)
        if not targets:
            self._core.emit(then)


def _ignore(_outcome: Outcome, _now: int) -> None:
    """Do nothing: whether the message arrived does not matter."""
