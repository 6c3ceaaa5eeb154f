"""ASGI applications behind the middleware: requests that the daemon replays, and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from ringpop_py.entry import following
from ringpop_py.entry.asgi import RingpopMiddleware
from ringpop_py.proxy.request import HttpReply
from tests.entry.daemons import LONG_S, ME, OTHER, Daemon, key_of, until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.entry.asgi import Receive, Scope, Send

MARK = "the daemon's"
SAID = {
    "x-forwarded-for": "10.0.0.9",
    "x-forwarded-host": "shop.example",
    "x-forwarded-proto": "https",
}


class Host:
    """A host with a daemon and an application, which notes what it is asked."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        self.asked: list[Scope] = []
        self.daemon = Daemon(HttpReply(200, (), b"elsewhere", OTHER))
        self._middleware = RingpopMiddleware(self._app, key="path:/carts/{key}", **options)
        self.follower = self._middleware._follower
        self.follower._client = self._middleware._client = self.daemon  # type: ignore[assignment]

    async def _app(self, scope: Scope, _: Receive, send: Send) -> None:
        self.asked.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    async def get(self, key: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        transport = httpx.ASGITransport(self._middleware)
        async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
            return await client.get(f"/carts/{key}", headers=headers)


async def test_a_key_of_this_host_is_answered_here_and_others_are_forwarded() -> None:
    host = Host()
    host.daemon.tell(MARK)

    assert (await host.get(key_of(ME))).content == b"here"
    assert (await host.get(key_of(OTHER))).content == b"elsewhere"


@pytest.mark.parametrize("is_followed", [True, False])
async def test_what_the_daemon_replays_is_answered_here_and_its_mark_is_not_shown(
    is_followed: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host()
    host.daemon.tell(MARK)
    if is_followed:
        assert host.follower.wait(LONG_S) is not None
    else:  # it has not heard of the daemon yet
        monkeypatch.setattr(host.follower, "start", lambda: None)

    answer = await host.get(key_of(OTHER), {"ringpop-forwarded": MARK, **SAID})

    assert answer.content == b"here"
    (scope,) = host.asked
    headers = dict(scope["headers"])
    assert b"ringpop-forwarded" not in headers
    assert headers[b"host"] == b"shop.example"
    assert (scope["client"], scope["scheme"]) == (("10.0.0.9", 0), "https")


@pytest.mark.parametrize("name", [ME, OTHER])
async def test_a_mark_of_somebody_else_means_nothing_and_is_not_shown(name: str) -> None:
    host = Host()
    host.daemon.tell(MARK)

    answer = await host.get(key_of(name), {"ringpop-forwarded": "forged", **SAID})

    assert answer.content == (b"here" if name == ME else b"elsewhere")
    for scope in host.asked:
        headers = dict(scope["headers"])
        assert b"ringpop-forwarded" not in headers
        assert headers[b"host"] == b"host"
        assert scope["client"][0] != "10.0.0.9"
    for request in host.daemon.forwarded:
        assert not {"ringpop-forwarded", "10.0.0.9"} & {*sum(request.headers, ())}


@pytest.mark.parametrize(("away", "status"), [("refuse", 503), ("here", 200)])
async def test_while_the_daemon_is_away_nothing_is_answered_as_before(
    away: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "RETRY_S", 0.01)
    host = Host(away=away)
    host.daemon.tell(MARK)
    assert (await host.get(key_of(ME))).content == b"here"
    host.daemon.fail()
    until(lambda: host.follower.ring is None)

    assert (await host.get(key_of(ME))).status_code == status
    replayed = await host.get(key_of(OTHER), {"ringpop-forwarded": MARK})
    assert replayed.status_code == status
