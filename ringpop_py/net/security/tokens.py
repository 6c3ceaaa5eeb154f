"""Tokens for callers over HTTP that show no certificate: JSON Web Tokens (RFC 7519).

A key of the cluster signs them, and every member that has this key accepts them.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from typing import TYPE_CHECKING, Final

import jwt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ringpop_py.net.security.clock import wall_s
from ringpop_py.net.security.identity import Identity, parse_identity
from ringpop_py.net.security.revocations import NOTHING, issued_after, revoked_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.net.security.keys import ClusterKey
    from ringpop_py.net.security.revocations import Revoked

ALGORITHM: Final = "HS256"
AUDIENCE: Final = "ringpop http"
CHARACTERS_MAX: Final = 4_096
_INFO: Final = b"ringpop http tokens HS256 1"
_SECRET_BYTES: Final = 32


class TokenRefused(ValueError):
    """A token that does not prove an identity."""


def issue_token(
    key: ClusterKey, identity: Identity, lasts: dt.timedelta, revoked: Revoked = NOTHING
) -> str:
    """Return a token that names *identity*, valid for *lasts* from now, which is not *revoked*."""
    now_s = issued_after(revoked, identity, wall_s())
    ends = dt.datetime.fromtimestamp(now_s, dt.UTC) + lasts
    claims = {"sub": str(identity), "aud": AUDIENCE, "iat": int(now_s), "exp": ends}
    return jwt.encode(claims, _secret_of(key), ALGORITHM, {"kid": key.id})


def identity_in_token(
    token: str, keys: Iterable[ClusterKey], revoked: Revoked = NOTHING
) -> Identity:
    """Return whom *token* names.

    Args:
        keys: the keys that are trusted.

    Raises:
        TokenRefused: none of *keys* has signed *token*, it has expired, or it is *revoked*.
    """
    if len(token) > CHARACTERS_MAX:
        raise TokenRefused("the token is too long")
    try:
        key_id = jwt.get_unverified_header(token).get("kid")
        known = {key.id: key for key in keys}
        if key_id not in known:
            raise TokenRefused("the token is not signed by a key that is trusted here")
        claims = jwt.decode(
            token,
            _secret_of(known[key_id]),
            algorithms=[ALGORITHM],
            audience=AUDIENCE,
            # A clock that is ahead where a token is made must not make it useless elsewhere.
            options={"require": ["sub", "exp"], "verify_iat": False},
        )
    except jwt.ExpiredSignatureError:
        raise TokenRefused("the token has expired: ringpopctl keys token makes one") from None
    except (jwt.InvalidTokenError, RecursionError):
        raise TokenRefused("this is not a token of the cluster") from None
    identity = parse_identity(str(claims["sub"]))
    if identity is None:
        raise TokenRefused("the token names nobody")
    if claims.get("iat", 0) <= revoked_until(revoked, identity):
        raise TokenRefused("the token is revoked: ringpopctl keys token makes another")
    return identity


def token_in(header: str) -> str:
    """Return the token in *header*, `Authorization`; empty if it has none. Raises TokenRefused."""
    scheme, _, rest = header.partition(" ")
    match scheme.lower():
        case "bearer":
            return rest.strip()
        case "basic":
            try:
                pair = base64.b64decode(rest.strip(), validate=True)
                return pair.partition(b":")[2].decode("ascii")
            except (binascii.Error, ValueError):
                text = "Authorization: this is not a user and a password"
                raise TokenRefused(text) from None
        case _:
            return ""


def _secret_of(key: ClusterKey) -> bytes:
    """Return the secret that signs the tokens of *key*, and serves for nothing else."""
    return HKDF(hashes.SHA256(), _SECRET_BYTES, salt=None, info=_INFO).derive(key.secret)
