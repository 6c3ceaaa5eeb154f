"""The processes for shuffles of a cluster, as a client finds and calls them."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import (
    BodyError,
    RingpopError,
    ShuffleUnavailable,
)
from ringpop_py.client.lines.trust import key_file
from ringpop_py.client.sync.client import Client
from ringpop_py.flow.shuffle.client.lines import Line
from ringpop_py.flow.shuffle.client.members import seen_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.flow.shuffle.protocol import calls as c


PAUSE_S_MIN: Final = 0.02
PAUSE_S_MAX: Final = 1.0
"""A client's pauses, in seconds: after a first refusal, and after many."""
NONE_S: Final = 5.0
"""The seconds for which a client looks for a process where no member has one: nodes that have just
started may have one soon."""


class Cluster:
    """See the module. One thread uses it at a time.

    Args:
        peers: addresses of nodes; it is enough that one of them answers.
        timeout_s: how long a request may take, with all its attempts.
        cluster_key: see `Client`.

    Attributes:
        addresses: where processes listen, by the name of their node.
        has_none: whether no member had a process when they were last looked for, and none was away,
            which may have one when it is back.
    """

    def __init__(
        self, peers: Sequence[str], timeout_s: float, cluster_key: str | None = None
    ) -> None:
        self.peers = tuple(peers)
        self.timeout_s = timeout_s
        self.cluster_key = key_file(cluster_key)
        self.addresses: dict[str, str] = {}
        self.has_none = False
        self._lines: dict[str, Line] = {}
        self._rng = random.Random()

    def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            line.close()

    def look(self) -> None:
        """Find the processes. Raises ShuffleUnavailable if no node has one."""
        why, self.has_none = "", False
        for peer in self._rng.sample(self.peers, len(self.peers)):
            try:
                with Client(peer, cluster_key=self.cluster_key) as client:
                    found, away = seen_by(client, timeout_s=min(self.timeout_s, 5.0))
            except (RingpopError, BodyError) as error:
                why = f"{peer}: {error}"
                continue
            self.addresses = {name: each.address for name, each in found.items() if each}
            if self.addresses:
                return
            self.has_none = not away
            why = f"no member that {peer} sees was started with --shuffle-folder"
        raise ShuffleUnavailable(f"no process for shuffles was found: {why}")

    def _looked(self) -> str:
        """Find processes unless some are known; return the reason if that fails."""
        if not self.addresses:
            try:
                self.look()
            except ShuffleUnavailable as error:
                return str(error)
        return ""

    def line(self, address: str) -> Line:
        """Return a connection to the process at *address*. Raises ShuffleUnavailable."""
        line = self._lines.get(address)
        if line is None or not line.is_open:
            line = self._lines[address] = Line(address, min(self.timeout_s, 3.0), self.cluster_key)
        return line

    def ask(self, call: c.Call) -> c.Reply:
        """Return the reply of any process to *call*; they are tried one after the other.

        Raises:
            ShuffleError: the answer of a process.
            ShuffleUnavailable: if no process answered in time, or no member has one for `NONE_S`.
        """
        began = seen = time.monotonic()
        deadline = began + self.timeout_s
        pauses, why = Pauses(deadline), "no time was left"
        while pauses:
            why = self._looked() or why
            if self.addresses:
                seen = time.monotonic()
            elif self.has_none and time.monotonic() > seen + NONE_S:
                break
            addresses = list(self.addresses.values())
            for address in self._rng.sample(addresses, len(addresses)):
                try:
                    left = max(deadline - time.monotonic(), 0.001)
                    reply, _ = self.line(address).call(call, timeout_s=left)
                except ShuffleUnavailable as error:
                    why = str(error)
                else:
                    return reply
            pauses.wait()
            self.addresses = {}  # they may be others by now
        took_s = time.monotonic() - began
        raise ShuffleUnavailable(f"no process has answered within {took_s:.1f} s: {why}")


class Pauses:
    """Longer and longer pauses, until a deadline; true while there is time."""

    def __init__(self, deadline: float, growth: float = 2.0) -> None:
        self._deadline = deadline
        self._growth = growth
        self._rng = random.Random()
        self._pause_s = PAUSE_S_MIN

    def __bool__(self) -> bool:
        return time.monotonic() < self._deadline

    def wait(self) -> None:
        """Pause, for a random time, so that clients refused together do not return together."""
        left = self._deadline - time.monotonic()
        time.sleep(max(0.0, min(left, self._pause_s * self._rng.uniform(0.5, 1.0))))
        self._pause_s = min(self._growth * self._pause_s, PAUSE_S_MAX)
