"""The owners of keys, followed from the daemon of this host, which reports changes.

A thread waits for the daemon's answers with a client without trio. So this works under any server:
asyncio, trio, threads, processes that fork.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.address import Address
from ringpop_py.base.dialect import dialect_named
from ringpop_py.base.errors import BodyError, CallError, ConfigError, NoOwner
from ringpop_py.base.forks import FORKS
from ringpop_py.base.logs import log
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.client.sync.client import Client
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.route.proxy.entry import FOLLOW_ENDPOINT, Follow, RingReply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringpop_py.base.address import Peer

WAIT_S: Final = 40.0
"""The seconds within which a daemon answers, also if nothing has changed."""
MARK_S: Final = 2.0
"""The most seconds that a question for the mark alone waits."""
RETRY_S: Final = 0.5
"""The seconds from a failure until the daemon is asked again."""


class Ring(NamedTuple):
    """The ring as the member *local* sees it; requests that its daemon replays carry *mark*.

    Attributes:
        addresses: of the owners, as far as their daemon has told them.
    """

    local: str
    mark: str
    ring: HashRing
    addresses: Mapping[str, Address]

    def is_here(self, key: str) -> bool:
        """Return whether this host owns *key*; false if no member does."""
        try:
            return self.ring.lookup(key) == self.local
        except NoOwner:
            return False


class Follower:
    """A follower of the ring of the daemon at *peer*. Threads may share it; forks have their own.

    Attributes:
        ring: the last answer; None before the first one, and while the daemon is away.
        on_ring: called with each new one, in a thread of its own.

    Args:
        meanwhile: what happens to requests with a key while the daemon is away, for the log.
    """

    def __init__(self, peer: Peer | str | None, meanwhile: str) -> None:
        self._client = Client(peer)
        self._meanwhile = meanwhile
        self.ring: Ring | None = None
        self.on_ring: Callable[[Ring | None], None] = lambda _ring: None
        self._told = threading.Event()
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._forks_count = -1

    def start(self) -> None:
        """Follow, if this process does not yet."""
        if self._forks_count == FORKS.count:
            return
        with self._lock:
            if self._forks_count != FORKS.count:
                self._forks_count = FORKS.count
                self.ring, self._told = None, threading.Event()
                threading.Thread(target=self._run, name="ringpop ring", daemon=True).start()

    def wait(self, seconds: float) -> Ring | None:
        """Return the ring; wait for it at most *seconds*."""
        self.start()
        self._told.wait(seconds)
        return self.ring

    def knows_mark(self, mark: str) -> bool:
        """Return whether *mark* is the daemon's; ask the daemon if it is not the mark known here.

        A daemon that was restarted just now has another mark. Questions are asked one at a time:
        anybody can send a wrong mark.
        """
        ring = self.ring
        if ring is not None and ring.mark == mark:
            return True
        if not self._asking.acquire(blocking=False):
            return False
        try:
            return self._told_now(None, MARK_S).mark == mark
        except (CallError, BodyError, ConfigError):
            return False
        finally:
            self._asking.release()

    def _run(self) -> None:
        is_away = False
        while True:
            known = self.ring
            try:
                self.ring = self._asked(known)
                self._told.set()
                if self.ring is not known:
                    self.on_ring(self.ring)
                if is_away:
                    is_away = False
                    text = f"keys have owners again: the daemon at {self._client.peer} answers"
                    log.warning("ring-followed", text=text)
                continue
            except (CallError, BodyError, ConfigError) as error:
                if not is_away:
                    text = (
                        f"no key has an owner for now, and {self._meanwhile}: the daemon at "
                        f"{self._client.peer} does not say who owns keys: {error}"
                    )
                    log.warning("ring-not-followed", text=text)
            except Exception:  # a bug must not leave an old ring in force
                log.exception("ring-not-followed")
            self.ring, is_away = None, True
            self._told.set()
            time.sleep(RETRY_S)

    def _told_now(self, checksum: int | None, ttl_s: float) -> RingReply:
        body = encode(Follow(checksum))
        answer = self._client.call(Call(NODE_SERVICE, FOLLOW_ENDPOINT, b"", body, ttl_s=ttl_s))
        if not answer.ok:
            raise BodyError("the daemon does not tell its ring")
        return decode(RingReply, answer.arg3)

    def _asked(self, known: Ring | None) -> Ring:
        told = self._told_now(None if known is None else known.ring.checksum, WAIT_S)
        if known is not None and (known.ring.checksum, known.mark) == (told.checksum, told.mark):
            return known
        owners = {owner.name: owner.identity for owner in told.owners}
        ring = HashRing(owners, dialect=dialect_named(told.dialect), points_count=told.points_count)
        addresses = {each.name: Address(each.host, each.port) for each in told.owners if each.port}
        return Ring(told.name, told.mark, ring, addresses)
