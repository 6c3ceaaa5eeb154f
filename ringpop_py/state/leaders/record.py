"""The record of a leader, and the steps by which it may change (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from ringpop_py.base.arguments import checked_seconds, sendable_text
from ringpop_py.base.errors import BadOperation, ConfigError
from ringpop_py.base.values.declared import Meta, Named, Natural, Text, asdict, convert, replace

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value

KEYSPACE: Final = "~leaders"
"""The cluster's own keyspace in which each leader has its record, under its name."""
PARTITIONS: Final = 16
READ: Final = "/admin/leaders/read"
SWAP: Final = "/admin/leaders/swap"
"""The endpoints by which programs that are no members read and change a record."""
NAME_CHARACTERS_MAX: Final = 100
TTL_S_MIN: Final = 1.0
"""The shortest time, in seconds, for which a holder may be silent: a beat needs some of it."""
TTL_S_MAX: Final = 3600.0
TERM_MAX: Final = (1 << 53) - 1
"""The highest term, which JSON and doubles can still tell from its neighbours."""

LeaderName = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
_Seconds = Annotated[float, Meta(ge=TTL_S_MIN, le=TTL_S_MAX)]
_Term = Annotated[int, Meta(ge=1, le=TERM_MAX)]


class LeaderRecord(Named, frozen=True):
    """Who holds a name, and since when. A released one has no holder, and keeps its term.

    Attributes:
        term: a number that grows with each holder.
        holder: the name of a member, or what a program outside calls itself; empty if released.
        nonce: what tells one try to hold the name from all others.
        is_member: whether *holder* is a member of the cluster.
        ttl_s: the holder has lost the name when its beat has stood still for so many seconds.
        since, beat_at: when the term began, and its last beat, by the holder's clock: Unix time in
            seconds, for people only.
        beat: a number that each beat raises.
    """

    term: _Term
    holder: Text
    nonce: Text
    is_member: bool
    ttl_s: _Seconds
    since: float
    beat_at: float
    beat: Natural = 0

    def beaten(self, wall_s: float) -> Self:
        """Return the record after the next beat."""
        return replace(self, beat=self.beat + 1, beat_at=wall_s)

    def released(self) -> Self:
        """Return the record without its holder."""
        return replace(self, holder="", nonce="")

    def as_value(self) -> dict[str, Any]:
        """Return the record as it is stored."""
        return asdict(self)


def record_in(value: Value, name: str) -> LeaderRecord | None:
    """Return the record of the leader *name* in *value*. Raises BodyError if it is malformed."""
    return None if value is None else convert(LeaderRecord, value, f"the record of leader {name!r}")


def check_step(before: LeaderRecord | None, after: LeaderRecord) -> None:
    """Raise BadOperation unless a record may change from *before* to *after*.

    A program that is wrong must not give a term to two holders, nor take one back.
    """
    if before is not None and after.term == before.term:
        beats = (after.holder, after.nonce, after.beat) == (
            *(before.holder, before.nonce),
            before.beat + 1,
        )
        if after.holder and not beats:
            raise BadOperation(f"term {before.term} is {before.holder!r}'s, and stays so")
    elif not after.holder or after.term <= (before.term if before is not None else 0):
        raise BadOperation(f"term {after.term} with holder {after.holder!r} cannot follow {before}")


def checked_name(name: str, what: str = "the name of a leader") -> str:
    """Return *name*. Raises ConfigError if no leader can be called that."""
    text = sendable_text(name, what)
    if not 0 < len(text) <= NAME_CHARACTERS_MAX or not text.isprintable():
        raise ConfigError(
            f"{what} is 1 to {NAME_CHARACTERS_MAX} printable characters, not {name!r}"
        )
    return text


def checked_ttl_s(ttl_s: float) -> float:
    """Return *ttl_s*. Raises ConfigError if it is out of range."""
    if not TTL_S_MIN <= checked_seconds(ttl_s, "ttl_s") <= TTL_S_MAX:
        raise ConfigError(f"ttl_s is {TTL_S_MIN:g} to {TTL_S_MAX:g} seconds, not {ttl_s!r}")
    return float(ttl_s)


def checked_above(above: int) -> int:
    """Return *above*. Raises ConfigError if no term can follow it."""
    if type(above) is not int or not 0 <= above < TERM_MAX:
        raise ConfigError(f"above is a term, 0 to {TERM_MAX - 1}, not {above!r}")
    return above
