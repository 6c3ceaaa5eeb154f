"""The virtual network: which messages arrive, how late, how often, and how damaged."""

from __future__ import annotations

import random
from collections import Counter
from math import log1p
from typing import TYPE_CHECKING, Final

from ringpop_py.base.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_sim.plans.plan import Cut, Delay, Impair, Link, Nodes

# With this shape the mean is finite and the variance is not, so very late messages keep coming.
TAIL_SHAPE: Final = 1.5
# Without an end of the tail, no oracle could say by when an answer must have arrived
# (`late_us_max`).
TAIL_FACTOR_MAX: Final = 200.0
STRANGERS: Final = 1 << 20
"""Machines with this number or a higher one do not exist; calls to them time out."""


def address_of(machine: int) -> Address:
    """Return the address of *machine*. Each process has its own unless it takes over another's."""
    return Address(f"10.{machine >> 16 & 255}.{machine >> 8 & 255}.{machine & 255}", 3000)


class VirtualNetwork:
    """The links between machines, which are numbers.

    It draws from a random stream of its own, so draws elsewhere do not change what it does.
    """

    def __init__(self, link: Link, seed: int, machines: int) -> None:
        self._link = link
        # Python hashes a text seed in the same way in every process, whatever PYTHONHASHSEED is.
        # The method is bound once, because each message draws.
        self._random = random.Random(f"network {seed}").random
        self._impaired: dict[int, list[Impair]] = {}
        self._beside: dict[int, int] = {}
        # Counters, because cuts may overlap: a pair is whole again when its last cut ends.
        self._blocked: Counter[tuple[int, int]] = Counter()
        self._refused: Counter[tuple[int, int]] = Counter()
        self._silent: set[int] = set()
        self._machine_count = machines
        # By host. Addresses stay known when their process has ended.
        self._machine_of: dict[str, int] = {}

    # Machines.

    def new_machine(self) -> int:
        """Return a machine that no process has used."""
        self._machine_count += 1
        return self._machine_count - 1

    def connect(self, machine: int) -> Address:
        """Make *machine* reachable, and return its address."""
        address = address_of(machine)
        self._machine_of[address.host] = machine
        self._silent.discard(machine)
        return address

    def silence(self, machine: int) -> None:
        """Stop *machine* from refusing connections, until it is connected again."""
        self._silent.add(machine)

    def machine_of(self, address: Address) -> int:
        """Return the machine that has *address*; if none has, a machine that does not exist."""
        return self._machine_of.get(address.host, STRANGERS)

    def is_silent(self, machine: int) -> bool:
        """Return whether *machine* does not even refuse connections."""
        return machine in self._silent or machine >= STRANGERS

    # Faults.

    def place(self, machine: int, beside: int) -> None:
        """Cut *machine* off from all that *beside* is cut off from, now and later."""
        self._beside[machine] = beside

    def cut(self, cut: Cut) -> None:
        """Begin *cut*."""
        self._pairs(cut).update(self._directions(cut))

    def mend(self, cut: Cut) -> None:
        """End *cut*."""
        pairs = self._pairs(cut)
        pairs.subtract(self._directions(cut))
        # A pair with the count 0 would still be in the counter, and count as cut.
        for pair in [pair for pair, count in pairs.items() if count <= 0]:
            del pairs[pair]

    def impair(self, impair: Impair, machines: Nodes) -> None:
        """Begin *impair* at *machines*."""
        for machine in machines:
            self._impaired.setdefault(machine, []).append(impair)

    def repair(self, impair: Impair, machines: Nodes) -> None:
        """End *impair*."""
        for machine in machines:
            self._impaired[machine].remove(impair)
            if not self._impaired[machine]:
                del self._impaired[machine]

    def _pairs(self, cut: Cut) -> Counter[tuple[int, int]]:
        return self._refused if cut.refuse else self._blocked

    @staticmethod
    def _directions(cut: Cut) -> Iterable[tuple[int, int]]:
        for a in cut.left:
            for b in cut.right:
                yield a, b
                if not cut.one_way:
                    yield b, a

    # What happens to a message.

    def is_refused(self, a: int, b: int) -> bool:
        """Return whether connections from *a* to *b* are refused on the way."""
        return bool(self._refused) and self._places(a, b) in self._refused

    def _places(self, a: int, b: int) -> tuple[int, int]:
        return self._beside.get(a, a), self._beside.get(b, b)

    def may_damage(self, a: int, b: int) -> bool:
        """Return whether messages from *a* to *b* may arrive with wrong bytes."""
        if self._link.corrupt:
            return True
        if not self._impaired:
            return False
        # Also while the fault is flipped off: `is_damaged` looks at the instant.
        return any(i.corrupt for machine in (a, b) for i in self._impaired.get(machine, ()))

    def delays_us(self, a: int, b: int, now: int) -> tuple[int, ...]:
        """Return the delay in microseconds of each copy of a message; empty if it is lost."""
        if self._blocked and self._places(a, b) in self._blocked:
            return ()
        link = self._link
        draw = self._random
        if link.loss and draw() < link.loss:
            return ()
        extra_us, duplicate = 0, link.duplicate
        if self._impaired:
            for impair, loss in self._impairing(a, b, now):
                if loss and draw() < loss:
                    return ()
                extra_us += impair.delay_us
                duplicate = max(duplicate, impair.duplicate)
        first = extra_us + self.delay_us(link.delay)
        if duplicate and draw() < duplicate:
            return first, first + self.delay_us(link.delay)
        return (first,)

    def is_damaged(self, a: int, b: int, now: int) -> bool:
        """Return whether a message from *a* to *b* arrives with wrong bytes; draws anew."""
        shares = [self._link.corrupt]
        shares += [impair.corrupt for impair, _ in self._impairing(a, b, now)]
        share = max(shares)
        return share > 0 and self._random() < share

    def _impairing(self, a: int, b: int, now: int) -> Iterable[tuple[Impair, float]]:
        for impair in self._impaired.get(a, ()):
            if _is_on(impair, now):
                yield impair, impair.loss_out
        for impair in self._impaired.get(b, ()):
            if _is_on(impair, now):
                yield impair, impair.loss_in

    def delay_us(self, delay: Delay) -> int:
        """Draw one delay in microseconds from *delay*."""
        span = delay.high_us - delay.low_us
        if delay.kind == "uniform":
            return delay.low_us + int(self._random() * (span + 1))  # both ends may be drawn
        if delay.kind == "exponential":
            return delay.low_us + int(span * _exponential(self._random()))
        # 1 minus the draw is never 0, which has no such power. The fraction makes the mean of the
        # factor 1, so that the mean of the delay is *span* as for other kinds.
        factor = (1.0 - self._random()) ** (-1.0 / TAIL_SHAPE) * (TAIL_SHAPE - 1.0) / TAIL_SHAPE
        return delay.low_us + int(span * min(factor, TAIL_FACTOR_MAX))


def _is_on(impair: Impair, now: int) -> bool:
    return not impair.flip_us or ((now - impair.at_us) // impair.flip_us) % 2 == 0


def _exponential(share: float) -> float:
    """Return the quantile *share* of the exponential distribution with mean 1."""
    return -log1p(-share)  # a draw is never 1, so this is finite
