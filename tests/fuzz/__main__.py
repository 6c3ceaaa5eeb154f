"""``python -m tests.fuzz --count N``: so many spoilt calls, answers of HTTP, samples of Arrow."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import trio

from ringpop_py.base.logs import NAME
from tests.fuzz.answers import ask_for_spoilt, read_spoilt
from tests.fuzz.arrow import spoil
from tests.fuzz.node import attack

ROUND: int = 20_000


def main() -> int:
    """Attack nodes, one after the other, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="of each kind (100000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    options = parser.parse_args()
    logging.getLogger(NAME).setLevel(logging.CRITICAL)
    done, bugs = 0, Counter[str]()
    for number in range(-(-options.count // ROUND)):
        found = trio.run(attack, min(ROUND, options.count - done), options.seed + number)
        done += found.calls.total()
        bugs.update(found.bugs)
        sick = "" if found.healthy else ", and the node is NOT well"
        print(f"{done:,} calls, {bugs.total()} bugs, {found.grown_bytes >> 20} MiB more{sick}")
        if not found.healthy:
            return 1
    for first in range(0, options.count, ROUND):
        some, seed = min(ROUND, options.count - first), options.seed + first
        read, asked = read_spoilt(some, seed), trio.run(ask_for_spoilt, some, seed)
        bugs.update(read.bugs + asked.bugs)
        refused = asked.refused.total()
        print(f"{first + some:,} answers of HTTP, {refused} of the last {some} refused")
    # In a process of its own: what is not refused in time ends it.
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        for first in range(0, options.count, ROUND):
            some = min(ROUND, options.count - first)
            entered = processes.submit(spoil, some, options.seed + first).result()
            bugs.update(entered.bugs)
            refused = entered.refused.total()
            print(f"{first + some:,} samples of Arrow, {refused} of the last {some} refused")
    for bug, count in bugs.most_common():
        print(f"{count:6} {bug}")
    return 1 if bugs else 0


if __name__ == "__main__":
    sys.exit(main())
