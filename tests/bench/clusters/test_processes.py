"""What is read from the kernel's tables."""

from __future__ import annotations

import os

import pytest

from tests.bench.clusters.processes import (
    cpu_seconds,
    cpu_ticks,
    interface_bytes,
    memory_bytes,
    rollup_bytes,
)

STAT = "7 (a) b) (c) S 1 7 7 0 -1 4194560 900 0 0 0 1234 66 0 0 20 0 1 0 100 1000 200 3 4"
ROLLUP = """\
55d0c0000000-7ffd00000000 ---p 00000000 00:00 0                          [rollup]
Rss:               53900 kB
Pss:               35752 kB
Pss_Anon:          30000 kB
"""
DEVICES = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets
    lo:     708      13    0    0    0     0          0         0      709      13
"""


def test_processor_time_is_that_of_the_process_and_of_the_kernel_for_it() -> None:
    assert cpu_ticks(STAT) == 1300


def test_memory_is_in_bytes() -> None:
    assert rollup_bytes(ROLLUP, "Rss") == 53900 * 1024
    assert rollup_bytes(ROLLUP, "Pss") == 35752 * 1024


def test_bytes_are_those_received() -> None:
    assert interface_bytes(DEVICES, "lo") == 708


def test_a_row_that_a_table_lacks_is_not_taken_for_zero() -> None:
    with pytest.raises(LookupError, match="no Swap"):
        rollup_bytes(ROLLUP, "Swap")
    with pytest.raises(LookupError, match="no interface eth0"):
        interface_bytes(DEVICES, "eth0")


def test_this_process_computes_and_holds_memory() -> None:
    pids = [os.getpid()]

    assert cpu_seconds(pids) > 0
    assert memory_bytes(pids, "Rss") >= memory_bytes(pids, "Pss") > 0
