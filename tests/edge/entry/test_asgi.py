"""ASGI applications behind the middleware: requests that the daemon replays, and others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from ringpop_py.base import arguments
from ringpop_py.base.errors import ConnectRefused, PeerFailed, RingpopError
from ringpop_py.edge.entry import finder, owners
from ringpop_py.edge.entry.asgi import RingpopMiddleware
from ringpop_py.route.proxy.request import HttpReply
from tests.edge.entry.daemons import LONG_S, ME, OTHER, Daemon, key_of, until
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ringpop_py.edge.entry.passing import Message, Receive, Scope, Send
    from ringpop_py.route.proxy.request import HttpRequest, RequestOptions

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
        options = {"key": "path:/carts/{key}", "timeout_s": 10, **options}  # a whole number, too
        self.middleware = RingpopMiddleware(self._app, **options)
        self.follower = self.middleware._follower
        self.follower._client = self.middleware._client = self.daemon  # type: ignore[assignment]

    async def _app(self, scope: Scope, _: Receive, send: Send) -> None:
        self.asked.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    async def get(self, key: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        transport = httpx.ASGITransport(self.middleware)
        async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
            return await client.get(f"/carts/{key}", headers=headers)


async def test_a_key_of_this_host_is_answered_here_and_others_are_forwarded() -> None:
    host = Host()
    host.daemon.tell(MARK)

    assert (await host.get(key_of(ME))).content == b"here"
    assert (await host.get(key_of(OTHER))).content == b"elsewhere"


def test_under_asyncio_the_daemon_of_the_owner_is_asked_before_that_of_this_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host()
    host.daemon.tell(MARK)
    replies = [HttpReply(200, (), b"directly", OTHER), None]
    asked: list[tuple[str, RequestOptions]] = []

    async def reply(key: str, _: HttpRequest, options: RequestOptions) -> HttpReply | None:
        asked.append((key, options))
        return replies.pop(0)

    monkeypatch.setattr(host.middleware._owners, "reply", reply)

    assert asyncio.run(host.get(key_of(OTHER))).content == b"directly"
    assert host.daemon.forwarded == []
    assert asyncio.run(host.get(key_of(OTHER))).content == b"elsewhere"
    assert [key for key, _ in asked] == [key_of(OTHER)] * 2
    assert asyncio.run(host.get(key_of(ME))).content == b"here"


@pytest.mark.parametrize("is_followed", [True, False])
async def test_a_replayed_request_is_answered_here_and_its_mark_is_not_shown(
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


@pytest.mark.parametrize("before", ["", "/pre"])
@pytest.mark.parametrize("is_raw", [True, False])
async def test_in_a_mounted_application_the_key_stands_in_the_whole_path(
    before: str,
    is_raw: bool,  # noqa: FBT001 - whether the server gives the path undecoded, too
) -> None:
    """As under uvicorn, which puts *before* before each path, also at the other host."""
    host = Host(key=f"path:{before}/my shop/carts/{{key}}")
    host.daemon.tell(MARK)
    mounted = Starlette(routes=[Mount("/my shop", host.middleware)])

    async def server(scope: Scope, receive: Receive, send: Send) -> None:
        changed = {"root_path": before, "path": before + scope["path"]}
        raw = before.encode() + scope["raw_path"] if is_raw else None
        await mounted({**scope, **changed, "raw_path": raw}, receive, send)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(server), base_url="http://host"
    ) as client:
        answer = await client.get(f"/my%20shop/carts/{key_of(OTHER)}?a=b")

    assert answer.content == b"elsewhere"
    assert host.daemon.forwarded[0].path == f"/my%20shop/carts/{key_of(OTHER)}?a=b"


@pytest.mark.parametrize("is_found", [True, False])
async def test_a_rule_that_never_finds_a_key_is_logged_once(
    is_found: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = Host(key=["header:X-User", "path:/shop/{key}"])
    host.daemon.tell(MARK)
    await host.get("7", {"x-user": key_of(ME)} if is_found else None)

    for _ in range(2 * finder.REQUESTS_MIN):
        await host.get("7?secret=1")

    events = events_in(caplog, "no-key-found")
    assert len(events) == (0 if is_found else 1)
    for event in events:
        assert event.fields["rule"] == "header:X-User, path:/shop/{key}"
        assert event.fields["path"] == "/carts/7"
        assert "secret" not in str(event)


async def test_a_key_that_is_too_long_is_a_mistake_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arguments, "ROUTED_KEY_CHARACTERS_MAX", 10)
    host = Host()
    host.daemon.tell(MARK)

    answer = await host.get("k" * 11)

    assert answer.status_code == 400
    assert answer.json()["message"] == "a key has at most 10 characters, not 11"
    assert not host.daemon.forwarded
    assert not host.asked


@pytest.mark.parametrize(("away", "status"), [("refuse", 503), ("here", 200)])
async def test_while_the_daemon_is_away_nothing_is_answered_as_before(
    away: str, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(owners, "RETRY_S", 0.01)
    host = Host(away=away)
    host.daemon.tell(MARK)
    assert (await host.get(key_of(ME))).content == b"here"
    host.daemon.fail()
    until(lambda: host.follower.ring is None)

    assert (await host.get(key_of(ME))).status_code == status
    replayed = await host.get(key_of(OTHER), {"ringpop-forwarded": MARK})
    assert replayed.status_code == status
    [event] = events_in(caplog, "ring-not-followed")
    said = {"refuse": "are refused with 503", "here": "every host answers for itself"}
    assert said[away] in str(event)


class Caller:
    """A caller of the middleware under asyncio, who may go away; *forwarding* has no end.

    Attributes:
        sent: what the middleware has answered.
    """

    def __init__(self) -> None:
        self.began, self.cancelled, self.leaves = (asyncio.Event() for _ in range(3))
        self.sent: list[Message] = []
        self._messages: list[Message] = [{"type": "http.request", "body": b"all of it"}]

    async def forwarding(self, _key: str, request: HttpRequest, **_: object) -> HttpReply:
        assert request.body == b"all of it"
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        raise AssertionError

    async def receive(self) -> Message:
        if self._messages:
            return self._messages.pop(0)
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)


def under_asyncio(act: Callable[[Host, Caller, asyncio.Task[None]], Awaitable[None]]) -> None:
    """Have a request forwarded, and *act* once it is; nothing may be left in the end."""
    host = Host()
    host.daemon.tell(MARK)
    assert host.follower.wait(LONG_S) is not None
    path = f"/carts/{key_of(OTHER)}"
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}

    async def main() -> None:
        caller = Caller()
        host.daemon.handle_or_proxy = caller.forwarding  # type: ignore[method-assign]
        asking = asyncio.create_task(
            host.middleware({**scope, "scheme": "http"}, caller.receive, caller.send)
        )
        await caller.began.wait()
        await act(host, caller, asking)
        await asyncio.wait_for(caller.cancelled.wait(), LONG_S)
        assert caller.sent == []
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_caller_that_goes_away_cancels_its_request_and_nothing_else() -> None:
    async def act(_: Host, caller: Caller, asking: asyncio.Task[None]) -> None:
        caller.leaves.set()
        await asking
        assert asking.cancelling() == 0

    under_asyncio(act)


def test_a_request_that_is_cancelled_by_its_server_is_over() -> None:
    async def act(_: Host, caller: Caller, asking: asyncio.Task[None]) -> None:
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not caller.leaves.is_set()

    under_asyncio(act)


def test_a_request_that_is_cancelled_while_its_caller_leaves_is_cancelled() -> None:
    async def act(_: Host, caller: Caller, asking: asyncio.Task[None]) -> None:
        caller.leaves.set()
        await asyncio.sleep(0)  # in which the watcher has seen it
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    under_asyncio(act)


@pytest.mark.parametrize(
    ("reply", "status", "body"),
    [
        (HttpReply(201, (("a", "b"),), b"done", OTHER), 201, b"done"),
        (PeerFailed("it broke off"), 502, None),
        (ConnectRefused("nobody"), 200, b"here"),
        (None, 200, b"here"),
    ],
    ids=["a reply", "an error", "no daemon", "owned here"],
)
def test_a_request_has_the_same_outcome_under_asyncio(
    reply: HttpReply | RingpopError | None, status: int, body: bytes | None
) -> None:
    async def act(host: Host, _: Caller, asking: asyncio.Task[None]) -> None:
        async def forwarded(*_: object, **__: object) -> HttpReply | None:
            if isinstance(reply, RingpopError):
                raise reply
            return reply

        asking.cancel()
        host.daemon.handle_or_proxy = forwarded  # type: ignore[method-assign]
        answer = await host.get(key_of(OTHER))
        assert answer.status_code == status
        assert body is None or answer.content == body

    under_asyncio(act)
