"""What a node says of what happens: facts are kept, and logged as loud as they need to be."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, assert_never

import trio

from ringpop_py.logs import log
from ringpop_py.node.events import EventLog, Told
from ringpop_py.swim import effects as fx
from ringpop_py.swim.records import is_fact, printable, record_of, record_of_burst, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.swim.records import Record

STRANGER: Final = "stranger"
CHANGES_LOGGED_MAX: Final = 50
"""More changes of members than this that come together are logged as one line."""
CLOCK_DIFFERS_S: Final = 10.0
"""A difference of clocks, in seconds, from which on a peer is warned of."""
TIME_CHARACTERS_MAX: Final = 16

_LEVELS: Final[dict[type, str]] = {
    fx.Refuted: "warning",
    fx.Stalled: "warning",
    fx.NameTaken: "warning",
    fx.DampVoted: "info",
    fx.Ready: "info",
}
"""How loud facts are; those that are not here are for debugging."""


class Reporter:
    """Tells of the node *name* of the cluster *cluster*; what repeats itself is logged once.

    Attributes:
        events: the last facts.
    """

    def __init__(self, name: str, cluster: str) -> None:
        self.events = EventLog()
        self._name = name
        self._cluster = cluster
        self._told = Told()

    def is_burst(self, changes: Sequence[fx.StatusChanged]) -> bool:
        """Log *changes*, which came together, in one line if there are many, and return whether."""
        if len(changes) <= CHANGES_LOGGED_MAX:
            return False
        levels = {self._level_of(change) for change in changes}
        _log("info" if "info" in levels else "debug", record_of_burst(changes))
        return True

    def tell(self, effect: fx.Effect, *, is_burst: bool) -> None:
        """Keep *effect* if it is a fact, and log it: loud, if an operator should know immediately.

        Of a burst of changes, which has a line as a whole, only those to warn of have their own.
        """
        if not is_fact(effect):
            return
        level = self._level_of(effect)
        if level != "debug" or not isinstance(effect, fx.StrangerRefused | fx.PeerTrouble):
            self.events.note(effect)  # but for strangers and others that call again and again
        if level == "warning" or not (is_burst and isinstance(effect, fx.StatusChanged)):
            record = record_of(effect)
            assert record is not None
            _log(level, record)

    def _level_of(self, effect: fx.Effect) -> str:
        """How loud *effect* is; a cluster in a steady state says nothing above debug."""
        match effect:
            case fx.JoinRejected() | fx.StrangerRefused() | fx.PeerTrouble():
                return "warning" if self._first_time(*_trouble_of(effect)) else "debug"
            case fx.StatusChanged(before, after):
                if before and after and before.damping != after.damping:
                    return "warning" if after.damped else "info"
                same = before and after and before.status is after.status
                ours = effect.member.name == self._name
                return "debug" if same or ours else "info"
            case fx.Healed(targets):
                return "info" if targets else "debug"
            case _:
                return _LEVELS.get(type(effect), "debug")

    def tell_stranger(self, address: str, cluster: str) -> None:
        """Log that a node of another cluster was refused, once an address."""
        if self._first_time(address, STRANGER):
            record = {"address": address, "cluster": cluster, "ours": self._cluster}
            text = text_of({"event": "stranger-refused", **record})
            log.warning("stranger-refused", text=text, **record)

    def tell_time(self, address: str, said_ms: str, *, dialed_ms: int) -> None:
        """Log, once an address, that a peer's clock differs from ours by `CLOCK_DIFFERS_S` or more.

        Args:
            said_ms: what the peer said that the time is, in milliseconds, when it was dialed.
            dialed_ms: what our own clock said before that.
        """
        if not (said_ms.isdecimal() and len(said_ms) <= TIME_CHARACTERS_MAX):
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

    def _first_time(self, address: str, what: str) -> bool:
        """Whether this is new of *address*, so that what repeats itself is logged once."""
        return self._told.first_time(address, what, trio.current_time())


def clock_ahead_ms(said_ms: int, *, dialed_ms: int, read_ms: int) -> int:
    """Return by how much, at least, a peer's clock is ahead of ours; negative if it is behind.

    The peer read *said_ms* some time after we dialed it and before we read its answer. Either of
    us may have been held up between, so what lies between the two proves no difference.
    """
    return said_ms - min(max(said_ms, dialed_ms), read_ms)


def _trouble_of(effect: fx.JoinRejected | fx.StrangerRefused | fx.PeerTrouble) -> tuple[str, str]:
    """The peer that the trouble is with, and the trouble; each is logged once."""
    match effect:
        case fx.JoinRejected(address, reason):
            return str(address), reason
        case fx.StrangerRefused(address):
            return str(address), STRANGER
        case fx.PeerTrouble(peer, endpoint, reason):
            return peer, f"{endpoint}: {reason}"
        case _:
            assert_never(effect)


def _log(level: str, record: Record) -> None:
    fields = {key: value for key, value in record.items() if key != "event"}
    getattr(log, level)(record["event"], text=text_of(record), **fields)
