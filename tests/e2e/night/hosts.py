"""Hosts of their own for the nodes of a test: network namespaces at one bridge. They take root."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from typing import Final, Self

NETWORK: Final = "10.9.8"
FIRST: Final = 10
TOOLS: Final = ("ip", "nft", "unshare", "nsenter", "mount", "prlimit")
_TABLE: Final = (
    "table inet night {\n"
    "chain out { type filter hook output priority 0; }\n"
    "chain in { type filter hook input priority 0; }\n"
    "}\n"
)
_NUMBERS: Final = itertools.count()


def why_no_hosts() -> str | None:
    """Return why there can be no hosts here; None if there can."""
    if os.geteuid() != 0:
        return "hosts of their own take root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"hosts of their own take {', '.join(missing)}"
    try:
        with Hosts(1) as hosts:
            hosts.drop(0, "in", f"ip saddr {NETWORK}.1")
    except subprocess.CalledProcessError as error:
        return f"hosts of their own cannot be made here: {error.stderr.strip()}"
    return None


class Hosts:
    """*count* hosts that reach each other; a context manager that removes them."""

    def __init__(self, count: int) -> None:
        self._prefix = f"night{os.getpid()}x{next(_NUMBERS)}"
        self._hub = f"{self._prefix}hub"
        self._names = [f"{self._prefix}h{number}" for number in range(count)]

    def __enter__(self) -> Self:
        try:
            _run("ip", "netns", "add", self._hub)
            _run("ip", "-n", self._hub, "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", self._hub, "link", "set", "br0", "up")
            for number, name in enumerate(self._names):
                _run("ip", "netns", "add", name)
                pair = ["type", "veth", "peer", "name", f"v{number}", "netns", self._hub]
                _run("ip", "-n", name, "link", "add", "eth0", *pair)
                _run("ip", "-n", self._hub, "link", "set", f"v{number}", "master", "br0", "up")
                _run("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
                _run("ip", "-n", name, "link", "set", "eth0", "up")
                _run("ip", "-n", name, "link", "set", "lo", "up")
                _run(*self.within(number), "nft", "-f", "-", text=_TABLE)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for name in (*self._names, self._hub):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    @staticmethod
    def address(number: int) -> str:
        """Return the address of the host *number*."""
        return f"{NETWORK}.{FIRST + number}"

    def within(self, number: int) -> list[str]:
        """Return the command before one that is to run on the host *number*."""
        return ["ip", "netns", "exec", self._names[number]]

    def drop(self, number: int, way: str, what: str = "") -> None:
        """Drop *what* goes ``in`` or ``out`` at a host; all, if nothing is said."""
        rule = f"add rule inet night {way} {way[0]}ifname eth0 {what} drop"
        _run(*self.within(number), "nft", "-f", "-", text=rule)

    def mend(self, number: int) -> None:
        """Drop nothing more at a host."""
        _run(*self.within(number), "nft", "flush", "table", "inet", "night")


def _run(*command: str, text: str | None = None) -> None:
    subprocess.run(command, input=text, text=True, capture_output=True, check=True)
