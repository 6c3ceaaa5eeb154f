"""The secret with which a daemon marks requests that it replays, for a middleware that needs it."""

from __future__ import annotations

import secrets

from ringpop_py.net.http.message import MARK


class ReplayMark(list[tuple[bytes, bytes]]):
    """The headers that mark the requests of one run of a daemon.

    Args:
        always: whether requests have it from the start; otherwise once somebody has asked for it.
            An application without a middleware would not remove it, and may show it to anybody.
    """

    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self._secret = secrets.token_hex(16)
        if always:
            self.told()

    def told(self) -> str:
        """Return the secret, for a middleware; requests have it from now on."""
        self[:] = [(MARK.encode(), self._secret.encode())]
        return self._secret
