"""What a connection has shown of its other end, and for how long that counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.net.security.clock import EXPIRED, has_expired

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.net.security.identity import Identity

REVOKED: Final = "its certificate is revoked: if it should have one, give it another"


class Proof(NamedTuple):
    """See the module.

    Attributes:
        identity: whom the certificate names, if there is one.
        ends_at: when it ends, as `wall_s` counts.
        is_revoked: tells whether it has been revoked since.
    """

    identity: Identity | None = None
    ends_at: float = math.inf
    is_revoked: Callable[[], bool] = lambda: False

    def why_over(self, *, busy: bool = True) -> str | None:
        """Return why it counts no more; None if it does. It expires a bit earlier if not *busy*."""
        why = EXPIRED if has_expired(self.ends_at, busy=busy) else None
        if why is None and self.is_revoked():
            why = REVOKED
        return why and f"{self.identity}: {why}"


LASTING: Final = Proof()
"""That of a connection whose other end does not have to show anything."""
