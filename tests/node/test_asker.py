"""The asker: what this host's application does not take goes elsewhere, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio

from ringpop_py.base.errors import PeerBusy
from ringpop_py.member.swim.member import AWAY
from ringpop_py.node.asker import OwnerAsker
from ringpop_py.route.proxy.request import HttpReply, HttpRequest
from tests.state.keyspaces.clusters import a_cluster

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop

pytestmark = pytest.mark.virtual_time
GET: Final = HttpRequest("GET", "/x")


def serve(node: Ringpop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application beside *node* answers with its name."""

    async def replay(_request: HttpRequest) -> HttpReply:
        await trio.lowlevel.checkpoint()
        return HttpReply(200, (), node.name.encode(), node.name)

    monkeypatch.setattr(node.application, "replay", replay)


def refuse(node: Ringpop, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """No request reaches the application beside *node*; when each has come."""
    times: list[float] = []

    async def replay(_request: HttpRequest) -> HttpReply:
        await trio.lowlevel.checkpoint()
        times.append(round(trio.current_time() - began_at, 1))
        raise PeerBusy("the application does not listen")

    began_at = trio.current_time()
    monkeypatch.setattr(node.application, "replay", replay)
    return times


def asker_at(node: Ringpop) -> OwnerAsker:
    return OwnerAsker(node, {"GET"}, 10.0)


async def body_of(asker: OwnerAsker, key: str | None) -> bytes:
    reply = await asker.reply(key, GET)
    assert isinstance(reply, HttpReply)
    return reply.body


async def test_a_request_without_a_key_stays_here_while_the_application_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        serve(a, monkeypatch)
        serve(b, monkeypatch)

        assert {await body_of(asker_at(a), None) for _ in range(9)} == {b"a"}


async def test_a_request_without_a_key_that_is_refused_here_goes_to_another_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        await a.wait_until(lambda a: "b" in a.ring)
        times = refuse(a, monkeypatch)
        serve(b, monkeypatch)

        assert await body_of(asker_at(a), None) == b"b"
        assert times == [0.0]


async def test_a_request_for_a_key_of_this_host_waits_until_another_one_owns_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        await a.wait_until(lambda a: "b" in a.ring)
        key = next(key for key in map(str, range(99)) if a.lookup(key) == "a")
        times = refuse(a, monkeypatch)
        serve(b, monkeypatch)
        found: list[bytes] = []

        async def ask() -> None:
            found.append(await body_of(asker_at(a), key))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(2)
            a.labels.set_own(*AWAY)

        assert found == [b"b"]
        assert times == [0.0, 0.0, 1.0]


async def test_a_host_that_is_alone_tries_again_and_then_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        times = refuse(a, monkeypatch)

        for key in (None, "k"):
            times.clear()
            with pytest.raises(PeerBusy):
                await body_of(asker_at(a), key)
            assert [round(at - times[0], 1) for at in times] == [0.0, 0.0, 1.0, 4.5]
