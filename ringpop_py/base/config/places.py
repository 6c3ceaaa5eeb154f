"""Where things are on a host if nobody says it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_VARIABLE: Final = "RINGPOP_CLUSTER_KEY"
"""The environment variable that names the file of a cluster's keys, if no setting does."""
RUNTIME_VARIABLE: Final = "XDG_RUNTIME_DIR"
SOCKET_NAME: Final = "ringpop.sock"
SYSTEM_SOCKET: Final = Path("/run/ringpop") / SOCKET_NAME


def default_socket(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where a daemon has its Unix socket if no path is given."""
    folder = environment.get(RUNTIME_VARIABLE)
    return Path(folder) / SOCKET_NAME if folder else SYSTEM_SOCKET
