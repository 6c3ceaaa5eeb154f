"""Who may use which keyspace: a role stands with the data, and not only with the endpoint.

Keyspaces whose names begin with ``~`` are the cluster's own. Each door to the rows of keyspaces
asks here before it looks for one: `KeyspaceServer` and `ClientServer` for calls, `HttpRoutes` for
HTTP. Lists and statistics of keyspaces are no rows; whoever may see the members may see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.base.arguments import checked_text
from ringpop_py.base.errors import ConfigError, KeyspaceForbidden
from ringpop_py.net.security.identity import Identity, Role

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN: Final = "~"
"""How the names of the cluster's own keyspaces begin."""
OPERATORS: Final = frozenset({Role.ADMIN, Role.MEMBER})
USERS: Final = OPERATORS | {Role.CLIENT, Role.READER}
"""The roles that may use the keyspaces of applications."""
USERS_OF: Final[Mapping[str, frozenset[Role]]] = {"~shuffles": OPERATORS | {Role.SHUFFLES}}
"""The roles that may use each of the cluster's own keyspaces; any other is for `OPERATORS`."""
NOBODY: Final = Identity("", Role.CLIENT, "a caller without an identity")
"""Who calls over HTTP without saying who they are, where nobody has to."""


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
