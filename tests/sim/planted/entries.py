"""Bugs to plant between HTTP that comes in at a daemon and the application that answers it."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import Bug

ENTRY: Final = "edge/web/entry.py"
RECEIVE: Final = "route/proxy/receive.py"
TROUBLED: Final = ("entries-troubled:0:1",)


def _bug(name: str, path: str, old: str, new: str, found_by: str) -> Bug:
    return Bug(name, path, found_by, TROUBLED, ((old, new),))


ENTRY_BUGS: Final = (
    _bug(
        "every method may be repeated",
        ENTRY,
        "                    is_idempotent = request.method in self._options.idempotent\n",
        "                    is_idempotent = True\n",
        "S11",
    ),
    _bug(
        "a forwarded request of HTTP is not checked",
        RECEIVE,
        "            )\n        self._check_ownership(head)\n        self._application.admit()\n",
        "            )\n        self._application.admit()\n",
        "S10",
    ),
)
