"""Cuts between processes of one machine: nftables drops what one node's group sends to a port.

One node reaches another by connecting to its port, so to drop the packets of one's group to the
other's port is to drop what the one asks of the other. It takes root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX: Final = "ringpop_proof_"
"""Of a table; then the process that made it."""


def why_no_cuts() -> str | None:
    """None if cuts work here."""
    if os.geteuid() != 0:
        return "cuts take root"
    if shutil.which("nft") is None:
        return "cuts take nftables (nft)"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(Cuts())
        except subprocess.CalledProcessError as error:
            return f"nftables cannot be used here: {error.stderr.strip()}"
    return None


class Cuts:
    """The cuts of one run, in a table of its own; a context manager that removes it."""

    _made_count = 0

    def __init__(self) -> None:
        Cuts._made_count += 1
        self._table = f"{PREFIX}{os.getpid()}_{Cuts._made_count}"

    def __enter__(self) -> Self:
        _remove_leftovers()
        _nft(f"add table inet {self._table}")
        try:
            hook = "type filter hook output priority 0; policy accept;"
            _nft(f"add chain inet {self._table} out {{ {hook} }}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        _nft(f"delete table inet {self._table}")

    def set(self, dropped: Iterable[tuple[int, int]]) -> None:
        """Drop what these groups send to these ports, and nothing else."""
        rules = "".join(
            f"add rule inet {self._table} out meta skgid {group} tcp dport {port} drop\n"
            for group, port in dropped
        )
        _nft(f"flush chain inet {self._table} out\n{rules}")


def _remove_leftovers() -> None:
    """Remove tables of runs that were killed: they would cut what has their groups next."""
    listed = subprocess.run(["nft", "list", "tables"], text=True, capture_output=True, check=True)
    for line in listed.stdout.splitlines():
        name = line.split()[-1]
        if name.startswith(PREFIX):
            pid = name.removeprefix(PREFIX).partition("_")[0]
            if not Path("/proc", pid).exists():
                _nft(f"delete table inet {name}")


def _nft(script: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=script, text=True, capture_output=True, check=True)
