"""What is revoked: all that was issued in a name up to an instant.

The list stands in the file of keys, as lines of its own: it goes wherever the keys go. Names are
what certificates, tokens and logs show, so it takes no certificate to revoke one that is lost.
"""

from __future__ import annotations

import datetime as dt
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from ringpop_py.base.errors import ConfigError
from ringpop_py.net.security.identity import Identity, Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    Holder = tuple[Role, str]
    Revoked = Mapping[Holder, float]
    """Up to when, as `wall_s` counts, what names its holder is revoked."""

MARK: Final = "ringpop-revoked-1:"
REVOKED_MAX: Final = 1_000
REVOCABLE: Final = frozenset({Role.CLIENT, Role.ADMIN})
NOTHING: Final[Revoked] = MappingProxyType({})


def revoked_until(revoked: Revoked, identity: Identity) -> float:
    """Return the last instant at which what was issued to *identity* is revoked; -inf if none.

    A reader is revoked with the client of its name: older nodes read no line of a reader.
    """
    role = Role.CLIENT if identity.role is Role.READER else identity.role
    return revoked.get((role, identity.name), -math.inf)


def issued_after(revoked: Revoked, identity: Identity, now_s: float) -> float:
    """Return the instant of what is issued to *identity* now: never one that is revoked.

    Instants have whole seconds, and the clock of who revoked may be ahead.
    """
    return max(now_s, revoked_until(revoked, identity) + 1)


def revoked_in(text: str, path: str | Path) -> Revoked:
    """Return what *text*, which was read from *path*, says is revoked. Raises ConfigError."""
    found: dict[Holder, float] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith(MARK):
            continue
        holder, _, instant = line.removeprefix(MARK).strip().partition(" ")
        role, _, name = holder.partition("/")
        roles = {each.label: each for each in REVOCABLE}
        try:
            found[roles[role], unquote(name)] = dt.datetime.fromisoformat(instant).timestamp()
        except (KeyError, ValueError):
            raise ConfigError(
                f"cluster key {path}, line {number}: {MARK}ROLE/NAME INSTANT is expected; "
                "ringpopctl keys revoke writes such lines"
            ) from None
    return found


def lines_of(revoked: Revoked) -> str:
    """Return *revoked* as lines of a file. Raises ConfigError if it is too long."""
    if len(revoked) > REVOKED_MAX:
        raise ConfigError(
            f"more than {REVOKED_MAX} names would be revoked: another key revokes all of them"
        )
    return "".join(f"{MARK}{named(holder)} {instant_of(at)}\n" for holder, at in revoked.items())


def instant_of(at: float) -> str:
    """Return *at*, as `wall_s` counts, as text."""
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="seconds")


def revoking(revoked: Revoked, holders: Iterable[Holder], now_s: float) -> Revoked:
    """Return *revoked*, and with it what was issued to *holders* until now."""
    return {**revoked, **dict.fromkeys(holders, math.floor(now_s))}


def without(revoked: Revoked, holders: Collection[Holder]) -> Revoked:
    """Return *revoked* without *holders*. Raises ConfigError if none of them is in it."""
    if revoked.keys().isdisjoint(holders):
        raise ConfigError(f"nothing of {' or '.join(map(named, holders))} is revoked in the file")
    return {holder: at for holder, at in revoked.items() if holder not in holders}


def holders_of(name: str, role: Role | None) -> list[Holder]:
    """Return who has *name*: in *role*, or in all roles that can be revoked.

    Raises:
        ConfigError: it is the role of members.
    """
    if role is not None and role not in REVOCABLE:
        raise ConfigError(
            f"a {role.label} is not revoked by its name: members make their certificates from the "
            "key, as often as they like; another key ends them (ringpopctl keys add)"
        )
    return [(each, name) for each in sorted(REVOCABLE) if role in (None, each)]


def named(holder: Holder) -> str:
    """Return *holder* as text, without spaces."""
    role, name = holder
    return f"{role.label}/{quote(name, safe='')}"
