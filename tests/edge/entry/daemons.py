"""A daemon of this host that says what a test wants, changes its mind, and goes away."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from ringpop_py.base.dialect import dialect_named
from ringpop_py.base.errors import ConnectRefused
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.net.wire.calls import Answer
from ringpop_py.route.proxy.entry import Follow, RingOwner, RingReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.net.wire.calls import Call
    from ringpop_py.route.proxy.request import HttpReply, HttpRequest

ME: Final = "me"
OTHER: Final = "other"
POINTS: Final = 10
OWNERS: Final = {name: name for name in (ME, OTHER)}
DIALECT: Final = "native"
AWAY: Final = ConnectRefused("no process listens there")
LONG_S: Final = 20.0


def key_of(name: str) -> str:
    """Return a key that the member *name* owns."""
    ring = HashRing(OWNERS, dialect=dialect_named(DIALECT), points_count=POINTS)
    return next(key for n in range(1_000) if ring.lookup(key := f"k{n}") == name)


class Daemon:
    """See the module. It stands for the clients of a follower and of a middleware alike.

    Attributes:
        forwarded: the requests that were to be forwarded.
        reply: what their owner answers.
        calls_count: how often it was asked.
    """

    peer = "here"

    def __init__(self, reply: HttpReply | None = None) -> None:
        self.forwarded: list[HttpRequest] = []
        self.reply = reply
        self.calls_count = 0
        self._said: RingReply | Exception = AWAY
        self._has_changed = threading.Condition()

    def tell(self, mark: str) -> None:
        """Have both members in the ring from now on, and replay with *mark*."""
        checksum = HashRing(OWNERS, dialect=dialect_named(DIALECT), points_count=POINTS).checksum
        owners = tuple(RingOwner(*pair) for pair in OWNERS.items())
        # A daemon that was restarted has the same ring; its answers differ by the mark.
        self._say(RingReply(ME, mark, DIALECT, POINTS, checksum, owners))

    def fail(self, error: Exception = AWAY) -> None:
        """Answer each question with *error* from now on, also those that wait."""
        self._say(error)

    def _say(self, said: RingReply | Exception) -> None:
        with self._has_changed:
            self._said = said
            self._has_changed.notify_all()

    def call(self, call: Call) -> Answer:
        """Answer as a daemon does: at once, unless the asker knows the ring."""
        self.calls_count += 1
        known = decode(Follow, call.arg3).checksum
        with self._has_changed:
            before = self._said
            if isinstance(before, RingReply) and known == before.checksum:
                self._has_changed.wait_for(lambda: self._said is not before)
            if isinstance(self._said, Exception):
                raise self._said
            return Answer(ok=True, arg3=encode(self._said))

    async def handle_or_proxy(
        self, _key: str, request: HttpRequest, **_: object
    ) -> HttpReply | None:
        """Forward *request*, if this daemon is there."""
        if isinstance(self._said, Exception):
            raise self._said
        self.forwarded.append(request)
        return self.reply


def until(condition: Callable[[], object]) -> None:
    """Return once *condition* is true, which a thread sees to."""
    give_up_at = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)
