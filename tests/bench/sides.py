"""Servers and clients that a benchmark starts: each a process of its own, on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).parents[2]
START_S: Final = 30.0


class Side(NamedTuple):
    """How to start one implementation."""

    server: Sequence[str]
    client: Sequence[str]
    environment: dict[str, str]


@contextmanager
def serving(side: Side) -> Iterator[int]:
    """The port of *side*'s server, which runs inside the block."""
    environment = os.environ | side.environment
    with subprocess.Popen(side.server, stdout=subprocess.PIPE, env=environment, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.kill()


def output(command: Sequence[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
        cwd=ROOT,
        check=True,
        timeout=START_S,
        text=True,
    )
    return done.stdout


def python_side(module: str, server: str, client: str) -> Side:
    """Return the side whose *server* and *client* are modes of *module*'s command line."""
    start = (sys.executable, "-m", module)
    return Side((*start, server), (*start, client), {})
