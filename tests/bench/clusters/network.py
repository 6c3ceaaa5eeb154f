"""A network and a process tree of our own, that end with us; and how that network is cut.

All nodes live on the loopback interface of one fresh network namespace, so that its counters
count their traffic and nothing else. A cut takes the two sides of a cluster apart: the nodes of
each side run as a user of their own, whose packets leave from addresses of their side (otherwise
the kernel would pick any for connections), and packets between the sides are dropped on arrival,
without a word to the sender.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Final

from tests.bench.clusters.product import Seat

if TYPE_CHECKING:
    from collections.abc import Sequence

SIDES: Final = (1, 2)
NETWORK: Final = "127.9.0.0/16"
FIRST_USER_ID: Final = 20_000
TIMEOUT_S: Final = 10.0

ENDS_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL", "--")
ENTER: Final = ("unshare", "--net", "--pid", "--fork", "--kill-child")
LOOPBACK_UP: Final = ("ip", "link", "set", "lo", "up")
TABLE: Final = "cut"
RULES: Final = f"""
table ip {TABLE} {{
    chain arriving {{
        type filter hook input priority 0; policy accept;
        ip saddr 127.9.1.0/24 ip daddr 127.9.2.0/24 drop
        ip saddr 127.9.2.0/24 ip daddr 127.9.1.0/24 drop
    }}
}}
"""


def seats_for(count: int) -> list[Seat]:
    """*count* places, half of them on each side; addresses of 127.0.0.0/8 need no set-up."""
    half = (count + 1) // 2
    return [
        Seat(f"node-{number:02}", f"127.9.{side}.{number + 1}", side)
        for number in range(count)
        for side in [SIDES[number >= half]]
    ]


@cache
def ending_with_us() -> tuple[str, ...]:
    """What to put before a command so that it ends when we do, however we do; nothing, if none."""
    return ENDS_WITH_US if _succeeds([*ENDS_WITH_US, "true"]) else ()


@cache
def isolated() -> tuple[str, ...]:
    """What to put before a command so that it gets namespaces of its own; nothing, if it cannot.

    With the first process of a namespace all others in it end, and with the last the network.
    Whoever is not root may have one as the root of a user namespace, where that is allowed.
    """
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    enter = (*ending_with_us(), *ENTER, *user, "--mount-proc", "--")
    return enter if _succeeds([*enter, *LOOPBACK_UP]) else ()


def set_up() -> None:
    """In fresh namespaces: bring the loopback interface up."""
    _do(*LOOPBACK_UP)


def set_up_sides() -> str | None:
    """Make the two sides tell themselves apart by their addresses; a reason, if that fails."""
    missing = [tool for tool in ("ip", "nft", "setpriv") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)}: not installed"
    try:
        for side in SIDES:
            user, table = str(FIRST_USER_ID + side), str(100 + side)
            _do(*f"ip rule add pref {side} uidrange {user}-{user} lookup {table}".split())
            source = f"127.9.{side}.254"
            _do(*f"ip route add local {NETWORK} dev lo src {source} table {table}".split())
            _do(*as_side(side), "true")
        _do("ip", "rule", "add", "pref", "10", "lookup", "local")
        _do("ip", "rule", "del", "pref", "0")
        cut()
        mend()
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]}: {error.stderr.decode(errors='replace').strip()}"
    return None


def as_side(side: int) -> list[str]:
    """What to put before a command to run it as the user of *side*, who may read as we may."""
    command = ["setpriv", "--reuid", str(FIRST_USER_ID + side), "--clear-groups"]
    return [*command, "--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--"]


def cut() -> None:
    """From now on nothing passes between the sides."""
    _do("nft", "-f", "-", said=RULES)


def mend() -> None:
    """Everything passes again."""
    _do("nft", "delete", "table", "ip", TABLE)


def _do(*command: str, said: str = "") -> None:
    subprocess.run(command, input=said.encode(), check=True, capture_output=True, timeout=TIMEOUT_S)


def _succeeds(command: Sequence[str]) -> bool:
    try:
        _do(*command)
    except (OSError, subprocess.SubprocessError):
        return False
    return True
