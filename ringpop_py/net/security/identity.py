"""The identity that a certificate gives its holder, and what that permits.

The identity is a URI among the certificate's alternative names: ``ringpop://CLUSTER/ROLE/NAME``.
One that has some keyspaces only is ``ringpop://CLUSTER/ROLE+keyspaces/NAME?keyspaces=A,B/*``: older
nodes do not know such a role, and refuse it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME: Final = "ringpop://"
RESTRICTED: Final = "+keyspaces"
QUERY: Final = "?keyspaces="


class Role(IntEnum):
    """What a process may call; each role may call what those before it may.

    SHUFFLES: the calls by which the process for shuffles finds others of its kind, and reads and
    writes records; `permits` says of which keyspace. READER: also looks at all that nodes tell, and
    reads keyspaces, but `permits` lets it write none. CLIENT: also handlers, jobs and shuffles.
    ADMIN: also whatever changes a node, or drops data. MEMBER: also gossip, and forward the
    requests of others.
    """

    SHUFFLES = 0
    READER = 1
    CLIENT = 2
    ADMIN = 3
    MEMBER = 4

    @property
    def label(self) -> str:
        """The role as text."""
        return self.name.lower()


ANYBODY: Final = frozenset(Role)
PROGRAMS: Final = ANYBODY - {Role.SHUFFLES}
"""The roles of callers over HTTP."""
SHUFFLE_CALLERS: Final = ANYBODY - {Role.READER}
"""The roles of callers of the processes that hold the rows of shuffles."""
RESTRICTABLE: Final = frozenset({Role.READER, Role.CLIENT})
"""The roles that may be restricted to some keyspaces, and have limits: others run the cluster."""
MEMBERS: Final = frozenset({Role.MEMBER})
"""The roles of nodes."""
SHUFFLERS: Final = MEMBERS | {Role.SHUFFLES}
"""The roles of processes for shuffles: some nodes can issue no certificates."""


class Identity(NamedTuple):
    """A process of the cluster *cluster*, as a certificate calls it.

    Attributes:
        name: a member's name; for other processes, a name for people.
        keyspaces: the only ones that it may use, by name or, if that ends with ``*``, by how their
            names begin; empty if it may use all that its role may.
    """

    cluster: str
    role: Role
    name: str
    keyspaces: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The URI in a certificate."""
        cluster, name = quote(self.cluster, safe=""), quote(self.name, safe="")
        if not self.keyspaces:
            return f"{SCHEME}{cluster}/{self.role.label}/{name}"
        listed = ",".join(quote(each, safe="*") for each in self.keyspaces)
        return f"{SCHEME}{cluster}/{self.role.label}{RESTRICTED}/{name}{QUERY}{listed}"

    def has(self, keyspace: str) -> bool:
        """Return whether *keyspace* is one of its `keyspaces`, if it has only some."""
        return not self.keyspaces or any(
            keyspace.startswith(each[:-1]) if each.endswith("*") else keyspace == each
            for each in self.keyspaces
        )


class Issued(NamedTuple):
    """A certificate and its private key, in PEM."""

    certificate: bytes
    private_key: bytes


def refusal_of(identity: Identity | None, cluster: str, roles: frozenset[Role]) -> str | None:
    """Return why a connection with *identity* is refused; None if it is accepted.

    Args:
        cluster: the name of our own cluster; empty if any will do.
        roles: those that the other end may have. Whoever calls a node wants `MEMBERS`.
    """
    if identity is None:
        return "its certificate names nobody (a URI ringpop://CLUSTER/ROLE/NAME)"
    # A program need not know its cluster's name, on either side.
    named = identity.cluster or identity.role in SHUFFLERS
    if cluster and named and identity.cluster != cluster:
        return "its certificate is of another cluster"
    if identity.role not in roles:
        wanted = " or ".join(role.label for role in sorted(roles))
        return f"its role is {identity.role.label}, not {wanted}"
    return None


def identity_in(certificate: Mapping[str, Any] | None) -> Identity | None:
    """Return whom *certificate* names, as from `ssl.SSLObject.getpeercert`; None if nobody."""
    for kind, text in (certificate or {}).get("subjectAltName", ()):
        if kind == "URI" and text.startswith(SCHEME):
            return parse_identity(text)
    return None


def parse_identity(text: str) -> Identity | None:
    """Return the identity that is written as *text*; None if *text* is not one."""
    cluster, slash, rest = text.removeprefix(SCHEME).partition("/")
    label, second, path = rest.partition("/")
    name, query, listed = path.partition(QUERY)
    roles = {f"{each.label}{RESTRICTED}": each for each in RESTRICTABLE}
    if not query:
        roles = {each.label: each for each in Role}
    keyspaces = tuple(map(unquote, listed.split(","))) if query else ()
    if not (slash and second and name and all(keyspaces)) or label not in roles or "/" in path:
        return None
    return Identity(unquote(cluster), roles[label], unquote(name), keyspaces)
