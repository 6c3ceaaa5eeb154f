"""When to heal a split, and through which address (Ringpop's partition healing).

A pass (`passes.py`) may leave suspicions to be refuted. With `fast_heal` the next pass follows when
the refutations have had time to spread; Ringpop leaves it to the next run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim.calls import silence_of
from ringpop_py.member.swim.effects import Healed, HostSilent, HostsWanted
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import JoinAck, Refusal
from ringpop_py.member.swim.passes import Pass, PassEnd, is_given_up
from ringpop_py.member.swim.timers import SECOND_US, microseconds
from ringpop_py.member.swim.waits import Due, HealList, HealPass, HealTryDue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.asker import Asker
    from ringpop_py.member.swim.calls import Outcome
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.passes import Passes
    from ringpop_py.member.swim.rounds import JoinRounds
    from ringpop_py.member.swim.rows import Rows

FAILURES_MAX: Final = 10
PASSES_MAX: Final = 8
SETTLE_PERIODS: Final = 3
RECENTLY_S: Final = 120


@dataclass(slots=True)
class Healing:
    """One run: the addresses that are left to try, and the results so far (see `Healed`)."""

    left: list[Address]
    reached: list[Address] = field(default_factory=list)
    merged: list[Address] = field(default_factory=list)
    failed: list[Address] = field(default_factory=list)

    def next_target(self) -> Address | None:
        """Return the next address to try; None once the run is over."""
        over = not self.left or len(self.failed) >= FAILURES_MAX
        return None if over else self.left.pop()

    def met(self, target: Address, ended: Pass, theirs: Iterable[Member]) -> None:
        """Note how the pass with *target* ended, and skip the addresses that it can reach."""
        if ended is Pass.FAILED:
            self.failed.append(target)
            return
        self.reached.append(target)
        if ended is Pass.MERGED:
            self.merged.append(target)
        reachable = {member.address for member in theirs if member.status.reachable}
        self.left = [address for address in self.left if address not in reachable]

    def result(self) -> Healed:
        """Return what the run has done."""
        return Healed(tuple(self.reached), tuple(self.merged), tuple(self.failed))


@dataclass(frozen=True, slots=True)
class Apart:
    """Addresses at which members may live that we do not reach.

    Attributes:
        known: hosts without a reachable member, and the addresses of faulty members.
        forgotten: the addresses of faulty members that were evicted since.
        many: whether these are so many that a split is likely.
    """

    known: tuple[Address, ...]
    forgotten: tuple[Address, ...]
    many: bool


def apart(
    members: Iterable[Member],
    hosts: Sequence[Address],
    forgotten: Sequence[Address],
    aliases: Mapping[Address, str],
    share: float,
) -> Apart:
    """Return the addresses that are apart from us.

    Args:
        forgotten: see `LostMembers`.
        aliases: the names of members that answered at hosts, but have another address.
        share: the share of the members or of the hosts that counts as `many`.
    """
    rows = list(members)
    reachable = [m for m in rows if m.status.reachable]
    # Plain tuples, which are equal to addresses: all members are looked at, at each turn.
    present = {(m.host, m.port) for m in reachable}
    names = {m.name for m in reachable}
    left = {m.address for m in rows if m.status is Status.LEAVE}
    given_up = [m.address for m in rows if is_given_up(m) and m.address not in present]
    evicted = [a for a in forgotten if a not in present]
    missing = [h for h in hosts if h not in present and aliases.get(h) not in names]
    lost = dict.fromkeys([*given_up, *evicted])
    silent_count = sum(host not in left for host in missing)
    many = (
        len(rows) <= 1  # we are alone, so all others may be on the other side
        or 0 < share * (len(rows) + len(evicted)) <= len(lost)
        or 0 < share * len(hosts) <= silent_count
    )
    known = dict.fromkeys([*missing, *given_up])
    return Apart(tuple(known), tuple(a for a in lost if a not in known), many)


class Healer:
    """Tries to reach the other side of a split, by chance and whenever an operator asks for it.

    Without `fast_heal`, as in Ringpop, about `heal_share` nodes of the cluster try all hosts every
    `heal_period_s`, whatever the cluster's size.

    With `fast_heal`, a try covers one random address, and each *side* of a split makes about
    `heal_share` tries a turn, whatever its size. Turns come every `heal_fast_s` while a large part
    is gone, while we are alone, and for `RECENTLY_S` after a member became faulty; otherwise every
    `heal_period_s`. Which of the two applies is checked every `heal_fast_s`, so that the first try
    of a split comes soon; a node at rest checks it with its periods. With the defaults a side makes
    1.5 calls a second in a large split, and 0.1 while a few of many members are missing.

    Attributes:
        trying: the addresses that are being tried.
    """

    def __init__(
        self, core: Core, rows: Rows, asker: Asker, passes: Passes, rounds: JoinRounds
    ) -> None:
        self._core = core
        self._rows = rows
        self._asker = asker
        self._passes = passes
        self._rounds = rounds
        self._timer = 0
        self._waiting = 0
        self._healing: Healing | None = None
        self._turn_at = 0
        self._look_at = 0
        self.trying: set[Address] = set()
        self._aliases: dict[Address, str] = {}
        self._apart: tuple[object, Apart] | None = None

    @property
    def running(self) -> bool:
        """Whether a run is open."""
        return self._healing is not None

    def plan(self, now: int) -> None:
        """Begin to heal by chance."""
        core = self._core
        if core.config.fast_heal:
            self._turn_at = now
            # At random, because nodes that start together must not take their turns together.
            self._set_look(now + core.rng.randint(1, self._look_us()))
        else:
            at = now + microseconds(core.config.heal_period_s)
            self._timer = core.timers.set(at, Due.HEAL_CHANCE)

    def stop(self) -> None:
        """Stop healing by chance; an open run continues to its end."""
        for timer in (self._timer, self._waiting):
            self._core.timers.cancel(timer)

    # A run, by hand or by chance (Ringpop): all addresses, one after the other.

    def begin(self, now: int) -> None:
        """Begin a run, unless one is open; if we are leaving, it ends immediately."""
        if self._healing is not None:
            return
        targets = [] if self._core.stopped else self._targets()
        self._core.rng.shuffle(targets)
        self._healing = Healing(targets)
        self._next(now)

    def begin_by_chance(self, now: int) -> None:
        """Begin a run by chance, such that the load does not depend on the cluster's size."""
        core = self._core
        self.plan(now)
        # All hosts count, so that a node that sees few members does not heal for all of them.
        size = max(len(self._rounds.hosts), core.members.pingable_count + 1)
        if core.rng.random() < core.config.heal_share / size:
            core.emit(HostsWanted())
            # A slow or broken discovery must not keep us from healing with the known hosts.
            at = now + microseconds(core.config.heal_timeout_s)
            self._waiting = core.timers.set(at, Due.HEAL_HOSTS)

    def hosts_read(self, now: int) -> None:
        """Begin the run that waits for discovery, if there is one."""
        if self._waiting in self._core.timers:
            self._core.timers.cancel(self._waiting)
            self.begin_if_apart(now)

    def begin_if_apart(self, now: int) -> None:
        """Begin a run if there is an address to try."""
        if self._targets():
            self.begin(now)

    def _targets(self) -> list[Address]:
        if self._core.config.fast_heal:
            found = self._who_is_apart()
            return [*found.known, *found.forgotten]
        reachable = {member.address for member in self._core.members if member.status.reachable}
        return [host for host in self._rounds.hosts if host not in reachable]

    def _next(self, now: int) -> None:
        healing = self._healing
        assert healing is not None
        target = healing.next_target() if self._core.may_speak else None
        if target is None:
            self._healing = None
            self._core.emit(healing.result())
            return
        self._meet(HealPass(target, "run", PASSES_MAX), now)

    # Fast healing: one address at a time.

    def take_in(self, target: Address, theirs: JoinAck, now: int) -> None:
        """Begin a pass with the list that *target* sent for another reason.

        It may come from a side that considers some of our members dead.
        """
        heals = HealPass(target, "list", PASSES_MAX)
        self.went_on(heals, self._passes.compare(heals, theirs, now), now)

    def _look_us(self) -> int:
        config = self._core.config
        return microseconds(min(config.heal_fast_s, config.heal_period_s))

    def _set_look(self, at: int) -> None:
        self._look_at = at
        self._timer = self._core.timers.set(at, Due.HEAL_TURN)

    def _turn_us(self, found: Apart, now: int) -> int:
        config, given_up_at = self._core.config, self._rows.lost.given_up_at
        recently = given_up_at is not None and now - given_up_at < RECENTLY_S * SECOND_US
        return microseconds(config.heal_fast_s if found.many or recently else config.heal_period_s)

    def plan_look(self, now: int, *, rests: bool) -> None:
        """Plan the next look: if the node *rests*, when our turn may come. Call it each period."""
        timers, look_us = self._core.timers, self._look_us()
        if not self._core.config.fast_heal or self._timer not in timers:
            return
        # In whole looks: nodes are in step by their periods, and must not be by their looks.
        at = self._look_at - max(0, self._look_at - now) // look_us * look_us
        if rests:
            turn_at = self._turn_at + self._turn_us(self._who_is_apart(), now)
            at += max(0, turn_at - at + look_us - 1) // look_us * look_us
        if at != self._look_at:
            timers.cancel(self._timer)
            self._set_look(at)

    def look(self, now: int) -> None:
        """If it is our turn, try one address by chance."""
        core, found = self._core, self._who_is_apart()
        self._set_look(now + self._look_us())
        if now - self._turn_at < self._turn_us(found, now):
            return
        self._turn_at = now
        if core.rng.random() >= core.config.heal_share / (core.members.pingable_count + 1):
            return
        core.emit(HostsWanted())
        target = self._draw(found)
        if target is not None:
            self.attempt(target, PASSES_MAX, now)

    def _draw(self, found: Apart) -> Address | None:
        # First a pool, then an address of it: so no pool, however large, starves the other.
        rng = self._core.rng
        pools = [pool for pool in (found.known, found.forgotten) if pool]
        return rng.choice(rng.choice(pools)) if pools else None

    def attempt(self, target: Address, passes_left: int, now: int) -> None:
        """Begin a pass with *target*, unless one is open; *passes_left* includes this pass."""
        if target in self.trying or self._core.stopped:
            return
        self.trying.add(target)
        self._meet(HealPass(target, "try", passes_left), now)

    def _who_is_apart(self) -> Apart:
        # Computed only after a change, so that a cluster at rest costs nothing.
        members, hosts, lost = self._core.members, self._rounds.hosts, self._rows.lost
        share = self._core.config.heal_fast_share
        state = (members.checksum, len(members), hosts, lost.version, len(self._aliases), share)
        if self._apart is None or self._apart[0] != state:
            found = apart(members, hosts, lost.addresses, self._aliases, share)
            self._apart = (state, found)
        return self._apart[1]

    # One pass.

    def _meet(self, heals: HealPass, now: int) -> None:
        timeout_s = self._core.config.heal_timeout_s
        self._asker.fetch_list(heals.target, timeout_s, HealList(heals), now)

    def list_fetched(self, heals: HealPass, outcome: Outcome, now: int) -> None:
        """Continue a pass with the list of its target, or end it if none arrived."""
        target = heals.target
        if isinstance(outcome, JoinAck):
            self._rounds.heard(target)
            self._note_alias(target, outcome.source)
            end = self._passes.compare(heals, outcome, now)
        else:
            if isinstance(outcome, Refusal) and outcome.kind == "self-join":
                self._rounds.leave_out(target)
            elif self._rounds.silent_for(target, silence_of(outcome), now):
                self._core.emit(HostSilent(target, silence_of(outcome)))
            end = PassEnd(Pass.FAILED)
        self.went_on(heals, end, now)

    def went_on(self, heals: HealPass, end: PassEnd | None, now: int) -> None:
        """Decide what follows a pass, if *end* says that it has ended."""
        if end is None:
            return
        target, run = heals.target, self._healing if heals.cause == "run" else None
        if run is not None:
            run.met(target, end.how, end.theirs)
        elif heals.cause == "try":
            self.trying.discard(target)
        config, passes_left = self._core.config, heals.passes_left - 1
        if end.how is Pass.UNFINISHED and (run is None or config.fast_heal):
            if passes_left > 0:
                settle_us = microseconds(SETTLE_PERIODS * config.period_s)
                self._core.timers.set(now + settle_us, HealTryDue(target, passes_left))
        elif end.how is Pass.MERGED and heals.cause == "try":
            self._core.emit(Healed((target,), (target,), is_run=False))
        if run is not None:
            self._next(now)

    def _note_alias(self, host: Address, name: str) -> None:
        # A host at which a reachable member answers is not apart, whatever that member's address.
        hosts = self._rounds.hosts
        if host in hosts:
            self._aliases[host] = name
        for stale in [address for address in self._aliases if address not in hosts]:
            del self._aliases[stale]
