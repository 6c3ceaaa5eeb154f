"""The identity of the caller of a request over HTTP, if the cluster has keys.

A caller shows a certificate (TLS), or a token: as a bearer (RFC 6750), or as the password that a
browser asks its user for (RFC 7617).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.address import Address
from ringpop_py.edge.web.refusals import HttpRefusal
from ringpop_py.net.security.identity import PROGRAMS, Identity, Role, refusal_of
from ringpop_py.net.security.proof import LASTING, Proof

if TYPE_CHECKING:
    from starlette.requests import Request

    from ringpop_py.net.security.credentials import KeyCredentials

CHALLENGE: Final = 'Basic realm="ringpop_py", Bearer'
NO_PROOF: Final = (
    "say who you are: Authorization: Bearer TOKEN (ringpopctl keys token FILE), the token as "
    "password, or a certificate of the cluster"
)
NO_TOKENS: Final = "this node has a certificate in place of a key, and accepts no tokens: show one"
NEEDS_TLS: Final = "others than this machine may reach this port, so it needs TLS: https://"


class Shown(NamedTuple):
    """The identity that a connection shows of its peer.

    Attributes:
        proof: its certificate, if it has one.
    """

    is_secure: bool
    proof: Proof = LASTING


SHOWN: Final[ContextVar[Shown]] = ContextVar("SHOWN")
"""The `Shown` of the connection that a request came over."""


class Callers:
    """See the module.

    Args:
        credentials: None in a cluster without keys, where no caller has to identify itself.
        cluster: the cluster's name.
        plain: whether requests without TLS are served.
        anybody: whether requests of callers without an identity are served, too.
    """

    def __init__(
        self, credentials: KeyCredentials | None, cluster: str, *, plain: bool, anybody: bool
    ) -> None:
        self._credentials = credentials
        self._cluster = cluster
        self._plain = plain
        self._anybody = anybody

    def identify(self, request: Request) -> Identity | None:
        """Return who sent *request*; None if no identity is needed. Raises HttpRefusal."""
        if self._credentials is None:
            return None
        shown = SHOWN.get()
        if not (shown.is_secure or self._plain):
            raise HttpRefusal(403, "TlsNeeded", NEEDS_TLS)
        try:
            named = self._named_in(request.headers.get("authorization", ""), self._credentials)
            if named is not None:
                return named
        except HttpRefusal:
            if not self._anybody:  # otherwise it may be meant for a proxy
                raise
        if why := shown.proof.why_over():
            raise _unknown(why)
        if shown.proof.identity is None and not self._anybody:
            raise _unknown(NO_PROOF)
        return shown.proof.identity

    def knows(self, request: Request) -> bool:
        """Return whether `identify` still accepts *request*: its proof may be over by now."""
        try:
            self.identify(request)
        except HttpRefusal:
            return False
        return True

    def _named_in(self, header: str, credentials: KeyCredentials) -> Identity | None:
        """Return whom the token in *header* names; None without one. Raises HttpRefusal."""
        if not header:
            return None
        from ringpop_py.net.security import tokens  # noqa: PLC0415 - an extra

        try:
            token = tokens.token_in(header)
            if not token:
                return None
            if not (keys := credentials.keys()):
                raise _unknown(NO_TOKENS)
            identity = tokens.identity_in_token(token, keys, credentials.revoked())
        except tokens.TokenRefused as error:
            raise _unknown(str(error)) from None
        if refusal_of(identity, self._cluster, PROGRAMS):
            raise _unknown("the token is of another cluster, or of a role that is not for HTTP")
        return identity


def check_role(request: Request, role: Role) -> None:
    """Raise HttpRefusal if the sender of *request* has a lesser role than *role*."""
    identity: Identity | None = request.state.identity
    if identity is not None and identity.role < role:
        text = f"this is for the role {role.label}, not {identity}"
        raise HttpRefusal(403, "Forbidden", text)


def _unknown(message: str) -> HttpRefusal:
    return HttpRefusal(401, "Unauthorized", message, {"www-authenticate": CHALLENGE})


def caller_of(request: Request) -> str:
    """Return the address of the sender of *request*, as far as the server knows it."""
    return "unknown" if request.client is None else str(Address(*request.client))
