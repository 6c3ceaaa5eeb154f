"""Rounds of joins: which hosts are asked next, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.swim.timers import SECOND_US

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from ringpop_py.address import Address
    from ringpop_py.config.settings import GossipConfig


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
