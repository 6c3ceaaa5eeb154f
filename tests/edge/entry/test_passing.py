"""What a server is told of an answer in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from ringpop_py.base.errors import PeerFailed
from ringpop_py.base.values.declared import encode
from ringpop_py.edge.entry import http
from ringpop_py.edge.entry.passing import TRAILERS, Forwarding, pass_on
from ringpop_py.net.http.message import CONTINUE, HttpReply, HttpRequest
from ringpop_py.net.http.stream_calls import PieceHead
from ringpop_py.net.wire.calls import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.edge.entry.passing import Message
    from ringpop_py.net.http.stream_calls import StreamHead

GET = HttpRequest("GET", "/x")
SUM = ("x-sum", "5")
LAST = PieceHead(headers=(SUM,), is_last=True)
BROKEN = Answer(ok=False, arg3=b"the application broke off")


class TooSlowError(Exception):
    """What a door raises from its `Receive`."""


def reply(*headers: tuple[str, str], status: int = 200) -> HttpReply:
    return HttpReply(status, headers, b"", "owner", "name")


async def nobody(_request: HttpRequest) -> None:
    """Forward nothing."""


async def passed(
    began: HttpReply,
    *answers: Answer,
    extensions: tuple[str, ...] = (),
    too_long: bool = False,
    refusal: Exception | None = None,
    until_closing: Callable[[], Awaitable[object]] = trio.sleep_forever,
) -> list[Message]:
    """What the server gets for an answer that begins with *began*, and goes on with *answers*."""
    told: list[Message] = []
    left = [*answers]

    async def on_stream(head: StreamHead, _data: bytes) -> Answer:
        if head.what == "read" and not left:
            await trio.sleep_forever()
        return left.pop(0) if head.what == "read" else Answer(ok=True)

    async def send(message: Message) -> None:
        told.append(message)

    async def receive() -> Message:
        if refusal is not None:
            raise refusal
        await trio.sleep_forever()
        raise AssertionError

    scope: dict[str, Any] = {"extensions": {name: {} for name in extensions}}
    await pass_on(
        scope,
        receive,
        send,
        (GET, began, Forwarding(nobody, on_stream, until_closing)),
        http.Options(),
        goes_on=refusal is not None,
        is_too_long=lambda: too_long,
    )
    return told


@pytest.mark.parametrize("can_trail", [True, False])
async def test_trailers_are_passed_on_where_the_server_can_send_them(*, can_trail: bool) -> None:
    extensions = (TRAILERS,) if can_trail else ()
    start, *_, last = await passed(
        reply(("trailer", "x-sum"), ("a", "b")),
        Answer(ok=True, arg2=encode(LAST), arg3=b"12345"),
        extensions=extensions,
    )

    named = [(b"trailer", b"x-sum")] if can_trail else []
    assert start["headers"] == [(b"a", b"b"), *named]
    assert start.get("trailers", False) is can_trail
    trailers = {"type": TRAILERS, "headers": [(b"x-sum", b"5")]}
    whole = {"type": "http.response.body", "body": b"12345", "more_body": False}
    assert last == (trailers if can_trail else whole)


async def test_an_answer_that_breaks_off_is_no_whole_one() -> None:
    with pytest.raises(PeerFailed, match="broke off"):
        await passed(reply(), BROKEN)


async def test_one_that_breaks_off_before_it_begins_is_an_error_of_its_own() -> None:
    start, _ = await passed(reply(status=CONTINUE), BROKEN)
    assert start["status"] == PeerFailed.http_status


async def test_a_body_that_is_too_long_is_refused_unless_the_answer_has_begun() -> None:
    start, _ = await passed(reply(status=CONTINUE), BROKEN, too_long=True)
    assert start["status"] == 413


async def test_a_body_that_is_refused_on_the_way_raises_that_refusal() -> None:
    """It does not come in a group: the door that has made it answers it."""
    with pytest.raises(TooSlowError, match="too slow"):
        await passed(reply(status=CONTINUE), refusal=TooSlowError("too slow"))


@pytest.mark.parametrize("headers", [(), (("content-length", "5"),)])
async def test_a_host_that_ends_cuts_what_may_have_no_end(headers: tuple[()]) -> None:
    closes, ends = trio.Event(), trio.Event()

    async def until_closing() -> None:
        await closes.wait()

    async def passing() -> None:
        with pytest.raises(PeerFailed, match="this node ends"):
            await passed(reply(*headers), until_closing=until_closing)
        ends.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(passing)
        await trio.testing.wait_all_tasks_blocked()
        assert not ends.is_set()
        closes.set()
        await trio.testing.wait_all_tasks_blocked()
        assert ends.is_set() is not bool(headers)
        if headers:  # it goes on, however long that takes
            nursery.cancel_scope.cancel()
