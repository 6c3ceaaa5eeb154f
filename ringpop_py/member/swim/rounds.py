"""Rounds of joins: which hosts to ask next, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim.timers import SECOND_US

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.base.config.settings import GossipConfig


SILENT_US: Final = 10 * SECOND_US
"""How long a host must be silent before it is reported, in microseconds: it may be starting."""


@dataclass(slots=True)
class Silence:
    """A host that does not answer: why, since when, and the reason that was last reported."""

    why: str
    since: int
    told: str = ""


class JoinRounds:
    """Draws groups of hosts to ask until enough have answered, without an end to the rounds.

    Each group is drawn without replacement from the hosts that have not answered. Hosts on other
    machines come first: processes on our own machine share its view of the network.
    """

    def __init__(self, local: Address, config: GossipConfig, rng: random.Random) -> None:
        self._local = local
        self._config = config
        self._rng = rng
        self._listed: frozenset[Address] = frozenset()
        self.hosts: tuple[Address, ...] = ()  # without our own address
        self._left: list[Address] = []
        self._answered: set[Address] = set()
        self._open: set[Address] = set()
        self._round_count = 0
        self._silences: dict[Address, Silence] = {}

    @property
    def silences(self) -> dict[Address, str]:
        """The hosts that did not answer when they were last asked, and why."""
        return {host: silence.why for host, silence in self._silences.items()}

    def set_hosts(self, hosts: Sequence[Address]) -> bool:
        """Replace the hosts; earlier answers still count. Return whether the hosts changed."""
        listed = frozenset(hosts)
        if listed == self._listed:
            return False
        self._listed = listed
        self.hosts = tuple(host for host in dict.fromkeys(hosts) if host != self._local)
        self._left = []
        self._round_count = 0
        self._silences = {h: s for h, s in self._silences.items() if h in listed}
        return True

    def leave_out(self, host: Address) -> None:
        """Skip *host*, which is an alias of our own address, until other hosts are set."""
        self.hosts = tuple(h for h in self.hosts if h != host)
        self._left = [h for h in self._left if h != host]
        self._silences.pop(host, None)

    @property
    def answered_count(self) -> int:
        """The number of hosts that have answered."""
        return len(self._answered)

    @property
    def enough(self) -> bool:
        """Whether enough hosts have answered for a join."""
        return self.answered_count >= min(self._config.join_size, len(self.hosts))

    @property
    def round_open(self) -> bool:
        """Whether hosts of the last group may still answer."""
        return bool(self._open)

    def silent(self, known: set[Address]) -> list[Address]:
        """Return the hosts that have not answered and are not in *known*."""
        return [h for h in self.hosts if h not in self._answered and h not in known]

    def next_group(self, known: set[Address]) -> list[Address]:
        """Begin a round; return the hosts to ask now, none of which is in *known*."""
        silent = self.silent(known)
        # Once all have been drawn, those that are still silent are drawn again.
        self._left = [host for host in self._left if host in silent] or silent
        # At least one: with `joins_alone` the rounds go on after enough hosts have answered.
        missing = max(1, min(self._config.join_size, len(self.hosts)) - self.answered_count)
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
        """Note that *host* has answered or failed to."""
        self._open.discard(host)
        if answered:
            self._answered.add(host)
            self.heard(host)

    def heard(self, host: Address) -> None:
        """Note that *host* answers, to whatever was asked."""
        self._silences.pop(host, None)

    def silent_for(self, host: Address, why: str, now: int) -> bool:
        """Note that *host* gave no answer; return whether to report that.

        It is reported once for each reason, after `SILENT_US`.
        """
        if host not in self.hosts:
            return False
        silence = self._silences.setdefault(host, Silence(why, now))
        silence.why = why
        if why == silence.told or now - silence.since < SILENT_US:
            return False
        silence.told = why
        return True

    def delay_us(self) -> int:
        """Draw how long to wait before the next round: between its exponential limit and the last.

        Call it once a round.
        """
        smallest, largest = self._config.join_delay_min_s, self._config.join_delay_max_s
        exponent = min(self._round_count - 1, 32)  # a higher power could overflow a float
        cap_s = min(largest, smallest * 2**exponent)
        floor_s = min(largest, smallest * 2 ** (exponent - 1)) if exponent > 0 else 0.0
        return int(self._rng.uniform(floor_s, cap_s) * SECOND_US)
