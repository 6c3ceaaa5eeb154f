"""Joining: when to ask for the member list, and what follows from the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim.calls import silence_of
from ringpop_py.member.swim.effects import HostSilent, HostsWanted, JoinRejected, Ready
from ringpop_py.member.swim.messages import Failure, JoinAck, Refusal, SyncAck
from ringpop_py.member.swim.waits import Due, JoinList, JoinRest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.asker import Asker
    from ringpop_py.member.swim.calls import Outcome
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.healer import Healer
    from ringpop_py.member.swim.prober import Prober
    from ringpop_py.member.swim.rounds import JoinRounds
    from ringpop_py.member.swim.rows import Rows
    from ringpop_py.member.swim.syncer import Syncer

FATAL_REFUSALS: Final = frozenset({"ring-points"})


class Joiner:
    """Asks hosts in rounds until we are ready; in `native`, until each has answered or is a member.

    When the first join is done, the protocol periods and healing begin. With `fast_heal`, healing
    handles the lists that arrive later: they may come from a side that considers some of our
    members dead.
    """

    def __init__(
        self,
        core: Core,
        rows: Rows,
        asker: Asker,
        syncer: Syncer,
        rounds: JoinRounds,
        prober: Prober,
        healer: Healer,
    ) -> None:
        self._core = core
        self._rows = rows
        self._asker = asker
        self._syncer = syncer
        self.rounds = rounds
        self._prober = prober
        self._healer = healer
        self._cut_short: list[Address] = []
        self._waits_for_name = False
        self._timer = 0
        self._rejected: JoinRejected | None = None

    def start(self, hosts: Sequence[Address], now: int) -> None:
        """Begin the first round."""
        self.rounds.set_hosts(hosts)
        self._next_round(now)

    def set_hosts(self, hosts: Sequence[Address], now: int) -> None:
        """Replace the hosts; if they differ, and hosts are still to be asked, begin a round."""
        core = self._core
        if not self.rounds.set_hosts(hosts):
            return
        asks = not core.stopped and (core.dialect.joins_alone or not core.ready)
        if asks and not self.rounds.round_open:
            self.stop()
            self._next_round(now)

    def stop(self) -> None:
        """Cancel the next round."""
        self._core.timers.cancel(self._timer)

    def later_round(self, now: int) -> None:
        """Begin a round that was planned, and have discovery read for the one after it."""
        self._core.emit(HostsWanted())
        self._next_round(now)

    def _next_round(self, now: int) -> None:
        core = self._core
        known = {m.address for m in core.members} if core.dialect.joins_alone else set()
        group = self.rounds.next_group(known)
        self._rejected = None
        for host in group:
            self._asker.fetch_list(host, core.config.join_timeout_s, JoinList(host), now)
        if not group:
            self._round_done(now)

    def answered(self, host: Address, outcome: Outcome, now: int) -> None:
        """Apply the answer of *host*, or note that it gave none."""
        self.rounds.done(host, answered=isinstance(outcome, JoinAck))
        if isinstance(outcome, JoinAck):
            self._take_in(host, outcome, now)
        else:
            self._not_accepted(host, outcome, now)
        if not self.rounds.round_open:
            self._round_done(now)

    def _take_in(self, host: Address, list_: JoinAck, now: int) -> None:
        if self._core.ready and self._core.config.fast_heal:
            self._healer.take_in(host, list_, now)
        else:
            self._rows.update_from_list(list_, now, via="join")
            if list_.more:
                self._cut_short.append(host)

    def _not_accepted(self, host: Address, outcome: Outcome, now: int) -> None:
        if isinstance(outcome, Refusal) and outcome.kind == "self-join":
            if self._core.config.fast_heal:
                self.rounds.leave_out(host)
            return
        if isinstance(outcome, Refusal) and outcome.kind in FATAL_REFUSALS:
            self._rejected = JoinRejected(host, outcome.message, fatal=True)
        if isinstance(outcome, Failure) and outcome.reason == "untrusted":
            # It is there, and has another key. Alone, this node would take over what it has.
            self._rejected = JoinRejected(host, outcome.detail, fatal=True)
        why = silence_of(outcome)
        if self.rounds.silent_for(host, why, now):
            self._core.emit(HostSilent(host, why))

    def _round_done(self, now: int) -> None:
        core, rounds = self._core, self.rounds
        if core.stopped:
            return
        if self._cut_short:
            # One complete list is enough: lists of members that gossip with each other hardly
            # differ. So the rest comes from one of the hosts that could send only a part.
            self._syncer.begin(self._cut_short.pop(0), JoinRest(), now)
            return
        if self._rejected and not core.ready and rounds.answered_count == 0:
            # Every host that answered refuses us for good. If one accepted, the others would be
            # the ones that are set up wrong.
            core.emit(self._rejected)
            return
        self._waits_for_name = core.name_in_doubt
        if self._waits_for_name:
            return
        if not core.ready and (rounds.enough or core.dialect.joins_alone):
            core.ready = True
            core.emit(Ready(rounds.answered_count))
            self.begin_gossip(now)
        if self._joins_left():
            self.stop()
            self._timer = core.timers.set(now + rounds.delay_us(), Due.JOIN)

    def begin_gossip(self, now: int) -> None:
        """Begin the protocol periods and healing, unless they already run or must not."""
        if self._prober.start(now):
            self._healer.plan(now)

    def name_settled(self, now: int) -> None:
        """Continue, if we wait for our name and it is no longer in doubt."""
        if self._waits_for_name and not self._core.name_in_doubt:
            self._round_done(now)

    def rest_fetched(self, outcome: Outcome, now: int) -> None:
        """Finish the round; if the sync failed, first try another host whose list was cut short."""
        if isinstance(outcome, SyncAck):
            self._cut_short.clear()
        if not self.rounds.round_open:
            self._round_done(now)

    def _joins_left(self) -> bool:
        if not self._core.dialect.joins_alone:
            return not self._core.ready
        known = {member.address for member in self._core.members}
        return bool(self.rounds.silent(known))
