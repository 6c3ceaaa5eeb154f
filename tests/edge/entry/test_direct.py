"""Requests to the daemons of owners, past the middleware's own one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.address import Address
from ringpop_py.base.dialect import dialect_named
from ringpop_py.base.errors import CallError, ConnectRefused, PeerBusy, PeerFailed
from ringpop_py.edge.entry import direct
from ringpop_py.edge.entry.direct import OwnersAsked
from ringpop_py.edge.entry.owners import Follower, Ring
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.net.http.message import HttpReply, HttpRequest
from tests.edge.entry.daemons import DIALECT, ME, OTHER, OWNERS, POINTS, key_of

if TYPE_CHECKING:
    from ringpop_py.route.proxy.request import RequestOptions

GET = HttpRequest("GET", "/x")
REPLY = HttpReply(200, (), b"", OTHER)
AT = {ME: Address("127.0.0.1", 1), OTHER: Address("127.0.0.1", 2)}
REPEATABLE: RequestOptions = {"idempotent": True}
TIMEOUT_S = 10.0


class _Daemon:
    """In place of clients of daemons: the outcomes of requests, and what was asked of whom."""

    def __init__(self, *outcomes: HttpReply | CallError | None) -> None:
        self.asked: list[Address] = []
        self._outcomes = [*outcomes]

    def __call__(self, address: Address, **_: object) -> Any:  # noqa: ANN401 - a client
        self._address = address
        return self

    async def proxy(self, _key: str, _request: HttpRequest, **_: object) -> HttpReply:
        self.asked.append(self._address)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, CallError):
            raise outcome
        if outcome is None:
            await asyncio.Event().wait()
        assert outcome is not None
        return outcome


def ring_of(*names: str) -> Ring:
    ring = HashRing(
        {name: OWNERS[name] for name in names},
        dialect=dialect_named(DIALECT),
        points_count=POINTS,
    )
    return Ring(ME, "mark", ring, AT)


def asking(daemon: _Daemon, monkeypatch: pytest.MonkeyPatch) -> tuple[OwnersAsked, Follower]:
    monkeypatch.setattr(direct, "AsyncClient", daemon)
    follower = Follower("127.0.0.1:1", "it is a test")
    follower.ring = ring_of(ME, OTHER)
    return OwnersAsked(follower, TIMEOUT_S), follower


def test_the_owner_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = _Daemon(REPLY)
    asked, _ = asking(daemon, monkeypatch)

    assert asyncio.run(asked.reply(key_of(OTHER), GET, {})) is REPLY
    assert daemon.asked == [AT[OTHER]]


def test_nobody_is_asked_for_keys_of_this_host_or_without_a_ring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = _Daemon()
    asked, follower = asking(daemon, monkeypatch)

    assert asyncio.run(asked.reply(key_of(ME), GET, {})) is None
    follower.ring = None
    assert asyncio.run(asked.reply(key_of(OTHER), GET, {})) is None
    assert daemon.asked == []


def test_a_daemon_that_cannot_be_reached_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = _Daemon(ConnectRefused("nobody listens"), REPLY)
    asked, _ = asking(daemon, monkeypatch)

    async def ask() -> None:
        assert await asked.reply(key_of(OTHER), GET, {}) is None
        assert await asked.reply(key_of(OTHER), GET, {}) is None
        assert len(daemon.asked) == 1
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 1e9)
        assert await asked.reply(key_of(OTHER), GET, {}) is REPLY

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("error", "options", "is_final"),
    [
        (PeerBusy("too many requests"), {}, False),
        (PeerFailed("it broke off"), REPEATABLE, False),
        (PeerFailed("it broke off"), {}, True),
    ],
)
def test_only_what_may_run_again_goes_another_way(
    error: CallError, options: RequestOptions, monkeypatch: pytest.MonkeyPatch, *, is_final: bool
) -> None:
    asked, _ = asking(_Daemon(error), monkeypatch)

    if is_final:
        with pytest.raises(PeerFailed, match="broke off"):
            asyncio.run(asked.reply(key_of(OTHER), GET, options))
    else:
        assert asyncio.run(asked.reply(key_of(OTHER), GET, options)) is None


@pytest.mark.parametrize("options", [REPEATABLE, {}])
def test_an_owner_that_leaves_the_ring_is_given_up(
    options: RequestOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = _Daemon(None)  # it never answers
    asked, follower = asking(daemon, monkeypatch)

    async def ask() -> HttpReply | None:
        waiting = asyncio.create_task(asked.reply(key_of(OTHER), GET, options))
        while not daemon.asked:
            await asyncio.sleep(0)
        await asyncio.to_thread(follower.on_ring, ring_of(ME, OTHER))  # nothing has changed
        await asyncio.to_thread(follower.on_ring, None)  # nor does our own daemon say so
        assert not waiting.done()
        await asyncio.to_thread(follower.on_ring, ring_of(ME))
        return await waiting

    if options:
        assert asyncio.run(ask()) is None
    else:
        with pytest.raises(PeerFailed, match="owns this key no more"):
            asyncio.run(ask())
