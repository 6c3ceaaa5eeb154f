"""Certificates that a node issues to processes of its own, and renews as long as it runs."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.logs import log
from ringpop_py.net.security.authority import bundle_of
from ringpop_py.net.security.clock import wall_s
from ringpop_py.net.security.keys import write_secret
from ringpop_py.net.security.revocations import lines_of

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_py.net.security.credentials import KeyCredentials
    from ringpop_py.net.security.identity import Role
    from ringpop_py.net.security.keys import ClusterKey

LASTS_S: Final = 12 * 3600
"""How long such a certificate is valid, in seconds; it is renewed at half of that."""
RETRY_S: Final = 60
"""The seconds after which a certificate that could not be written is written again."""


class IssuedFile:
    """A file with a certificate of *role*, in the name of the node whose *credentials* these are.

    A process uses it in place of a key, and reads it again within seconds after it has changed. It
    also says what is revoked.

    Raises:
        ConfigError: it cannot be written, or the node has a certificate in place of a key.
    """

    def __init__(self, path: Path, credentials: KeyCredentials, role: Role) -> None:
        self.path = path
        self._credentials = credentials
        self._role = role
        self._tried_at_s = -math.inf
        self._write(credentials.keys())

    def keep_fresh(self) -> None:
        """Replace it if it is half over by the clock, or what the node trusts has changed."""
        now_s, keys = wall_s(), self._credentials.keys()
        trusted = keys, self._credentials.revoked()
        is_fresh = trusted == self._trusted and 0 <= now_s - self._issued_at_s < LASTS_S / 2
        # Without keys there is nothing to issue it from: it stays, and ends by itself.
        if is_fresh or not keys or 0 <= now_s - self._tried_at_s < RETRY_S:
            return
        self._tried_at_s = now_s
        try:
            self._write(keys)
        except ConfigError as error:
            log.warning("certificate-not-renewed", why=str(error))

    def _write(self, keys: tuple[ClusterKey, ...]) -> None:
        if not keys:
            raise ConfigError("a node that has a certificate in place of a key can issue none")
        now_s = wall_s()
        identity = self._credentials.identity._replace(role=self._role)
        bundle = bundle_of(keys, identity, dt.timedelta(seconds=LASTS_S))
        revoked = self._credentials.revoked()
        write_secret(self.path, bundle + lines_of(revoked), replace=True)
        self._trusted, self._issued_at_s, self._tried_at_s = (keys, revoked), now_s, -math.inf
