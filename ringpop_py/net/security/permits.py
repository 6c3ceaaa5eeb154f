"""Who may use which keyspace, and how much: a role stands with the data, not only the endpoint.

`Newcomers` limits those of whom nothing is known yet.

Keyspaces whose names begin with ``~`` are the cluster's own. Each door to the rows of keyspaces
asks here before it looks for one: `KeyspaceServer` and `ClientServer` for calls, `HttpRoutes` for
HTTP. Lists and statistics of keyspaces are no rows; whoever may see the members may see them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ringpop_py.base.arguments import checked_text
from ringpop_py.base.errors import ConfigError, KeyspaceForbidden
from ringpop_py.net.security.identity import RESTRICTABLE, Identity, Role

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from ringpop_py.base.config.settings import WireLimits

BURST_S: Final = 2.0
"""Who took nothing for so many seconds may take what these permit together."""
WHO_MAX: Final = 10_000
"""At so many, those that may take a whole burst again are forgotten."""
NEWCOMERS_MAX: Final = 32
"""The most connections of strangers that introduce themselves at the same time."""
OWN: Final = "~"
"""How the names of the cluster's own keyspaces begin."""
OPERATORS: Final = frozenset({Role.ADMIN, Role.MEMBER})
USERS: Final = OPERATORS | {Role.CLIENT, Role.READER}
"""The roles that may use the keyspaces of applications."""
USERS_OF: Final[Mapping[str, frozenset[Role]]] = {"~shuffles": OPERATORS | {Role.SHUFFLES}}
"""The roles that may use each of the cluster's own keyspaces; any other is for `OPERATORS`."""
NOBODY: Final = Identity("", Role.CLIENT, "a caller without an identity")
"""Who calls over HTTP without saying who they are, where nobody has to."""


class Allowance:
    """What each of many may take, at *rate* units a second and in bursts of `BURST_S`. Pure.

    A take may be larger than what is left: then the wait is longer. Instants are those of a clock
    that the caller chooses.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._whole_at: dict[Hashable, float] = {}  # when each has a whole burst again

    def wait_s(self, who: Hashable, now: float) -> float:
        """Return the seconds after which *who* may take again; 0 if now."""
        left_s = BURST_S - (self._whole_at.get(who, now) - now)
        return max(0.0, 1 / self.rate - left_s)

    def take(self, who: Hashable, amount: float, now: float) -> None:
        """Note that *who* takes *amount* units."""
        if len(self._whole_at) >= WHO_MAX and who not in self._whole_at:
            self._whole_at = {each: at for each, at in self._whole_at.items() if at > now}
        self._whole_at[who] = max(self._whole_at.get(who, now), now) + amount / self.rate


class Newcomers:
    """Connections whose other ends have not said yet who they are. Pure.

    With keys each costs milliseconds of the process, before anything is proved. So at most
    `NEWCOMERS_MAX` are under way, which bounds what a round of the event loop takes. A host may
    have as many as it leaves free, so one that takes all it can does not keep others out.
    """

    def __init__(self) -> None:
        self._host_of: dict[object, str] = {}
        self._count_of: Counter[str] = Counter()

    def __str__(self) -> str:
        return "too many connections that have not introduced themselves are open"

    def __len__(self) -> int:
        return len(self._host_of)

    def have_place_for(self, host: str) -> bool:
        """Return whether a further one from *host* may begin."""
        return self._count_of[host] < NEWCOMERS_MAX - len(self._host_of)

    def add(self, who: object, host: str) -> None:
        """Add *who*, from *host*; those that are known may be added beyond the limit."""
        self._host_of[who] = host
        self._count_of[host] += 1

    def discard(self, who: object) -> None:
        """Forget *who*, which has introduced itself or is gone; the second time does nothing."""
        host = self._host_of.pop(who, None)
        if host is not None:
            self._count_of[host] -= 1
            self._count_of += Counter()  # forgets hosts without any

    @contextmanager
    def holding(self, who: object, host: str) -> Iterator[None]:
        """Add *who* for as long as the block runs."""
        self.add(who, host)
        try:
            yield
        finally:
            self.discard(who)


def may_use(keyspace: str, identity: Identity | None, *, writes: bool = False) -> bool:
    """Return whether *identity* may use *keyspace*; None is who does not have to prove anything.

    A reader may not if it *writes*; who has some keyspaces only, in no other.

    Without keys the calls of members look like those of everybody else. There, `check_name` in
    clients, and `NOBODY` over HTTP, keep programs out that have the name by mistake.
    """
    if identity is None:
        return True
    return identity.role in roles_for(keyspace, writes=writes) and identity.has(keyspace)


def roles_for(keyspace: str, *, writes: bool = False) -> frozenset[Role]:
    """Return the roles that may use *keyspace*; if *writes*, those that may also write to it."""
    roles = USERS_OF.get(keyspace, OPERATORS) if keyspace.startswith(OWN) else USERS
    return roles - {Role.READER} if writes else roles


def check_use(keyspace: str, identity: Identity | None, *, writes: bool = False) -> None:
    """Raise KeyspaceForbidden unless *identity* `may_use` the *keyspace*."""
    if not may_use(keyspace, identity, writes=writes):
        roles = " or ".join(role.label for role in sorted(roles_for(keyspace, writes=writes)))
        who = identity.name if identity is NOBODY else identity
        if identity is not None and not identity.has(keyspace):
            listed = ", ".join(identity.keyspaces)
            raise KeyspaceForbidden(
                f"keyspace {keyspace!r} is not for {identity.name}, which may use: {listed}"
            )
        own = "the cluster's own, " if keyspace.startswith(OWN) else ""
        raise KeyspaceForbidden(f"keyspace {keyspace!r} is {own}for the role {roles}, not {who}")


class ClientLimits:
    """How many requests, and how many bytes of them and their answers, a client may have a second.

    All that was issued to one name has them together. Only `RESTRICTABLE` roles are limited, and
    nobody who did not have to prove who it is.

    Args:
        requests_max, bytes_max: a second; None for no limit.
    """

    def __init__(self, requests_max: int | None, bytes_max: int | None) -> None:
        self._requests = Allowance(requests_max) if requests_max else None
        self._bytes = Allowance(bytes_max) if bytes_max else None

    def why_over(self, identity: Identity | None, now: float, *parts: bytes) -> str:
        """Return why a request of *identity* is refused; empty if not, and then it counts.

        Args:
            parts: the bytes of it that have come.
        """
        if identity is None or identity.role not in RESTRICTABLE:
            return ""
        who = identity.role, identity.name
        for allowance, name in ((self._requests, "requests"), (self._bytes, "bytes")):
            if allowance is not None and (wait_s := allowance.wait_s(who, now)) > 0:
                most = f"{allowance.rate} {name} a second (--client-{name}-max)"
                return f"{identity} has had its {most}: try again in {wait_s:.3g} s"
        if self._requests is not None:
            self._requests.take(who, 1, now)
        self.note_bytes(identity, sum(map(len, parts)), now)
        return ""

    def note_bytes(self, identity: Identity | None, size: int, now: float) -> None:
        """Note that further bytes came from *identity*, or are sent to it."""
        if self._bytes is not None and identity is not None and identity.role in RESTRICTABLE:
            self._bytes.take((identity.role, identity.name), size, now)


def limits_in(limits: WireLimits) -> ClientLimits | None:
    """Return the limits of clients in *limits*; None if clients have no limit."""
    most = limits.client_requests_max, limits.client_bytes_max
    return ClientLimits(*most) if any(most) else None


def signed(asked: Mapping[str, object], identity: Identity | None) -> dict[str, object]:
    """Return *asked*, a request for a keyspace, with the client that *identity* proves as creator.

    A request of members and admins stays as it is: they pass on what a client has asked for. Where
    nobody proves who they are, there is no creator.

    Raises:
        KeyspaceForbidden: *identity* may not use a keyspace of that name.
    """
    if identity is not None and identity.role in OPERATORS:
        return dict(asked)
    if isinstance(name := asked.get("name"), str):  # otherwise it is refused where it is read
        check_use(name, identity, writes=True)
    others = {name: value for name, value in asked.items() if name != "creator"}
    if identity is None:
        return others
    # What it has created counts for its name, whatever it is restricted to.
    return {**others, "creator": str(identity._replace(keyspaces=()))}


def check_name(keyspace: str) -> None:
    """Raise ConfigError unless *keyspace* is a text, and not one of the cluster's own names."""
    if checked_text(keyspace, "name").startswith(OWN):
        raise ConfigError(
            f"names that begin with {OWN} are those of the cluster's own keyspaces, not"
            f" {keyspace!r}: applications choose other names"
        )
