"""How often functions of ringpop_py are entered or resumed for one request, at both nodes.

Counted, too, are the modules that take part, and how often the way leads from one into another: who
follows a request through the source makes these moves. Unlike a time, these counts are the same on
each machine, so a test keeps them within their budgets. Two
nodes share one process, with a network and a store in memory. The clock stands still, so that no
gossip and no timer runs between. What trio and the standard library do is not counted, nor are the
constructors that dataclasses and named tuples generate: their code is in no file.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
import trio.testing

from ringpop_py import Request
from tests.bench.keyspaces.nodes import hush
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = str(ROOT / "ringpop_py") + "/"
WARM_UP: Final = 10
TURNS: Final = 21  # an odd number: the median is a count that was seen
CLUSTERS: Final = 3
"""Whether a call's deadline is the next one of its node, and so moves a sleep, is up to chance."""


class Activation(NamedTuple):
    """A function: its package, for example `ringpop_py.net.wire`, its file, and its name."""

    package: str
    file: str
    function: str


class Counts(NamedTuple):
    """The way of one request, or the most that it may have of each."""

    activations: int
    moves: int
    modules: int


BUDGETS: Final = {
    "proxied call": Counts(80, 72, 26),
    "get at the owner": Counts(16, 14, 9),
    "update at the owner": Counts(69, 50, 28),
    "update elsewhere": Counts(147, 115, 51),
}
"""The most of each kind of request."""
Way = list[Activation]


def counted() -> dict[str, Way]:
    """Return, for each kind of request of `BUDGETS`, the activations of a usual one, in order.

    It is the shortest of those of several clusters.
    """
    found = [
        trio.run(_counted, clock=trio.testing.MockClock(autojump_threshold=0))
        for _ in range(CLUSTERS)
    ]
    return {name: min((ways[name] for ways in found), key=len) for name in BUDGETS}


async def _counted() -> dict[str, Way]:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        b.handler("/echo")(lambda call: call.body)
        keyspace = await a.open_keyspace("counted", partitions=8)
        await all_online(keyspace, "a", "b")
        proxied = next(key for key in map(str, range(1_000)) if a.lookup(key) == "b")
        here, elsewhere = key_at(keyspace, "a"), key_at(keyspace, "b")
        requests: dict[str, Callable[[], Awaitable[object]]] = {
            "proxied call": lambda: a.handle_or_proxy(proxied, Request("/echo", b"x")),
            "get at the owner": lambda: keyspace.get(here),
            "update at the owner": lambda: keyspace.update(here, "add", 1),
            "update elsewhere": lambda: keyspace.update(elsewhere, "add", 1),
        }
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        await trio.testing.wait_all_tasks_blocked()
        clock.autojump_threshold = float("inf")
        found = {name: await _usual(request) for name, request in requests.items()}
        clock.autojump_threshold = 0
        return found


async def _usual(request: Callable[[], Awaitable[object]]) -> Way:
    """Count several requests, one at a time; return the one in the middle."""
    for _ in range(WARM_UP):
        await request()
    turns = [await _once(request) for _ in range(TURNS)]
    middle = median(map(len, turns))
    return next(turn for turn in turns if len(turn) == middle)


async def _once(request: Callable[[], Awaitable[object]]) -> Way:
    seen: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        # A call is also each time that a coroutine or a generator goes on.
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            seen.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    await trio.testing.wait_all_tasks_blocked()  # what the request before left behind
    sys.setprofile(note)
    try:
        await request()
    finally:
        sys.setprofile(None)
    return [_named(*entered) for entered in seen]


def _named(path: str, function: str) -> Activation:
    file = Path(path).relative_to(ROOT)
    return Activation(".".join(file.parts[:-1]), file.name, function)


def counts_of(way: Way) -> Counts:
    """Return the size of *way*."""
    modules = [f"{package} {file}" for package, file, _ in way]
    return Counts(len(way), sum(a != b for a, b in pairwise(modules)) + 1, len({*modules}))


def main(arguments: list[str]) -> None:
    """Print the activations of each kind of request by package, or by function."""
    parser = argparse.ArgumentParser(prog="activations", description=__doc__)
    parser.add_argument(
        "--by",
        choices=Activation._fields,
        default="package",
        help="how the counts are broken down (package)",
    )
    parser.add_argument(
        "--only", choices=list(BUDGETS), metavar="KIND", help=f"of: {', '.join(BUDGETS)} (all)"
    )
    options = parser.parse_args(arguments)
    width = 1 + Activation._fields.index(options.by)
    for name, way in counted().items():
        if options.only in (None, name):
            print(f"{name}: {counts_of(way)}, at most {BUDGETS[name]}")
            grouped = Counter(" ".join(activation[:width]) for activation in way)
            for group, count in grouped.most_common():
                print(f"{count:6} {group}")


if __name__ == "__main__":
    hush()
    main(sys.argv[1:])
