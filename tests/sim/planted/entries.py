"""Bugs to plant between HTTP that comes in at a daemon and the application that answers it."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import bug

ENTRY: Final = "edge/door/app.py"
RECEIVE: Final = "route/proxy/receive.py"
TROUBLED: Final = ("requests-troubled:0:1",)


ENTRY_BUGS: Final = (
    bug(
        "every method may be repeated",
        "node/asker.py",
        "                is_idempotent = request.method in self._idempotent\n",
        "                is_idempotent = True\n",
        "S11",
        *TROUBLED,
    ),
    bug(
        "a forwarded request of HTTP is not checked",
        RECEIVE,
        "            )\n        self._check_ownership(head)\n        self._application.admit()\n",
        "            )\n        self._application.admit()\n",
        "S10",
        *TROUBLED,
    ),
)
