"""What the kernel knows of processes and of the loopback interface."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

PROC: Final = Path("/proc")
TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
KIB: Final = 1024


def cpu_seconds(pids: Iterable[int]) -> float:
    """What *pids* have computed since they began, in user mode and in the kernel."""
    ticks = (cpu_ticks((PROC / str(pid) / "stat").read_text()) for pid in pids)
    return sum(ticks) / TICKS_A_SECOND


def cpu_ticks(stat: str) -> int:
    """``utime`` and ``stime`` of a ``/proc/PID/stat``; the name in it may hold anything."""
    _, _, rest = stat.rpartition(")")
    fields = rest.split()
    return int(fields[11]) + int(fields[12])


def memory_bytes(pids: Iterable[int], field: str) -> int:
    """The sum over *pids* of ``Rss`` or ``Pss``, where what is shared is counted by its share."""
    return sum(rollup_bytes((PROC / str(pid) / "smaps_rollup").read_text(), field) for pid in pids)


def rollup_bytes(rollup: str, field: str) -> int:
    """The value of one field of a ``/proc/PID/smaps_rollup``."""
    for line in rollup.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * KIB
    raise LookupError(f"no {field} in {rollup!r}")


def loopback_bytes() -> int:
    """What came in on the loopback interface of our network, which is all that was sent there."""
    return interface_bytes((PROC / "net" / "dev").read_text(), "lo")


def interface_bytes(devices: str, interface: str) -> int:
    """The bytes received of one interface of a ``/proc/net/dev``."""
    for line in devices.splitlines():
        name, _, values = line.partition(":")
        if name.strip() == interface:
            return int(values.split()[0])
    raise LookupError(f"no interface {interface} in {devices!r}")
