"""Joining: whom to ask for the member list, when, and what to make of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.swim.effects import HostsWanted, JoinRejected, Ready
from ringpop_py.swim.messages import JoinAck, Refusal, SyncAck
from ringpop_py.swim.timers import SECOND_US

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from ringpop_py.address import Address
    from ringpop_py.config.settings import GossipConfig
    from ringpop_py.swim.asker import Asker
    from ringpop_py.swim.calls import Outcome
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.namesakes import Namesakes
    from ringpop_py.swim.rows import Rows
    from ringpop_py.swim.syncer import Syncer
    from ringpop_py.swim.timers import Timer

FATAL_REFUSALS: Final = frozenset({"ring-points"})


class JoinRounds:
    """Draws groups of hosts to ask until enough have answered; never gives up.

    Hosts on other machines come first: they tell more about the network than we could see for
    ourselves. Each group is drawn without replacement from those that have not answered.
    """

    def __init__(self, local: Address, config: GossipConfig, rng: random.Random) -> None:
        self._local = local
        self._config = config
        self._rng = rng
        self._listed: frozenset[Address] = frozenset()
        self._hosts: tuple[Address, ...] = ()
        self._left: list[Address] = []
        self._answered: set[Address] = set()
        self._open: set[Address] = set()
        self._round_count = 0

    def set_hosts(self, hosts: Sequence[Address]) -> bool:
        """Ask these from now on; answers that came count on. Returns: whether that is new."""
        listed = frozenset(hosts)
        if listed == self._listed:
            return False
        self._listed = listed
        self._hosts = tuple(host for host in dict.fromkeys(hosts) if host != self._local)
        self._left = []
        self._round_count = 0
        return True

    def leave_out(self, host: Address) -> None:
        """*host* is ourselves, by another address: do not ask it until other hosts are set."""
        self._hosts = tuple(h for h in self._hosts if h != host)
        self._left = [h for h in self._left if h != host]

    @property
    def hosts(self) -> tuple[Address, ...]:
        """The hosts to ask, but ourselves."""
        return self._hosts

    @property
    def answered_count(self) -> int:
        """How many hosts have answered."""
        return len(self._answered)

    @property
    def enough(self) -> bool:
        """Whether as many hosts have answered as a join takes."""
        return self.answered_count >= min(self._config.join_size, len(self._hosts))

    @property
    def round_open(self) -> bool:
        """Whether answers of the last group are still awaited."""
        return bool(self._open)

    def silent(self, known: set[Address]) -> list[Address]:
        """The hosts that have not answered and are not *known* otherwise."""
        return [h for h in self._hosts if h not in self._answered and h not in known]

    def next_group(self, known: set[Address]) -> list[Address]:
        """Begin a round: whom to ask now. Hosts in *known* need not be asked."""
        silent = self.silent(known)
        self._left = [host for host in self._left if host in silent] or silent
        missing = max(1, min(self._config.join_size, len(self._hosts)) - self.answered_count)
        size = min(self._config.join_parallelism * missing, len(self._left))
        remote = [host for host in self._left if host.host != self._local.host]
        near = [host for host in self._left if host.host == self._local.host]
        order = self._rng.sample(remote, len(remote)) + self._rng.sample(near, len(near))
        group = order[:size]
        self._left = [host for host in self._left if host not in group]
        self._open = set(group)
        self._round_count += 1
        return group

    def done(self, host: Address, *, answered: bool) -> None:
        """*host* has answered, or will not."""
        self._open.discard(host)
        if answered:
            self._answered.add(host)

    def delay_us(self) -> int:
        """How long to wait before the next round: exponential, with full jitter above the last.

        Call it once a round.
        """
        smallest, largest = self._config.join_delay_min_s, self._config.join_delay_max_s
        exponent = min(self._round_count - 1, 32)
        cap_s = min(largest, smallest * 2**exponent)
        floor_s = min(largest, smallest * 2 ** (exponent - 1)) if exponent > 0 else 0.0
        return int(self._rng.uniform(floor_s, cap_s) * SECOND_US)


class Joiner:
    """Asks round after round, until we are ready, and if need be until every host has answered.

    Args:
        on_ready: called once, when the first join is done.
        on_late_list: given what a host answers after that, where healing is to take it in: it
            may come from a side that holds some of us for dead.
    """

    def __init__(
        self,
        core: Core,
        rows: Rows,
        namesakes: Namesakes,
        asker: Asker,
        syncer: Syncer,
        rounds: JoinRounds,
        on_ready: Callable[[int], None],
        on_late_list: Callable[[Address, JoinAck, int], None],
    ) -> None:
        self._core = core
        self._rows = rows
        self._asker = asker
        self._syncer = syncer
        self._rounds = rounds
        self._on_ready = on_ready
        self._on_late_list = on_late_list
        self._cut_short: list[Address] = []
        self._waits_for_name = False
        namesakes.on_settled = self._name_settled
        self._timer: Timer | None = None
        self._rejected: JoinRejected | None = None

    def start(self, hosts: Sequence[Address], now: int) -> None:
        """Begin with the first round."""
        self._rounds.set_hosts(hosts)
        self._next_round(now)

    def set_hosts(self, hosts: Sequence[Address], now: int) -> None:
        """Ask these from now on, the new ones at once; nothing if they are what they were."""
        core = self._core
        if not self._rounds.set_hosts(hosts):
            return
        asks = not core.stopped and (core.dialect.joins_alone or not core.ready)
        if asks and not self._rounds.round_open:
            self.stop()
            self._next_round(now)

    def stop(self) -> None:
        """Begin no further round by ourselves."""
        if self._timer is not None:
            self._timer.cancel()

    def _later_round(self, now: int) -> None:
        self._core.emit(HostsWanted())
        self._next_round(now)

    def _next_round(self, now: int) -> None:
        core = self._core
        known = {m.address for m in core.members} if core.dialect.joins_alone else set()
        group = self._rounds.next_group(known)
        self._rejected = None
        for host in group:
            self._ask(host, now)
        if not group:
            self._round_done(now)

    def _ask(self, host: Address, now: int) -> None:
        def done(outcome: Outcome, now: int) -> None:
            self._rounds.done(host, answered=isinstance(outcome, JoinAck))
            if isinstance(outcome, JoinAck):
                self._take_in(host, outcome, now)
            else:
                self._not_accepted(host, outcome)
            if not self._rounds.round_open:
                self._round_done(now)

        self._asker.fetch_list(host, self._core.config.join_timeout_s, done, now)

    def _take_in(self, host: Address, list_: JoinAck, now: int) -> None:
        if self._core.ready and self._core.config.fast_heal:
            self._on_late_list(host, list_, now)
        else:
            self._rows.update_from_list(list_, now, via="join")
            if list_.more:
                self._cut_short.append(host)

    def _not_accepted(self, host: Address, outcome: Outcome) -> None:
        """See what follows from it that *host* did not give its list."""
        if not isinstance(outcome, Refusal):
            return
        if outcome.kind == "self-join" and self._core.config.fast_heal:
            self._rounds.leave_out(host)
        elif outcome.kind in FATAL_REFUSALS:
            self._rejected = JoinRejected(host, outcome.message, fatal=True)

    def _round_done(self, now: int) -> None:
        core, rounds = self._core, self._rounds
        if core.stopped:
            return
        if self._cut_short:
            self._fetch_rest(self._cut_short.pop(0), now)
            return
        if self._rejected and not core.ready and rounds.answered_count == 0:
            # All who answered refuse us for good. Where one accepts, it is the others that err.
            core.emit(self._rejected)
            return
        self._waits_for_name = core.name_in_doubt
        if self._waits_for_name:
            return
        if not core.ready and (rounds.enough or core.dialect.joins_alone):
            core.ready = True
            core.emit(Ready(rounds.answered_count))
            self._on_ready(now)
        if self._joins_left():
            self.stop()
            self._timer = core.timers.set(now + rounds.delay_us(), self._later_round)

    def _name_settled(self, now: int) -> None:
        if self._waits_for_name:
            self._round_done(now)

    def _fetch_rest(self, host: Address, now: int) -> None:
        """Get the rest of a list that *host* could send only a part of.

        One list is enough: the others, of those who gossip with it, hardly differ.
        """

        def done(outcome: Outcome, now: int) -> None:
            if isinstance(outcome, SyncAck):
                self._cut_short.clear()
            if not self._rounds.round_open:
                self._round_done(now)

        self._syncer.begin(host, done, now)

    def _joins_left(self) -> bool:
        """Whether there are hosts that still have to be asked."""
        if not self._core.dialect.joins_alone:
            return not self._core.ready
        known = {member.address for member in self._core.members}
        return bool(self._rounds.silent(known))
