"""What a node logs: facts are kept, and logged at the level that they need."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.logs import log
from ringpop_py.base.metering import Series
from ringpop_py.base.texts import printable
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import STORE_LABEL
from ringpop_py.member.swim.records import is_fact, record_of, record_of_burst, text_of
from ringpop_py.member.swim.timers import SECOND_US
from ringpop_py.node.events import EventLog, LoggedTroubles
from ringpop_py.node.signals.clocks import Clocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.member.swim.member import Member, Status
    from ringpop_py.member.swim.records import Record
    from ringpop_py.node.audit import AuditFile

STRANGER: Final = "stranger"
RECENT_MAX: Final = 64
"""How many stalls, and how many troubles, are kept to be told on request."""
CHANGES_LOGGED_MAX: Final = 50
"""How many changes of members in one message have a line each; more are logged as one line."""
CLOCK_DIFFERS_S: Final = 10.0
"""From how many seconds on a difference between a peer's clock and ours is logged."""
TIME_CHARACTERS_MAX: Final = 16

_LEVELS: Final[dict[type, str]] = {
    fx.Refuted: "warning",
    fx.Stalled: "warning",
    fx.NameTaken: "warning",
    fx.DampVoted: "info",
    fx.Ready: "info",
}
"""The levels of facts; all others are logged for debugging."""


class Reporter:
    """Logs for the node *name* of the cluster *cluster*; what repeats itself is logged once.

    Args:
        store: the id of the node's store, if it has one.

    Attributes:
        events: the last facts.
        stalls: when this node did not run, by trio's clock, and for how many seconds.
        troubles: when it misunderstood which peer, likewise, and how.
        status_changes: how often a member came to each status.
        series: the last ten minutes, in figures.
        audit: where accesses to data are told, if they are.
        started_at: when this node was started, in Unix time.
        clocks: this node's clock, and what others' clocks said.
    """

    def __init__(self, name: str, cluster: str, store: str | None = None) -> None:
        self.events = EventLog()
        self.status_changes: Counter[Status] = Counter()
        self.stalls: deque[tuple[float, float]] = deque(maxlen=RECENT_MAX)
        self.troubles: deque[tuple[float, str, str]] = deque(maxlen=RECENT_MAX)
        self.started_at = time.time()
        self.series = Series(self.started_at)
        self.audit: AuditFile | None = None
        self.clocks = Clocks()
        self._name = name
        self._cluster = cluster
        self._store = store
        self._told = LoggedTroubles()

    def close(self) -> None:
        """Write what waits for the audit log, if there is one."""
        if self.audit is not None:
            self.audit.close()

    def warning(self, event: str, **fields: object) -> None:
        """Log *event* as a warning, and keep it; *fields* has a ``member`` and a ``text``."""
        log.warning(event, **fields)
        self.events.note({"event": event, **fields})

    def is_burst(self, changes: Sequence[fx.StatusChanged]) -> bool:
        """If *changes* of one message are many, log them in one line; return whether they are."""
        if len(changes) <= CHANGES_LOGGED_MAX:
            return False
        levels = {self._level_of(change) for change in changes}
        _log("info" if "info" in levels else "debug", record_of_burst(changes))
        return True

    def tell(self, effect: fx.Effect, *, is_burst: bool) -> None:
        """Keep *effect* if it is a fact, and log it; of a burst of changes, log only warnings."""
        if not is_fact(effect):
            return
        if isinstance(effect, fx.Stalled):
            self.stalls.append((trio.current_time(), effect.for_us / SECOND_US))
        elif isinstance(effect, fx.PeerTrouble):
            self.troubles.append((trio.current_time(), effect.peer, effect.reason))
        if isinstance(effect, fx.StatusChanged):
            self._compare_stores(effect.member)
            if effect.before is None or effect.before.status is not effect.member.status:
                self.status_changes[effect.member.status] += 1
        level = self._level_of(effect)
        if level != "debug" or not isinstance(
            effect, fx.StrangerRefused | fx.PeerTrouble | fx.HostSilent
        ):
            self.events.note(effect)  # repeated troubles would displace all other events
        if level == "warning" or not (is_burst and isinstance(effect, fx.StatusChanged)):
            record = record_of(effect)
            assert record is not None
            _log(level, record)

    def _compare_stores(self, member: Member) -> None:
        if self._store is None or not member.status.reachable:
            return
        theirs = dict(member.labels).get(STORE_LABEL, self._store)
        if theirs != self._store and self._first_time(member.name, f"store {theirs}"):
            text = (
                f"{member.name} has the store {theirs}, this node {self._store}: they share no "
                "durable keyspaces; are these two clusters that should have different names?"
            )
            log.warning("stores-differ", text=text, member=member.name, store=theirs)

    def _level_of(self, effect: fx.Effect) -> str:
        # A cluster in a steady state logs nothing above debug.
        match effect:
            case fx.JoinRejected(host, why) | fx.HostSilent(host, why):  # reasons may take turns
                level = self._once(str(host), why)
            case fx.StrangerRefused(address):
                level = self._once(str(address), STRANGER)
            case fx.PeerTrouble(peer, endpoint, reason):
                level = self._once(peer, f"{endpoint}: {reason}")
            case fx.StatusChanged(before, after):
                if before and after and before.damping != after.damping:
                    level = "warning" if after.damped else "info"
                else:
                    same = before and after and before.status is after.status
                    ours = effect.member.name == self._name
                    level = "debug" if same or ours else "info"
            case fx.Healed(targets):
                level = "info" if targets else "debug"
            case _:
                level = _LEVELS.get(type(effect), "debug")
        return level

    def tell_stranger(self, address: str, cluster: str) -> None:
        """Log once for an address that it was refused as a node of another cluster."""
        if self._first_time(address, STRANGER):
            record = {"address": address, "cluster": cluster, "ours": self._cluster}
            text = text_of({"event": "stranger-refused", **record})
            log.warning("stranger-refused", text=text, **record)

    def tell_time(self, address: str, said_ms: str, *, dialed_ms: int | None) -> None:
        """Log once for an address that its clock differs from ours by `CLOCK_DIFFERS_S` or more.

        Args:
            said_ms: the peer's time, in milliseconds, as it sent it when the connection was made.
            dialed_ms: the time of our own clock before that; None if the peer has dialed, which
                compares the clocks itself.
        """
        if not (said_ms.isdecimal() and len(said_ms) <= TIME_CHARACTERS_MAX):
            return  # a peer can send any text
        self.clocks.told(address, int(said_ms))
        if dialed_ms is None:
            return
        read_ms = round(time.time() * 1000)
        ahead_s = clock_ahead_ms(int(said_ms), dialed_ms=dialed_ms, read_ms=read_ms) / 1000
        if abs(ahead_s) >= CLOCK_DIFFERS_S and self._first_time(address, "clock"):
            how = "ahead of" if ahead_s > 0 else "behind"
            log.warning(
                "clock-differs",
                text=printable(
                    f"the clock of {address} is {abs(ahead_s):.0f} s {how} this node's: correct "
                    "one of them; incarnations and last_writer_wins go by clocks"
                ),
                address=address,
                ahead_s=round(ahead_s, 1),
            )

    def _once(self, peer: str, what: str) -> str:
        return "warning" if self._first_time(peer, what) else "debug"

    def _first_time(self, peer: str, what: str) -> bool:
        return self._told.first_time(peer, what, trio.current_time())


def clock_ahead_ms(said_ms: int, *, dialed_ms: int, read_ms: int) -> int:
    """Return by how much, at least, a peer's clock is ahead of ours; negative if it is behind.

    The peer read *said_ms* some time after we dialed it and before we read its answer. Either side
    may have been delayed, so a time between the two proves no difference.
    """
    return said_ms - min(max(said_ms, dialed_ms), read_ms)


def _log(level: str, record: Record) -> None:
    fields = {key: value for key, value in record.items() if key != "event"}
    getattr(log, level)(record["event"], text=text_of(record), **fields)
